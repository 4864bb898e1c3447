"""One run of the kind `prediction`, measured."""

from simserve import query_metrics, query_simulation
from simserve.experiment.task import RunResult, Task, digest, is_wanted
from simserve.scenario.prediction import PredictionScenario


def run(scenario: PredictionScenario, task: Task) -> RunResult:
    """Send the queries through the system and measure."""
    records = query_simulation.run(scenario, task.system, task.replication)
    output, slo_s = scenario.output, scenario.slo.latency_s if scenario.slo else None
    measures = query_metrics.run_metrics(records, slo_s)
    measures |= query_metrics.diagnostics(records, slo_s, scenario.settle_batches)
    tables = {}
    if is_wanted(output.requests, task):
        tables["requests"] = query_metrics.request_table(records, slo_s)
    if is_wanted(output.batches, task):
        tables["batches"] = query_metrics.batch_table(records, slo_s)
    if is_wanted(output.learning, task) and (learning := query_metrics.learning_table(records)) is not None:
        tables["learning"] = learning
    return RunResult(task, measures, digest(records.finish_s), tables)
