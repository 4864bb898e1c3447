"""One run of the kind `serving`, measured."""

import numpy as np

from simserve import diagnostics, metrics, simulation
from simserve.experiment.task import RunResult, Task, digest, is_wanted
from simserve.scenario.serving import ServingScenario


def run(scenario: ServingScenario, task: Task) -> RunResult:
    """Send the workload through the system and measure."""
    records = simulation.run(scenario, task.system, task.replication)
    system, output = scenario.systems[task.system], scenario.output
    cost = system.cost.price(scenario.model, scenario.hardware)
    measures = metrics.run_metrics(records, scenario.slo, scenario.hardware.kv_capacity_tokens(scenario.model))
    measures |= diagnostics.diagnostics(records, cost, system.max_batch_size)
    tables = {}
    if is_wanted(output.requests, task):
        tables["requests"] = metrics.request_table(records, scenario.slo)
    if is_wanted(output.iterations, task):
        tables["iterations"] = metrics.iteration_table(records)
    if is_wanted(output.preemptions, task):
        tables["preemptions"] = metrics.preemption_table(records)
    return RunResult(task, measures, digest(np.stack((records.first_token_s, records.finish_s))), tables)
