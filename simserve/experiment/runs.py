"""One task of an experiment, as a worker process computes it: a run, or the search of one system and replication."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

from simserve.experiment import block_sharing, cpu_timing, forward_pass, gantt, latency_profile, prediction, serving
from simserve.experiment.search import Bracket, bisect
from simserve.experiment.task import RunResult, Task, is_wanted
from simserve.scenario import Study, at_point
from simserve.scenario.study import TrafficStudy

RUN: dict[str, Callable[[Any, Task], RunResult]] = {
    "serving": serving.run,
    "prediction": prediction.run,
    "latency_profile": latency_profile.run,
    "block_sharing": block_sharing.run,
    "padding": forward_pass.run_padding,
    "selective_batching": forward_pass.run_selective_batching,
    "gantt": gantt.run,
    "cpu_timing": cpu_timing.run,
}
"""How a task is computed, by the kind of study."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What is kept of one search: the bracket, and every run on the way."""

    task: Task
    bracket: Bracket
    runs: tuple[RunResult, ...]
    demand_per_s: float | None = None
    gpus_each: int = 1
    """How many GPUs a system is made of."""

    @property
    def times_digest(self) -> str:
        """A hash of all token times of all runs."""
        return sha256("".join(run.times_digest for run in self.runs).encode()).hexdigest()

    @property
    def measures(self) -> dict[str, float]:
        """What the search found, NaN where a bound was never crossed; with a demand, how many GPUs it takes."""
        low, status = self.bracket.low, self.bracket.status
        goodput = low if low is not None and status == "bracketed" else math.nan
        if self.demand_per_s is None:
            return {"goodput_per_s": goodput}
        gpus = math.nan if math.isnan(goodput) else math.ceil(self.demand_per_s / goodput) * self.gpus_each
        return {"goodput_per_s": goodput, "gpus_for_demand": gpus}


Result = TypeVar("Result", RunResult, SearchResult)


def run_task(scenario: Study, task: Task) -> RunResult:
    """Run a task and measure it."""
    scenario = at_point(scenario, task.point) if task.point else scenario
    return RUN[scenario.kind](scenario, task)


def search_task(scenario: TrafficStudy, task: Task) -> SearchResult:
    """Search the goodput of a task's system; every step of the search sees the same requests at another rate.

    The large tables, where wanted, are of the highest rate that attains.
    """
    search, output = scenario.search, scenario.output
    assert search is not None
    nothing = dict.fromkeys(type(output).model_fields, False)
    measured_only = scenario.model_copy(update={"output": output.model_copy(update=nothing)})
    runs: dict[float, RunResult] = {}

    def at(value: float) -> Task:
        return Task(task.system, {**task.point, search.parameter: value}, task.replication)

    def attains(value: float) -> bool:
        runs[value] = run_task(measured_only, at(value))
        slo = at_point(scenario, at(value).point).slo
        assert slo is not None
        return runs[value].measures["slo_attainment"] >= slo.attainment

    bracket = bisect(attains, search.low, search.high, search.rel_tol)
    if bracket.low is not None and any(is_wanted(getattr(output, table), task) for table in nothing):
        runs[bracket.low] = run_task(scenario, at(bracket.low))
    return SearchResult(
        task, bracket, tuple(run for _, run in sorted(runs.items())), search.demand_per_s, scenario.gpus_of(task.system)
    )
