"""Judging claims: each against the replications of the system and point that it is about."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simserve.experiment.runs import Result
from simserve.scenario.claims import Claim

TOLERANCE = 0.10
"""How far from the mean of the replications a claimed value may lie, as a share of the mean, if not in their range."""

COLUMNS = ("id", "source", "statement", "expected", "measured", "low", "high", "rule", "holds")

Values = NDArray[np.float64]
"""What a claim is about, one value for each run; never empty."""


def judge(claims: Sequence[Claim], results: Sequence[Result]) -> pd.DataFrame:
    """Return claims.csv: what each claim expects, what was measured (mean and range), the rule, and the verdict."""
    return pd.DataFrame([_line(claim, results) for claim in claims], columns=list(COLUMNS))


def _line(claim: Claim, results: Sequence[Result]) -> dict[str, Any]:
    values = _values(claim, results)
    rule, expected, holds = _rule(claim)
    some = len(values) > 0
    return {
        "id": claim.id,
        "source": claim.source,
        "statement": _statement(claim),
        "expected": expected,
        "measured": values.mean() if some else np.nan,
        "low": values.min() if some else np.nan,
        "high": values.max() if some else np.nan,
        "rule": rule,
        "holds": some and bool(holds(values)),
    }


def _values(claim: Claim, results: Sequence[Result]) -> Values:
    """Return the claim's measure in each of its runs, where it could be taken."""
    mine = _runs_of(claim.system, claim, results)
    if claim.same_as is None:
        values = [run.measures[claim.metric] / (run.measures[claim.over] if claim.over else 1) for run in mine]
    else:
        others = _runs_of(claim.same_as, claim, results)
        values = [float(run.times_digest == other.times_digest) for run, other in zip(mine, others, strict=True)]
    return np.array([value for value in values if np.isfinite(value)])


def _runs_of(system: str, claim: Claim, results: Sequence[Result]) -> list[Result]:
    return [
        result
        for result in results
        if result.task.system == system
        and all(path not in result.task.point or result.task.point[path] == value for path, value in claim.at.items())
    ]


def _statement(claim: Claim) -> str:
    what = (
        f"{claim.metric} / {claim.over}"
        if claim.over
        else claim.metric or f"times of every request, as {claim.same_as}"
    )
    where = f" at {', '.join(f'{path}={value}' for path, value in claim.at.items())}" if claim.at else ""
    return f"{claim.system}: {what}{where}" + (f" ({claim.statement})" if claim.statement else "")


def _rule(claim: Claim) -> tuple[str, str, Callable[[Values], bool]]:
    """Return the claim's rule by name, what it expects in words, and the test of the measured values."""
    if claim.value is not None:
        return "range or 10 %", f"{claim.value:.15g}", lambda values: _near(claim.value, claim.printed_to / 2, values)
    if claim.low is not None and claim.high is not None:
        low, high = claim.low, claim.high
        return "mean in interval", f"{low:.15g} to {high:.15g}", lambda values: low <= values.mean() <= high
    if claim.exactly is not None:
        return "exact in every run", f"{claim.exactly:.15g}", lambda values: (values == claim.exactly).all()
    return "exact in every run", "the same", lambda values: values.all()


def _near(value: float, rounding: float, values: Values) -> bool:
    """Whether the value, give or take its rounding, lies in the range of the runs or near their mean."""
    reach = TOLERANCE * abs(values.mean())
    low, high = min(values.min(), values.mean() - reach), max(values.max(), values.mean() + reach)
    return bool(value + rounding >= low and value - rounding <= high)
