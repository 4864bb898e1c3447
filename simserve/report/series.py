"""What a figure shows, as values: bars, series of points in panels, distributions, traces. No drawing here."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from simserve.report.labels import entry, number, path_name
from simserve.scenario.study import Curves, Promise

Floats = NDArray[np.float64]

MIN_LINE_POINTS = 3
"""Fewer values than this are drawn as bars: a line through two points shows no shape."""

MAX_CURVES = 10
"""More distributions than this in one panel cannot be told apart."""

MAX_TRACES = 12
"""More traces than this are too many even where each has axes of its own."""

MAX_TOGETHER = 2
"""More traces than this do not share axes if one of them is jagged: it would hide the others."""

JAGGED_TRAVEL = 5
"""What goes up and down by more than so many times its range in all is jagged."""

TRACE_COLUMNS = 1000
"""A trace has a lowest and a highest point in each of so many columns; a panel is not as many dots wide."""

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
    bound: float | None = None
    """A line to draw across."""


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


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, from left to right."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def steps(self) -> bool:
        """Whether it goes in steps: between two whole numbers there is nothing."""
        return all(value.is_integer() for value in self.y)

    @property
    def jagged(self) -> bool:
        """Whether it goes up and down so much that it fills an area."""
        return bool(np.abs(np.diff(self.y)).sum() > JAGGED_TRAVEL * np.ptp(self.y))


@dataclass(frozen=True, slots=True)
class Trace:
    """A column of a large table over another, of one system at one point of the sweep, one model and one replica."""

    system: str
    variant: str
    """The swept values, model and replica in words; empty if the system has no other."""
    line: Line
    reference: Line | None

    @property
    def label(self) -> str:
        """What the legend calls it."""
        return _label(self.system, self.variant)


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference of one trace, or of several if theirs are equal as far as they go."""

    owners: tuple[str, ...]
    """The labels of those traces."""
    line: Line
    """The longest."""


@dataclass(frozen=True, slots=True)
class Traces:
    """A column of a large table over another; without traces if no system has values."""

    x: str
    y: str
    reference: str | None
    """The column of the references."""
    only: str
    """What is shown alone because all would be too much, in words; else empty."""
    traces: tuple[Trace, ...]
    references: tuple[Reference, ...]

    @property
    def cells(self) -> tuple[tuple[Trace, ...], ...]:
        """Those that share axes: all, unless they would hide each other; then each has its own, or each system has."""
        if len(self.traces) <= MAX_TOGETHER or not any(trace.line.jagged for trace in self.traces):
            return (self.traces,)
        if len(self.traces) <= MAX_TRACES:
            return tuple((trace,) for trace in self.traces)
        systems = dict.fromkeys(trace.system for trace in self.traces)
        return tuple(tuple(trace for trace in self.traces if trace.system == system) for system in systems)


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


