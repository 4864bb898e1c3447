"""How each kind of panel is drawn on its axes: lines, bars, one metric against another, distributions, traces."""

import math
from bisect import bisect
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, MaxNLocator

from simserve.report.bounds import draw_bound_of_bars, outline
from simserve.report.labels import entry, label, name_and_unit, number, path_label
from simserve.report.scales import (
    SHARES,
    SHARES_END,
    bound_shown,
    decade_below,
    in_reach,
    is_share,
    limits,
    log_axis,
    means,
    names_axis,
    plain,
    reads_as_share,
    room_for,
    scale,
    spans_decades,
    swept_axis,
    times_span_decades,
)
from simserve.report.series import Curve, Distribution, Line, Panel, Plot, Point, Trace, Traces, paired
from simserve.report.style import Look

Looks = Mapping[str, Look]

TITLE_CHARACTERS_PER_IN = 10

REFERENCE: Any = {"linestyle": (0, (5, 2.5)), "lw": 0.9}
"""How references are drawn."""

BOUND_ROW = 0.9
"""How far below the last bar the label of a bound stands."""

BOUND_LABEL_WIDTH = 0.04
BOUND_LABEL_HEIGHT = 0.24
"""Of the label of an SLO's bound, which stands on its side, as shares of the panel."""


def draw_lines(axes: Axes, plot: Plot, panel: Panel, looks: Looks) -> None:
    """Draw a metric over the swept path, with bands of confidence."""
    log_y = spans_decades(panel)
    bottom, top = limits(panel, log_y)
    for index, series in enumerate(panel.series):
        look = looks[series.label]
        # Each is thinner than the one below it, so that equal lines show as one inside the other.
        fresh = _freshness(index, len(panel.series))
        x, mean, low, high = zip(
            *((point.x, point.mean, point.low, point.high) for point in series.points), strict=True
        )
        width, size = 1.4 + fresh, 4.5 + 3 * fresh
        axes.plot(
            x, mean, linestyle=look.dashes, color=look.colour, marker=look.marker, lw=width, ms=size, clip_on=False
        )
        axes.fill_between(x, np.maximum(low, bottom), high, color=look.colour, alpha=0.15, linewidth=0)
    scale(axes, "y", (bottom, top), log_y)
    axes.set_xlabel(path_label(plot.swept))
    swept_axis(axes, plot.x_values)


def _freshness(index: int, number_of: int) -> float:
    """Return 1 for what is drawn first, 0 for what is drawn last and on top."""
    return 1 - index / max(number_of - 1, 1)


def draw_bars(axes: Axes, plot: Plot, panel: Panel, looks: Looks, width_in: float) -> None:
    """Draw horizontal bars, so that names and printed values have room beside each other."""
    log = spans_decades(panel)
    bound = bound_shown(panel, log)
    start = decade_below(min(*means(panel), *bound, math.inf)) if log else limits(panel, log)[0]
    texts, centres, y = [], [], 0
    gap = 1 if plot.swept else 0
    names = []
    for value in plot.x_values:
        members = [(series, point) for series in panel.series for point in series.points if point.x == value]
        if not members:  # a system of which this metric knows nothing
            continue
        names.append(entry(value))
        for place, (series, point) in enumerate(members, start=y):
            foot = start if log else 0.0
            edge = draw_bar(axes, place, (point.mean, point.low, point.high), foot, looks[series.label].colour)
            texts.append((min(edge, SHARES_END) if is_share(panel) else edge, number(point.mean)))
            print_value(axes, place, *texts[-1], gap_points=5)
        centres.append(y + (len(members) - 1) / 2)
        y += len(members) + gap
    end = max(room_for(texts, start, width_in, log), *(1.1 * value for value in bound), -math.inf)
    if log:
        log_axis(axes, "x", start, end)
    else:
        axes.set_xlim(start, min(end, SHARES_END) if is_share(panel) else end)
        axes.xaxis.set_major_locator(
            FixedLocator(SHARES) if is_share(panel) else MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
        )
        axes.xaxis.set_major_formatter(plain)
    last = y - 1 - gap
    bounded = panel.bound is not None
    names_axis(axes, centres, names, last + bounded * BOUND_ROW)
    draw_bound_of_bars(axes, panel, last + BOUND_ROW)
    if plot.swept:
        axes.set_ylabel(path_label(plot.swept))


def draw_bar(axes: Axes, y: float, values: tuple[float, float, float], start: float, colour: str) -> float:
    """Draw mean, low and high (NaN for what there is not) from `start`; return where the drawn part ends."""
    mean, low, high = values
    if not (mean > start or mean < start == 0):  # below zero there is no logarithm
        return start
    axes.barh(y, mean - start, left=start, height=0.7, color=colour, alpha=0.85)
    if not high > low:
        return max(mean, start)
    low = low if start == 0 and mean < 0 else max(low, start)
    # On a logarithmic scale a low end of zero has no place; there the range begins where the axis does.
    axes.errorbar(mean, y, xerr=[[mean - low], [high - mean]], color="black", capsize=3)
    return max(high, start)


