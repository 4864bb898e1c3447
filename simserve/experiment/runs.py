"""One task of an experiment, as a worker process computes it: a run, or the search of one system and replication."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from simserve import diagnostics, metrics, simulation
from simserve.experiment.search import Bracket, bisect
from simserve.records import Records
from simserve.scenario import at_point
from simserve.scenario.schema import Output, ServingScenario


@dataclass(frozen=True, slots=True)
class Task:
    """What to compute: a system at a point of the sweep, in one replication."""

    system: str
    point: Mapping[str, Any]
    replication: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """What is kept of one run."""

    task: Task
    measures: Mapping[str, float]
    """The columns of runs.csv and diagnostics.csv."""
    times_digest: str
    """A hash of all token times: two runs that agree to the last digit have the same."""
    requests: pd.DataFrame | None = None
    iterations: pd.DataFrame | None = None
    preemptions: pd.DataFrame | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What is kept of one search: the bracket, and every run on the way."""

    task: Task
    bracket: Bracket
    runs: tuple[RunResult, ...]
    demand_per_s: float | None = None

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
        gpus = math.nan if math.isnan(goodput) else math.ceil(self.demand_per_s / goodput)
        return {"goodput_per_s": goodput, "gpus_for_demand": gpus}


Result = TypeVar("Result", RunResult, SearchResult)


def run_task(scenario: ServingScenario, task: Task) -> RunResult:
    """Run a task and measure it."""
    scenario = at_point(scenario, task.point) if task.point else scenario
    records = simulation.run(scenario, task.system, task.replication)
    return _measure(scenario, task, records)


def _measure(scenario: ServingScenario, task: Task, records: Records) -> RunResult:
    system = scenario.systems[task.system]
    cost = system.cost.price(scenario.model, scenario.hardware)
    measures = metrics.run_metrics(records, scenario.slo, scenario.hardware.kv_capacity_tokens(scenario.model))
    measures |= diagnostics.diagnostics(records, cost, system.max_batch_size)
    output = scenario.output
    return RunResult(
        task=task,
        measures=measures,
        times_digest=sha256(np.stack((records.first_token_s, records.finish_s)).tobytes()).hexdigest(),
        requests=metrics.request_table(records, scenario.slo) if _wanted(output.requests, task) else None,
        iterations=metrics.iteration_table(records) if _wanted(output.iterations, task) else None,
        preemptions=metrics.preemption_table(records) if _wanted(output.preemptions, task) else None,
    )


def _wanted(choice: bool | str, task: Task) -> bool:
    return task.replication == 0 if choice == "first" else bool(choice)


def search_task(scenario: ServingScenario, task: Task) -> SearchResult:
    """Search the goodput of a task's system; every step of the search sees the same requests at another rate.

    The large tables, where wanted, are of the highest rate that attains.
    """
    search = scenario.search
    assert search is not None
    measured_only = scenario.model_copy(update={"output": Output(requests=False, iterations=False, preemptions=False)})
    runs: dict[float, RunResult] = {}

    def at(value: float) -> Task:
        return Task(task.system, {**task.point, search.parameter: value}, task.replication)

    def attains(value: float) -> bool:
        runs[value] = run_task(measured_only, at(value))
        slo = at_point(scenario, at(value).point).slo
        assert slo is not None
        return runs[value].measures["slo_attainment"] >= slo.attainment

    bracket = bisect(attains, search.low, search.high, search.rel_tol)
    output = scenario.output
    choices = (output.requests, output.iterations, output.preemptions)
    if bracket.low is not None and any(_wanted(choice, task) for choice in choices):
        runs[bracket.low] = run_task(scenario, at(bracket.low))
    return SearchResult(task, bracket, tuple(run for _, run in sorted(runs.items())), search.demand_per_s)
