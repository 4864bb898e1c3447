"""The kinds of study, and with them the whole schema of a scenario. Each kind lives in a file of its name."""

from simserve.scenario.prediction import PredictionScenario
from simserve.scenario.profile import LatencyProfileScenario
from simserve.scenario.serving import ServingScenario
from simserve.scenario.study import Study

DEFAULT_KIND = "serving"

KINDS: dict[str, type[Study]] = {
    "serving": ServingScenario,
    "prediction": PredictionScenario,
    "latency_profile": LatencyProfileScenario,
}
"""The kinds of study, by the scenario's top-level `kind`."""