def print_value(axes: Axes, y: float, edge: float, text: str, gap_points: int) -> None:
    """Print a value behind the end of its bar."""
    look: Any = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 9}
    outline(axes.annotate(text, (edge, y), xytext=(gap_points, 0), **look))


def draw_distribution(axes: Axes, distribution: Distribution, looks: Looks, width_in: float) -> None:
    """Draw a curve of shares for each system and point, and the bound of the SLO across them."""
    name, _ = name_and_unit(distribution.latency)
    title = f"distribution of {name}" + (f", only {distribution.only}" if distribution.only else "")
    axes.set_title(fill(title, int(TITLE_CHARACTERS_PER_IN * width_in)))
    if not any(curve.values for curve in distribution.curves):
        say_nothing(axes)
        return
    for index, curve in enumerate(distribution.curves):
        look = looks[curve.label]
        width = 1.3 + 1.2 * _freshness(index, len(distribution.curves))
        x, y = (*curve.values[:1], *curve.values), (0.0, *curve.shares) if curve.values else ()
        axes.plot(x, y, linestyle=look.dashes, color=look.colour, lw=width, drawstyle="steps-post")
    axes.set_xlabel(label(distribution.latency))
    axes.set_ylabel("share of requests")
    axes.set_ylim(0, SHARES_END)
    axes.set_yticks(SHARES)
    axes.yaxis.set_major_formatter(plain)
    _time_axis(axes, distribution)


def _time_axis(axes: Axes, distribution: Distribution) -> None:
    """Make room for all times and the SLO's bound, unless that is so far off that it would leave none for them."""
    times = [time for curve in distribution.curves for time in (*curve.values[:1], *curve.values[-1:])]
    bound, log = distribution.bound, times_span_decades(times)
    far = bound is not None and not log and not in_reach(bound, times, log)
    shown = times if bound is None or far else [*times, bound]
    scale(axes, "x", (min(shown) / 1.15, 1.15 * max(shown)) if log else (0.0, 1.06 * max(shown) or 1.0), log)
    if bound is not None and far:
        written = f"SLO {number(bound)} s →"
        axes.text(0.99, 0.03, written, transform=axes.transAxes, ha="right", va="bottom", fontsize=8)
    elif bound is not None:
        _draw_bound(axes, bound, distribution.curves)


def _draw_bound(axes: Axes, bound: float, curves: Sequence[Curve]) -> None:
    """Draw the SLO's bound, its label on the side where there is more room and at a height where there is no curve."""
    axes.axvline(bound, color="black", linestyle="--", linewidth=0.8)
    to_axes = axes.transScale + axes.transLimits
    place = to_axes.transform((bound, 0.5))[0]
    right = place < 0.9
    edge = to_axes.inverted().transform((place + (BOUND_LABEL_WIDTH if right else -BOUND_LABEL_WIDTH), 0.5))[0]
    text = axes.annotate(
        f"SLO {number(bound)} s",
        (bound, _free_height(curves, min(bound, edge), max(bound, edge))),
        xytext=(3 if right else -3, 0),
        textcoords="offset points",
        rotation=90,
        ha="left" if right else "right",
        va="bottom",
        fontsize=8,
    )
    outline(text)


def _free_height(curves: Sequence[Curve], left: float, right: float) -> float:
    """Return where between two times a label can stand on its side without a curve going through it."""
    passed = [[([0.0, *curve.shares])[bisect(curve.values, time)] for time in (left, right)] for curve in curves]
    heights = [0.03 + 0.05 * step for step in range(16)]
    free = (low for low in heights if not any(b > low - 0.02 and a < low + BOUND_LABEL_HEIGHT for a, b in passed))
    return next(free, heights[0])


def draw_against(axes: Axes, panel: Panel, against: Panel, looks: Looks) -> list[Annotation]:
    """Draw a metric against another, a trail of points for each system; return the labels of its ends.

    The labels stand on their points, to be moved beside them once the figure is laid out.
    """
    across, up = paired(panel, against)
    axes.set_xlabel(label(across.metric, across.unit))
    if not up.series:
        say_nothing(axes)
        return []
    log_x, log_y = spans_decades(across), spans_decades(up)
    x_limits, y_limits = limits(across, log_x), limits(up, log_y)
    labels = []
    for index, (at, series) in enumerate(zip(across.series, up.series, strict=True)):
        look = looks[series.label]
        x, y = [point.mean for point in at.points], [point.mean for point in series.points]
        arms = {"xerr": _arms(at.points, x_limits[0]), "yerr": _arms(series.points, y_limits[0])}
        axes.errorbar(x, y, **arms, fmt="none", ecolor=look.colour, elinewidth=0.8, alpha=0.4)
        size = 5 + 2 * _freshness(index, len(up.series))
        axes.plot(x, y, linestyle=look.dashes, color=look.colour, marker=look.marker, lw=1.4, ms=size, clip_on=False)
        if len(x) > 1:
            ends = (entry(series.points[place].x) for place in (0, -1))
            points = ((x[0], y[0]), (x[-1], y[-1]))
            labels += [_end_label(axes, text, point, look) for text, point in zip(ends, points, strict=True)]
    scale(axes, "x", x_limits, log_x)
    scale(axes, "y", y_limits, log_y)
    return labels


