"""Axes for people: where a scale begins and ends, when it is logarithmic, which numbers stand along it."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from simserve.report.labels import name_and_unit, number
from simserve.report.series import Panel
from simserve.report.style import CHARACTER_IN

LOG_RATIO_X = 10
LOG_RATIO_TIMES = 20
"""Times that differ by more than this are drawn on a logarithmic scale; all else starts at zero."""

SHARES = (0, 0.2, 0.4, 0.6, 0.8, 1)
SHARES_END = 1.05
"""Where an axis of shares ends: room for a mark at 1."""

LARGE_SHARE = 0.4
"""Shares below this would all lie at the bottom of an axis that ends at 1."""

ROUNDING = 1e-9
"""By how much a share can be above 1 because of how numbers are rounded."""

BOUND_REACH = 3
"""An axis that starts at zero does not go to a bound that is more than so many times the largest value."""

BOUND_REACH_LOG = 30
"""A logarithmic one not to a bound that is so many times off on either side."""

FEW_DECADES = 2.5

Limits = tuple[float, float]


def scale(axes: Axes, which: Literal["x", "y"], limits: Limits, log: bool) -> None:
    """Give an axis its limits, and plain numbers."""
    if log:
        log_axis(axes, which, *limits)
        return
    axes.set(**{f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    if which == "x":
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(plain)


def log_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Make the scale logarithmic, with plain numbers at each power of ten, and at 2 and 5 times it if those are few."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    few = math.log10(high / low) < FEW_DECADES
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(NullFormatter())


def swept_axis(axes: Axes, values: Sequence[float]) -> None:
    """Mark the swept values themselves, unless some lie so close together that their numbers would touch."""
    log = values[0] > 0 and values[-1] / values[0] > LOG_RATIO_X
    if log:
        log_axis(axes, "x", values[0] * 0.9, values[-1] * 1.1)
    places = [math.log(value) if log else value for value in values]
    closest = min(after - before for before, after in pairwise(places))
    if closest > 0.07 * (places[-1] - places[0]):
        axes.set_xticks(list(values))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(plain)


def names_axis(axes: Axes, places: Sequence[float], names: Sequence[str], last: float) -> None:
    """Write the names at their places on the left, from the top down to the bar at `last`."""
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_ylim(last + 0.6, -0.6)


def plain(value: float, _place: float = 0) -> str:
    """Write a number along an axis."""
    return number(value)


def is_share(panel: Panel) -> bool:
    """Tell whether the values lie between 0 and 1 and are read against 1."""
    return reads_as_share(panel.metric, panel.unit, means(panel))


def reads_as_share(column: str, unit: str, values: Sequence[float]) -> bool:
    """Tell whether values are read against 1: some always are, other shares where 1 is not too far off."""
    if column == "slo_attainment":
        return True
    if "share" not in (unit, name_and_unit(column)[1]) or min(values) < 0 or max(values) > 1 + ROUNDING:
        return False
    return "accuracy" in column or max(values) >= LARGE_SHARE


def means(panel: Panel) -> list[float]:
    """Return all means of a panel."""
    return [point.mean for series in panel.series for point in series.points]


def spans_decades(panel: Panel) -> bool:
    """Tell whether the values need a logarithmic scale: times often do, shares and rates are read from zero."""
    is_time = (panel.unit or name_and_unit(panel.metric)[1]) == "s"
    return is_time and times_span_decades(means(panel))


def times_span_decades(values: Sequence[float]) -> bool:
    """Tell whether times need a logarithmic scale."""
    return min(values) > 0 and max(values) / min(values) > LOG_RATIO_TIMES


def limits(panel: Panel, log: bool) -> Limits:
    """Return limits around the means and the bound; the interval of two or three replications may reach far beyond."""
    values, bound = means(panel), bound_shown(panel, log)
    highest = max(
        point.high if point.high > point.mean else point.mean for series in panel.series for point in series.points
    )
    if log:
        end = max(1.3 * min(highest, 2 * max(values)), *(1.5 * value for value in bound), 0.0)
        return min(*values, *bound, math.inf) / 1.3, end
    most = 1.0 if is_share(panel) else 1.5 * max(values)
    end = max(1.06 * max(max(values), min(highest, most)), *(1.1 * value for value in bound), 0.0)
    start = min(1.06 * min(values), *(1.1 * value for value in bound), 0.0)
    return start, min(end, SHARES_END) if is_share(panel) else end or float(start == 0)


def bound_shown(panel: Panel, log: bool) -> list[float]:
    """Return the bound of a panel if an axis can go as far as that, else nothing."""
    bound = panel.bound
    return [bound] if bound is not None and in_reach(bound, means(panel), log) else []


def in_reach(bound: float, values: Sequence[float], log: bool) -> bool:
    """Tell whether an axis can go as far as a bound and leave room enough for the values."""
    if log:
        return min(values) / BOUND_REACH_LOG <= bound <= max(values) * BOUND_REACH_LOG
    largest = max(map(abs, values))
    return largest == 0 or abs(bound) <= BOUND_REACH * largest


def decade_below(value: float) -> float:
    """Return the power of ten where a logarithmic scale begins so that a bar up to `value` has a visible length."""
    return float(10 ** math.floor(math.log10(value / 1.5)))


def room_for(texts: Sequence[tuple[float, str]], start: float, width_in: float, log: bool) -> float:
    """Return where an axis of `width_in` must end so that each text fits behind the place where its bar ends."""
    ends = [10 * start] if log else []
    for edge, text in texts:
        share = min(0.6, (len(text) * CHARACTER_IN + 0.25) / width_in)
        ends.append(start * (edge / start) ** (1 / (1 - share)) if log else start + (edge - start) / (1 - share))
    return max(ends, default=0.0) or 1.0
