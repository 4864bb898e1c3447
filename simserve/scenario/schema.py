"""The kinds of study, and with them the whole schema of a scenario. Each kind lives in a file of its name."""

from simserve.scenario.block_sharing import BlockSharingScenario
from simserve.scenario.cpu_timing import CpuTimingScenario
from simserve.scenario.forward_pass import PaddingScenario, SelectiveBatchingScenario
from simserve.scenario.gantt import GanttScenario
from simserve.scenario.prediction import PredictionScenario
from simserve.scenario.profile import LatencyProfileScenario
from simserve.scenario.serving import ServingScenario
from simserve.scenario.study import Study

DEFAULT_KIND = "serving"

KINDS: dict[str, type[Study]] = {
    "serving": ServingScenario,
    "prediction": PredictionScenario,
    "latency_profile": LatencyProfileScenario,
    "block_sharing": BlockSharingScenario,
    "padding": PaddingScenario,
    "selective_batching": SelectiveBatchingScenario,
    "gantt": GanttScenario,
    "cpu_timing": CpuTimingScenario,
}
"""The kinds of study, by the scenario's top-level `kind`."""
