"""Judging claims: each against the replications of the system and point that it is about."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simserve.experiment.runs import Result
from simserve.scenario.claims import Claim, Operand, Trend

TOLERANCE = 0.10
"""How far from the mean of the replications a claimed value may lie, as a share of the mean, if not in their range."""

MAJORITY = 0.90
"""The share of replications that must show a comparison: 18 of 20."""

COLUMNS = ("id", "source", "statement", "expected", "measured", "low", "high", "rule", "holds")

Values = NDArray[np.float64]
"""What a claim is about, one value for each run; never empty."""


def judge(claims: Sequence[Claim], results: Sequence[Result], machine_dependent: Collection[str] = ()) -> pd.DataFrame:
    """Return claims.csv: what each claim expects, what was measured (mean and range), the rule, and the verdict.

    Measures that are `machine_dependent` are marked so in the rule.
    """
    lines = [_line(claim, results) for claim in claims]
    for line, claim in zip(lines, claims, strict=True):
        if claim.metric in machine_dependent:
            line["rule"] += ", machine-dependent"
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _line(claim: Claim, results: Sequence[Result]) -> dict[str, Any]:
    values = _values(claim, results)
    rule, expected, holds = _rule(claim)
    some = bool(len(values)) and bool(np.isfinite(values).all())
    found = values[np.isfinite(values)]
    return {
        "id": claim.id,
        "source": claim.source,
        "statement": _statement(claim),
        "expected": expected,
        "measured": found.mean() if len(found) else np.nan,
        "low": found.min() if len(found) else np.nan,
        "high": found.max() if len(found) else np.nan,
        "rule": rule if claim.value is None or not some else _which(claim.value, claim.printed_to / 2, values),
        "holds": some and bool(holds(values)),
    }


def _values(claim: Claim, results: Sequence[Result]) -> Values:
    """Return what the claim is judged by: a value for each of its runs, or for each step of a trend.

    A run without a value, such as a goodput that was never bracketed, has NaN, and then the claim does not hold.
    """
    runs = _runs(results, claim.system, claim.at)
    if claim.when is not None:
        runs = [run for run in runs if run.measures[claim.when.metric] <= claim.when.at_most]
    if claim.trend is not None:
        return _steps(claim, claim.trend, runs)
    return np.array([_value(claim, run, results) for run in runs])


def _value(claim: Claim, run: Result, results: Sequence[Result]) -> float:
    """Return the measure of a claim in one of its runs; of a comparison, by how much the run is above the other."""

    def of(operand: Operand | None) -> float:
        return 0.0 if operand is None else _other(run, operand, results).measures[operand.metric or claim.metric]

    if claim.same_as is not None:
        return float(run.times_digest == _other(run, claim.same_as, results).times_digest)
    if other := claim.above or claim.below:
        return run.measures[claim.metric] - of(other)
    value = run.measures[claim.metric] - of(claim.baseline)
    if claim.over is None:
        return value
    divisor = of(claim.over) - of(claim.baseline)
    return value / divisor if divisor else np.nan


def _steps(claim: Claim, trend: Trend, runs: Sequence[Result]) -> Values:
    """Return how the mean changes from each swept value to the next; for `concave`, how the slope does."""
    points = sorted({run.task.point[trend.along] for run in runs})
    points = [point for point in points if trend.up_to is None or point <= trend.up_to]
    means = [
        np.mean([run.measures[claim.metric] for run in runs if run.task.point[trend.along] == point])
        for point in points
    ]
    return np.diff(np.diff(means) / np.diff(points)) if trend.shape == "concave" else np.diff(means)


def _runs(results: Sequence[Result], system: str, at: Mapping[str, Any]) -> list[Result]:
    """Return the runs of a system at a point; swept paths that either does not name match every value."""
    return [
        result
        for result in results
        if result.task.system == system
        and all(result.task.point.get(path, value) == value for path, value in at.items())
    ]


def _other(run: Result, operand: Operand, results: Sequence[Result]) -> Result:
    """Return the run that an operand names, of the same replication and otherwise at the same point."""
    found = _runs(results, operand.system or run.task.system, {**run.task.point, **operand.at})
    return next(result for result in found if result.task.replication == run.task.replication)


def _statement(claim: Claim) -> str:
    what = claim.metric or "times of every request"
    if claim.baseline:
        what += f" above {_named(claim.baseline)}"
    if claim.over:
        what += f" / {_named(claim.over)}"
    where = f" at {_place(claim.at)}" if claim.at else ""
    return f"{claim.system}: {what}{where}" + (f" ({claim.statement})" if claim.statement else "")


def _named(operand: Operand) -> str:
    words = (operand.metric, f"of {operand.system}" if operand.system else None)
    place = f"at {_place(operand.at)}" if operand.at else None
    return " ".join(word for word in (*words, place) if word)


def _place(at: Mapping[str, Any]) -> str:
    return ", ".join(f"{path}={value}" for path, value in at.items())


def _rule(claim: Claim) -> tuple[str, str, Callable[[Values], bool]]:
    """Return the claim's rule by name, what it expects in words, and the test of the measured values."""
    if claim.value is not None:
        return "range or 10 %", f"{claim.value:.15g}", lambda values: _near(claim.value, claim.printed_to / 2, values)
    if claim.exactly is not None:
        return "exact in every run", f"{claim.exactly:.15g}", lambda values: bool((values == claim.exactly).all())
    if claim.same_as is not None:
        return "exact in every run", f"the same {_named(claim.same_as)}", lambda values: bool(values.all())
    if claim.above is not None:
        return "nine in ten runs", f"above that {_named(claim.above)}", lambda values: np.mean(values > 0) >= MAJORITY
    if claim.below is not None:
        return "nine in ten runs", f"below that {_named(claim.below)}", lambda values: np.mean(values < 0) >= MAJORITY
    if claim.trend is not None:
        sign = 1 if claim.trend.shape == "rising" else -1
        return "every step of the means", claim.trend.shape, lambda values: bool((sign * values > 0).all())
    low, high = claim.low, claim.high
    words = " and ".join(
        f"{word} {end:.15g}" for word, end in (("at least", low), ("at most", high)) if end is not None
    )
    return "mean in interval", words, lambda values: _within(float(values.mean()), low, high)


def _within(mean: float, low: float | None, high: float | None) -> bool:
    return (low is None or mean >= low) and (high is None or mean <= high)


def _which(value: float, rounding: float, values: Values) -> str:
    """Say which half of the rule decides: near the mean is the stronger."""
    mean = values.mean()
    return (
        "within 10 % of the mean"
        if abs(value - mean) - rounding <= TOLERANCE * abs(mean)
        else "in the range of the runs"
    )


def _near(value: float, rounding: float, values: Values) -> bool:
    """Whether the value, give or take its rounding, lies in the range of the runs or near their mean."""
    reach = TOLERANCE * abs(values.mean())
    low, high = min(values.min(), values.mean() - reach), max(values.max(), values.mean() + reach)
    return bool(value + rounding >= low and value - rounding <= high)
