"""What a figure shows, as values: bars of goodput, series of points in panels, distributions. No drawing here."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from simserve.report.labels import entry, number, path_name
from simserve.scenario.serving import SLO

MIN_LINE_POINTS = 3
"""Fewer values than this are drawn as bars: a line through two points shows no shape."""

MAX_CURVES = 10
"""More distributions than this in one panel cannot be told apart."""

MAX_STEPS = 500
"""A distribution has no more steps than this; a panel is not as many dots high."""

GOODPUT_CLAIM = re.compile(r"(?P<system>[\w-]+): goodput_per_s(?: at (?P<at>.*?))?(?: \(.*\))?")
"""The statement of a claim about goodput: a system, and the swept values it is about."""


@dataclass(frozen=True, slots=True)
class GoodputBar:
    """The goodput of one system, at one point of a sweep if there is one, over the replications."""

    system: str
    variant: str
    """The swept values in words; empty if there are none."""
    mean: float
    low: float
    """Of the lowest replication."""
    high: float
    """Of the highest replication."""
    replications: int
    note: str
    """How many replications ended at a bound of the search: `< 0.02 in 3 of 20`; empty for none."""
    source_value: float | None
    """What the source claims."""

    @property
    def label(self) -> str:
        """What stands beside the bar."""
        return _label(self.system, self.variant)


@dataclass(frozen=True, slots=True)
class SourceValue:
    """The goodput that the source states for a system at some swept values; those left out match any."""

    system: str
    at: tuple[tuple[str, str], ...]
    value: float

    def is_about(self, system: str, point: dict[str, Any]) -> bool:
        """Tell whether it is stated for this system and point."""
        return self.system == system and all(entry(point.get(path, "")) == entry(value) for path, value in self.at)


@dataclass(frozen=True, slots=True)
class Point:
    """The mean over the replications at one value on the axis, and its confidence interval (NaN for a single one)."""

    x: Any
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Series:
    """One system at one value of each swept path that is not on the axis."""

    system: str
    variant: str
    """Those values in words; empty if there are none."""
    points: tuple[Point, ...]

    @property
    def label(self) -> str:
        """What the legend calls it."""
        return _label(self.system, self.variant)


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric; without series if the summary knows no value of it."""

    metric: str
    unit: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """All panels of a figure, and the axis they share."""

    swept: str
    """The swept path on the axis; empty if nothing is swept, and the systems stand there instead."""
    lines: bool
    """Whether the values form lines; else each is a group of bars."""
    x_values: tuple[Any, ...]
    panels: tuple[Panel, ...]
    against: Panel | None = None
    """The metric that all panels show theirs against, instead of the swept path."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The empirical distribution function of a latency, of one system at one point of the sweep."""

    system: str
    variant: str
    """The swept values in words; empty if all curves have the same."""
    values: tuple[float, ...]
    """Rising; none if no request has a value."""
    shares: tuple[float, ...]
    """What share of all requests, with or without a value, is at or below each."""

    @property
    def label(self) -> str:
        """What the legend calls it."""
        return _label(self.system, self.variant)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A latency of requests, a curve for each system and point."""

    latency: str
    bound: float | None
    """Of the SLO."""
    only: str
    """The swept values, in words, that are shown alone because all would be too many; else empty."""
    curves: tuple[Curve, ...]


def goodput_bars(goodput: pd.DataFrame, claims: pd.DataFrame | None) -> list[GoodputBar]:
    """Return a bar for each system (and point) of goodput.csv, in its order, with what claims.csv (if any) expects."""
    swept = swept_columns(goodput, before="replication")
    expected = [] if claims is None else list(_source_values(claims))
    return [_goodput_bar(system, point, rows, expected) for system, point, rows in _cases(goodput, swept)]


def _goodput_bar(system: str, point: dict[str, Any], rows: pd.DataFrame, expected: list[SourceValue]) -> GoodputBar:
    values = rows["goodput_per_s"].astype(float)
    notes = (_bound_note(rows, "below_low"), _bound_note(rows, "above_high"))
    return GoodputBar(
        system=system,
        variant=variant(system, point),
        mean=float(values.mean()),
        low=float(values.min()),
        high=float(values.max()),
        replications=len(rows),
        note="; ".join(note for note in notes if note),
        source_value=next((claim.value for claim in expected if claim.is_about(system, point)), None),
    )


def _bound_note(rows: pd.DataFrame, status: str) -> str:
    """Say how many replications are only known to lie below or above a bound of the search."""
    hit = rows[rows["status"] == status]
    if hit.empty:
        return ""
    bounds = [value for value in hit[["low_per_s", "high_per_s"]].to_numpy(float).ravel() if 0 < value < math.inf]
    bound = f"< {number(min(bounds))}" if status == "below_low" else f"> {number(max(bounds))}"
    return f"{bound} in {len(hit)} of {len(rows)}"


def _source_values(claims: pd.DataFrame) -> Iterator[SourceValue]:
    """Yield what the source states about goodput as a single number; intervals have no place in the figure."""
    for statement, expected in zip(claims["statement"], claims["expected"], strict=True):
        match = GOODPUT_CLAIM.fullmatch(str(statement))
        try:
            value = float(expected)
        except ValueError:
            continue
        if match:
            pairs = (pair.partition("=") for pair in (match["at"] or "").split(", ") if pair)
            yield SourceValue(match["system"], tuple((path, stated) for path, _, stated in pairs), value)


def swept_columns(table: pd.DataFrame, before: str = "metric") -> list[str]:
    """Return the swept paths: the columns between `system` and `before`, in summary.csv `metric`."""
    columns = list(table.columns)
    return columns[columns.index("system") + 1 : columns.index(before)]


def _cases(table: pd.DataFrame, paths: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], pd.DataFrame]]:
    """Yield each system at each value of the paths, and its rows, in the order of the table."""
    for (system, *values), rows in table.groupby(["system", *paths], sort=False, dropna=False):
        yield str(system), dict(zip(paths, values, strict=True)), rows


def variant(system: str, point: dict[str, Any]) -> str:
    """Put the swept values in words, without those that are empty because they do not concern the system."""
    words = (f"{path_name(path)} {entry(value)}" for path, value in point.items() if not pd.isna(value))
    return ", ".join(word.removeprefix(f"{system}: ") for word in words)


def _label(system: str, words: str) -> str:
    return f"{system}, {words}" if words else system


def plot_of(summary: pd.DataFrame, metrics: Sequence[str], against: str | None = None) -> Plot:
    """Return what to draw of summary.csv: a panel for each metric, and on the axis the path that says most."""
    varied = _varied(summary, swept_columns(summary))
    axis = _axis(summary, varied)
    others = [path for path in varied if path != axis]
    values = list(pd.unique(summary[axis or "system"].dropna()))
    numeric = bool(axis) and _is_numeric(summary, axis)
    x_values = tuple(sorted(values) if numeric else values)
    panels = {
        metric: _panel(summary, metric, axis or "system", others, x_values)
        for metric in (*metrics, *([against] if against else []))
    }
    return Plot(
        swept=axis,
        lines=numeric and len(values) >= MIN_LINE_POINTS,
        x_values=x_values,
        panels=tuple(panels[metric] for metric in metrics),
        against=panels[against] if against else None,
    )


def _varied(table: pd.DataFrame, paths: Sequence[str]) -> list[str]:
    return [path for path in paths if table[path].nunique() > 1]


def _axis(summary: pd.DataFrame, varied: list[str]) -> str:
    """Return the first path with numbers enough for a line, else the first with numbers, else the first."""
    numbers = [path for path in varied if _is_numeric(summary, path)]
    curves = [path for path in numbers if summary[path].nunique() >= MIN_LINE_POINTS]
    return next(iter([*curves, *numbers, *varied]), "")


def _is_numeric(summary: pd.DataFrame, path: str) -> bool:
    return is_numeric_dtype(summary[path]) and not is_bool_dtype(summary[path])


def _panel(summary: pd.DataFrame, metric: str, axis: str, others: list[str], x_values: Sequence[Any]) -> Panel:
    rows = summary[(summary["metric"] == metric) & summary["mean"].notna()]
    series = [
        Series(system, variant(system, point), _points(part, axis, x_values))
        for system, point, part in _cases(rows, others)
    ]
    return Panel(metric, str(rows["unit"].iloc[0]) if series else "", tuple(series))


def _points(rows: pd.DataFrame, axis: str, x_values: Sequence[Any]) -> tuple[Point, ...]:
    """Return the points along the axis; a system that the swept path does not concern is the same everywhere."""
    columns = (rows[name].tolist() for name in (axis, "mean", "ci_low", "ci_high"))
    at = {x: Point(x, *values) for x, *values in zip(*columns, strict=True)}
    constant = [replace(point, x=x) for point in at.values() if pd.isna(point.x) for x in x_values]
    return tuple(constant or (at[x] for x in x_values if x in at))


def paired(panel: Panel, against: Panel) -> tuple[Panel, Panel]:
    """Return what stands across and what stands up where one metric is shown against another.

    Both have the same series with the same swept values. A system that is the same all along is a single point.
    """
    across, up = [], []
    others = {series.label: series for series in against.series}
    for series in panel.series:
        other = others.get(series.label)
        pairs = _pairs(other.points, series.points) if other else []
        if other and pairs:
            across.append(replace(other, points=tuple(point for point, _ in pairs)))
            up.append(replace(series, points=tuple(point for _, point in pairs)))
    return replace(against, series=tuple(across)), replace(panel, series=tuple(up))


def _pairs(across: Sequence[Point], up: Sequence[Point]) -> list[tuple[Point, Point]]:
    at = {point.x: point for point in across}
    pairs = [(at[point.x], point) for point in up if point.x in at]
    return pairs if len({(x.mean, y.mean) for x, y in pairs}) > 1 else pairs[:1]


def distributions_of(requests: pd.DataFrame, latencies: Sequence[str], slo: SLO | None) -> tuple[Distribution, ...]:
    """Return the distribution of each latency over the requests of requests.csv; those without a value count as well.

    Points of a sweep are curves of their own. If they are too many, only the first swept values are shown.
    """
    swept = swept_columns(requests, before="replication")
    varied, only = _varied(requests, swept), ""
    if varied and requests.groupby(["system", *varied], dropna=False).ngroups > MAX_CURVES:
        first = {path: requests[path].dropna().iloc[0] for path in varied}
        for path, value in first.items():
            requests = requests[requests[path].isna() | (requests[path] == value)]
        varied, only = [], variant("", first)
    cases = list(_cases(requests, varied))
    return tuple(
        Distribution(
            latency,
            _bound(slo, latency, swept),
            only,
            tuple(_curve(system, variant(system, point), rows[latency]) for system, point, rows in cases),
        )
        for latency in latencies
    )


def _bound(slo: SLO | None, latency: str, swept: Sequence[str]) -> float | None:
    """Return the SLO's bound, if it has one that is not swept itself."""
    if slo is None or not {"slo", f"slo.{latency}"}.isdisjoint(swept):
        return None
    return {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s}.get(latency)


def _curve(system: str, words: str, times: "pd.Series[float]") -> Curve:
    values, counts = np.unique(times.dropna().to_numpy(float), return_counts=True)
    shares = np.cumsum(counts) / len(times)
    if len(values) > MAX_STEPS:
        kept = np.linspace(0, len(values) - 1, MAX_STEPS).round().astype(int)
        values, shares = values[kept], shares[kept]
    return Curve(system, words, tuple(values.tolist()), tuple(shares.tolist()))
