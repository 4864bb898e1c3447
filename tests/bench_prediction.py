"""Speed of prediction serving, as ratios to bare SimPy timeouts measured in the same process."""

from typing import Any

from simserve import query_simulation
from simserve.engine import Clock
from simserve.scenario.prediction import PredictionScenario
from tests.bench import ROUNDS, bare_timeouts_s, ratio, seconds

REQUIRED_BATCHES_PER_S = 200_000
"""Or a third of bare timeouts, whichever is lower."""

REQUIRED_QUERY_S = 2e-6
"""In large batches."""


def saturated(num_requests: int, batch_size: int, **system: Any) -> PredictionScenario:
    """Return a worker with more queries from the start than it can take, in batches of one size, without noise."""
    worker = {
        "engine": "predictive",
        "profile": {"kind": "linear", "a_s": 0.003, "b_s": 0.0005},
        "controller": {"kind": "fixed", "batch_size": batch_size},
        **system,
    }
    workload = {"num_requests": num_requests, "arrivals": "burst"}
    whole = {"kind": "prediction", "name": "bench", "workload": workload, "systems": {"system": worker}}
    return PredictionScenario.model_validate(whole)


def loop_s(scenario: PredictionScenario) -> float:
    """Return the seconds in the engine loop alone, without drawing, unfolding and checking."""
    spent: list[float] = []
    run = Clock.run
    Clock.run = lambda clock: spent.append(seconds(lambda: run(clock)))  # type: ignore[method-assign,assignment]
    try:
        query_simulation.run(scenario, "system")
    finally:
        Clock.run = run  # type: ignore[method-assign]
    return spent[0]


def batch_ratio(num_batches: int = 100_000) -> float:
    """Return how many bare timeouts a batch of one query costs."""
    single = saturated(num_batches, 1)
    return ratio(lambda: loop_s(single) / num_batches, bare_timeouts_s)


def batches_per_s(num_batches: int = 100_000) -> float:
    """Return batches of one query in a second, the best of some rounds."""
    single = saturated(num_batches, 1)
    return num_batches / min(loop_s(single) for _ in range(ROUNDS))


def query_ratio(batch_size: int = 1000, num_batches: int = 500) -> float:
    """Return how many bare timeouts a query in a large batch costs."""
    large = saturated(batch_size * num_batches, batch_size)
    return ratio(lambda: loop_s(large) / (batch_size * num_batches), bare_timeouts_s)


def query_s(batch_size: int = 1000, num_batches: int = 500) -> float:
    """Return the seconds that a query in a large batch costs, the best of some rounds."""
    large = saturated(batch_size * num_batches, batch_size)
    return min(loop_s(large) for _ in range(ROUNDS)) / (batch_size * num_batches)
