"""One measurement of the kind `cpu_timing`: the one study whose numbers no seed reproduces."""

from threadpoolctl import threadpool_limits

from simserve.experiment.task import RunResult, Task
from simserve.numerics import time_decodes
from simserve.scenario.cpu_timing import CpuTimingScenario


def run(scenario: CpuTimingScenario, task: Task) -> RunResult:
    """Time the decodes, both ways in turn."""
    with threadpool_limits(scenario.systems[task.system].threads):
        (timing,) = time_decodes(
            scenario.model, [scenario.batch_size], scenario.repeats, scenario.seed, scenario.context_tokens
        )
    measures = {
        "one_by_one_s": timing.one_by_one_s,
        "batched_s": timing.batched_s,
        "speedup": timing.speedup,
        "batched_throughput_tok_per_s": timing.batch_size / timing.batched_s,
    }
    return RunResult(task, measures)