def plot_of(
    summary: pd.DataFrame, metrics: Sequence[str], against: str | None = None, lines: Mapping[str, float] | None = None
) -> Plot:
    """Return what to draw of summary.csv: a panel for each metric, and on the axis the path that says most.

    `lines` are bounds to draw across the panels of metrics.
    """
    varied = _varied(summary, swept_columns(summary))
    axis = _axis(summary, varied)
    others = [path for path in varied if path != axis]
    values = list(pd.unique(summary[axis or "system"].dropna()))
    numeric = bool(axis) and _is_numeric(summary, axis)
    x_values = tuple(sorted(values) if numeric else values)
    panels = {
        metric: replace(_panel(summary, metric, axis or "system", others, x_values), bound=(lines or {}).get(metric))
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


def distributions_of(requests: pd.DataFrame, latencies: Sequence[str], slo: Promise | None) -> tuple[Distribution, ...]:
    """Return the distribution of each latency over the requests of requests.csv; those without a value count as well.

    Points of a sweep are curves of their own. If they are too many, only the first swept values are shown.
    """
    swept = swept_columns(requests, before="replication")
    varied, only = _varied(requests, swept), ""
    if varied and _num_cases(requests, varied) > MAX_CURVES:
        requests, only = _first_of(requests, varied)
        varied = []
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


def _num_cases(table: pd.DataFrame, paths: Sequence[str]) -> int:
    return int(table.groupby(["system", *paths], dropna=False).ngroups)


def _first_of(table: pd.DataFrame, paths: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """Return the rows with the first value of each path, or with none, and those values in words."""
    first = {path: table[path].dropna().iloc[0] for path in paths}
    for path, value in first.items():
        table = table[table[path].isna() | (table[path] == value)]
    return table, variant("", first)


def _bound(slo: Promise | None, latency: str, swept: Sequence[str]) -> float | None:
    """Return the SLO's bound, if it has one that is not swept itself."""
    if slo is None or not {"slo", f"slo.{latency}", "slo.latency_s"}.isdisjoint(swept):
        return None
    return slo.bound_on(latency)


def _curve(system: str, words: str, times: "pd.Series[float]") -> Curve:
    values, counts = np.unique(times.dropna().to_numpy(float), return_counts=True)
    shares = np.cumsum(counts) / len(times)
    if len(values) > MAX_STEPS:
        kept = np.linspace(0, len(values) - 1, MAX_STEPS).round().astype(int)
        values, shares = values[kept], shares[kept]
    return Curve(system, words, tuple(values.tolist()), tuple(shares.tolist()))


Case = tuple[str, str, pd.DataFrame]
"""A system, a variant in words, and their rows."""


def traces_of(table: pd.DataFrame | None, asked: Curves) -> Traces:
    """Return what to draw of a large table, if it is there at all: the first replication, a trace for each case.

    If there are too many, only the first swept values are shown, and if need be only the first replica.
    """
    cases, only = ([], "") if table is None else _trace_cases(table[table["replication"] == 0])
    traces, references = [], []
    for system, words, rows in cases:
        x, y = _pairs_of(rows, asked.x, asked.y)
        if not len(x):
            continue
        own = _pairs_of(rows, asked.x, asked.reference) if asked.reference else (x[:0], y[:0])
        trace = Trace(system, words, _line(x, y), _line(*own) if len(own[0]) else None)
        traces.append(trace)
        if trace.reference:
            references.append((trace.label, *own))
    return Traces(asked.x, asked.y, asked.reference, only, tuple(traces), _references(references))


def _trace_cases(table: pd.DataFrame) -> tuple[list[Case], str]:
    """Return the cases that are shown, and in words the values that alone are shown if those are not all."""
    varied = _varied(table, swept_columns(table, before="replication"))
    parts = [name for name in ("model", "replica") if name in table and name not in varied]
    only = []
    for paths in (varied, [name for name in parts if name == "replica"]):
        if paths and _num_cases(table, [*varied, *parts]) > MAX_TRACES:
            table, kept = _first_of(table, paths)
            only.append(kept)
            varied = _varied(table, varied)
    cases = []
    for system, point, rows in _cases(table, varied):
        several = _varied(rows, parts)
        for _, part, own in _cases(rows, several):
            words = [variant(system, point), *(f"{name} {value}" for name, value in part.items())]
            cases.append((system, ", ".join(word for word in words if word), own))
    return cases, ", ".join(only)


def _pairs_of(rows: pd.DataFrame, x: str, y: str) -> tuple[Floats, Floats]:
    """Return the rows that have both values, from left to right."""
    across, up = (pd.to_numeric(rows[name], errors="coerce").to_numpy(float) for name in (x, y))
    there = np.flatnonzero(np.isfinite(across) & np.isfinite(up))
    order = there[np.argsort(across[there], kind="stable")]
    return across[order], up[order]


def _line(x: Floats, y: Floats) -> Line:
    """Return a line with no more points than a panel can show, its extremes and both ends among them."""
    if len(x) > 2 * TRACE_COLUMNS:
        columns = ((x - x[0]) / ((x[-1] - x[0]) or 1.0) * (TRACE_COLUMNS - 1)).astype(int)
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        rising = np.lexsort((y, columns))  # column by column, in each from its lowest to its highest
        ends = np.append(starts[1:], len(x)) - 1
        kept = np.unique(np.concatenate((rising[starts], rising[ends], [0, len(x) - 1])))
        x, y = x[kept], y[kept]
    return Line(tuple(x.tolist()), tuple(y.tolist()))


def _references(found: Sequence[tuple[str, Floats, Floats]]) -> tuple[Reference, ...]:
    """Return the references with equal ones as one."""
    groups: list[list[tuple[str, Floats, Floats]]] = []
    for one in found:
        mates = next((group for group in groups if all(_are_equal(one, other) for other in group)), None)
        if mates is None:
            groups.append([one])
        else:
            mates.append(one)
    return tuple(
        Reference(
            tuple(label for label, _, _ in group), _line(*max((own for _, *own in group), key=lambda own: own[0][-1]))
        )
        for group in groups
    )


def _are_equal(one: tuple[str, Floats, Floats], other: tuple[str, Floats, Floats]) -> bool:
    """Tell whether two references are the same wherever both are known, and that is not just here and there."""
    (_, x, y), (_, other_x, other_y) = one, other
    if np.ptp(y) == np.ptp(other_y) == 0:
        return bool(y[0] == other_y[0])
    common, at, other_at = np.intersect1d(x, other_x, return_indices=True)
    return 2 * len(common) >= min(len(x), len(other_x)) and np.array_equal(y[at], other_y[other_at])