def traces_title(panel: Traces) -> str:
    """Return what stands above the traces: the column they show, and what they leave out."""
    return label(panel.y) + (f", only {panel.only}" if panel.only else "")


def draw_traces(axes: Axes, panel: Traces, looks: Looks, width_in: float) -> None:
    """Draw all traces on the same axes: a reference that several have in black, another in its trace's colour."""
    axes.set_title(fill(traces_title(panel), int(TITLE_CHARACTERS_PER_IN * width_in)))
    if not panel.traces:
        say_nothing(axes)
        return
    for index, trace in enumerate(panel.traces):
        look = looks[trace.label]
        _draw_trace(axes, trace, look, dashes=not trace.line.jagged, freshness=_freshness(index, len(panel.traces)))
    for reference in panel.references:
        alone = len(reference.owners) == 1 < len(panel.traces)
        _draw_reference(axes, reference.line, looks[reference.owners[0]].colour if alone else "black")
    axes.set_xlabel(label(panel.x))
    _trace_axes(axes, panel)


def draw_cell(axes: Axes, panel: Traces, traces: Sequence[Trace], looks: Looks, width_in: float) -> None:
    """Draw some of the traces on axes that are like those of the others, with their own references."""
    name = traces[0].label if len(traces) == 1 else traces[0].system
    axes.set_title(fill(name, int(TITLE_CHARACTERS_PER_IN * width_in)), fontsize=9)
    for trace in traces:
        _draw_trace(axes, trace, looks[trace.label], dashes=len(traces) > 1, freshness=0)
        if trace.reference:
            _draw_reference(axes, trace.reference, "black")
    _trace_axes(axes, panel)


def _draw_trace(axes: Axes, trace: Trace, look: Look, *, dashes: bool, freshness: float) -> None:
    width = (0.7 if trace.line.jagged else 1.3) + 0.9 * freshness
    axes.plot(
        trace.line.x,
        trace.line.y,
        drawstyle="steps-post" if trace.line.steps else "default",
        color=look.colour,
        linestyle=look.dashes if dashes else "-",
        marker=look.marker if len(trace.line.x) == 1 else "",
        lw=width,
    )


def _draw_reference(axes: Axes, line: Line, colour: str) -> None:
    place = 1.9 if line.jagged else 3  # a line of matplotlib's is at 2
    drawstyle: Any = "steps-post" if line.steps else "default"
    axes.plot(line.x, line.y, drawstyle=drawstyle, color=colour, zorder=place, **REFERENCE)


def _trace_axes(axes: Axes, panel: Traces) -> None:
    """Make room for all traces and references, from zero; not for what is in other cells alone."""
    lines = [trace.line for trace in panel.traces] + [reference.line for reference in panel.references]
    y = [value for line in lines for value in line.y]
    x = [value for line in lines for value in (line.x[0], line.x[-1])]
    left, right = min(x), max(x)
    margin = 0.01 * (right - left) or 1.0
    scale(axes, "x", (left - margin, right + margin), log=False)
    if reads_as_share(panel.y, "", y):
        axes.set_ylim(0, SHARES_END)
        axes.set_yticks(SHARES)
        axes.yaxis.set_major_formatter(plain)
    else:
        start = 1.06 * min(*y, 0.0)
        scale(axes, "y", (start, 1.06 * max(*y, 0.0) or float(start == 0)), log=False)


def say_nothing(axes: Axes) -> None:
    """Leave a panel empty but for a word."""
    axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center")
    axes.set_axis_off()


def _arms(points: Sequence[Point], start: float) -> Any:
    """Return the lengths of the error bars below and above each mean; none for a single replication."""
    low = [point.mean - max(point.low, start) if point.low < point.mean else 0.0 for point in points]
    high = [point.high - point.mean if point.high > point.mean else 0.0 for point in points]
    return [low, high]


def _end_label(axes: Axes, text: str, point: tuple[float, float], look: Look) -> Annotation:
    style: Any = {"fontsize": 8, "color": look.colour, "ha": "center", "va": "center", "zorder": 5}
    written = axes.annotate(text, point, xytext=(0, 0), textcoords="offset points", **style)
    written.set_in_layout(False)
    outline(written)
    return written
