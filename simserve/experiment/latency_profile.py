"""One point of the kind `latency_profile`."""

from simserve.experiment.task import RunResult, Task
from simserve.scenario.profile import LatencyProfileScenario


def run(scenario: LatencyProfileScenario, task: Task) -> RunResult:
    """Look the batch up in the profile, and the largest batch within the target."""
    profile = scenario.systems[task.system].profile
    latency_s = profile.latency_s(scenario.batch_size)
    largest = profile.largest_batch(scenario.target_s)
    largest_s = profile.latency_s(max(largest, 1))
    measures = {
        "latency_s": latency_s,
        "throughput_per_s": scenario.batch_size / latency_s,
        "largest_batch": largest,
        "largest_batch_latency_s": largest_s if largest else float("nan"),
        "largest_batch_throughput_per_s": largest / largest_s,
        "unbatched_throughput_per_s": 1 / profile.latency_s(1),
    }
    return RunResult(task, measures)
