"""Figures of a result, drawn from its CSVs alone: figure.png and figure.svg.

A search is drawn as bars of goodput on a logarithmic scale; anything else as one panel for each metric, of lines over
a swept path or of bars.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from simserve.report.labels import entry, label, name_and_unit, number, path_label
from simserve.report.series import GoodputBar, Panel, Plot, goodput_bars, plot_of
from simserve.report.tables import read_csv

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Okabe and Ito's palette, told apart with any colour vision; its yellow is too pale for lines."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")

WIDTH_IN = 10.0
TITLE_CHARACTERS = 95
PANEL_COLUMNS = 2
DPI = 150
CHARACTER_IN = 0.085
"""Width of a character of a printed value, rounded up."""

LOG_RATIO_X = 10
LOG_RATIO_TIMES = 20
"""Times that differ by more than this are drawn on a logarithmic scale; all else starts at zero."""

SHARES = (0, 0.2, 0.4, 0.6, 0.8, 1)

FEW_DECADES = 2.5

# `Any` because matplotlib knows settings by literal names, not as a mapping.
STYLE: Any = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.titlesize": 13,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "simserve",
    # A dollar sign in a title is a dollar sign.
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True)
class Look:
    """What tells one series from the others."""

    colour: str
    marker: str
    dashes: Literal["-", "--", "-.", ":"]


def draw(folder: Path, title: str, metrics: Sequence[str], search: bool) -> None:
    """Draw the CSVs in `folder`: goodput.csv (beside claims.csv, if there is one) of a search, else summary.csv.

    `metrics` are the panels of the latter. The same CSVs give the same bytes.

    Raises:
        OSError: a CSV is missing, or a figure cannot be written.
    """
    with _style():
        if search:
            claims = folder / "claims.csv"
            bars = goodput_bars(read_csv(folder / "goodput.csv"), read_csv(claims) if claims.exists() else None)
            figure = goodput_figure(bars, title)
        else:
            figure = panels_figure(plot_of(read_csv(folder / "summary.csv"), metrics), title)
        figure.savefig(folder / "figure.png", dpi=DPI)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(folder / "figure.svg", metadata=nothing)


@contextmanager
def _style() -> Iterator[None]:
    """Draw the same on every machine, whatever its matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def goodput_figure(bars: Sequence[GoodputBar], title: str) -> Figure:
    """Draw a bar for each system: the mean, the range of the replications, and what the source says."""
    figure = _figure(1.3 + 0.6 * len(bars), title)
    axes = figure.add_subplot()
    shown = [value for bar in bars for value in (bar.mean, bar.low, bar.source_value or 0.0) if value > 0]
    start = _decade_below(min(shown, default=1.0))
    sources = [(bar.source_value, y) for y, bar in enumerate(bars) if bar.source_value]
    systems = list(dict.fromkeys(bar.system for bar in bars))
    texts = []
    for y, bar in enumerate(bars):
        colour = COLOURS[systems.index(bar.system) % len(COLOURS)]
        edge = _bar(axes, y, (bar.mean, bar.low, bar.high), start, colour)
        texts.append((max(edge, bar.source_value or 0.0), _goodput_text(bar)))
        _print_value(axes, y, *texts[-1], gap_points=11)
    _names_axis(axes, list(range(len(bars))), [bar.label for bar in bars], len(bars) - 1)
    axes.set_xlabel(_goodput_label(bars))
    _log_axis(axes, "x", start, _room_for(texts, start, WIDTH_IN - 2.5, log=True))
    if sources:
        diamond: Any = {
            "marker": "D",
            "s": 64,
            "facecolors": "none",
            "edgecolors": "black",
            "linewidths": 1.4,
            "zorder": 5,
        }
        axes.scatter(*zip(*sources, strict=True), label="source's value", **diamond)
        figure.legend(loc="outside lower right")
    return figure


def _goodput_text(bar: GoodputBar) -> str:
    if not bar.mean > 0:
        return f"goodput {bar.note or number(bar.mean)}"
    return number(bar.mean) + (f"  ({bar.note})" if bar.note else "")


def _goodput_label(bars: Sequence[GoodputBar]) -> str:
    most = max((bar.replications for bar in bars), default=1)
    return label("goodput_per_s") + (f": mean and range of {most} replications" if most > 1 else "")


def panels_figure(plot: Plot, title: str) -> Figure:
    """Draw a panel for each metric, and one legend for all of them."""
    columns = min(PANEL_COLUMNS, len(plot.panels))
    rows = math.ceil(len(plot.panels) / columns)
    looks = _looks(plot)
    height = 2.9 if plot.lines else 1.0 + 0.28 * max(_num_bars(panel) for panel in plot.panels)
    figure = _figure(0.8 + rows * height, title)
    for index, panel in enumerate(plot.panels):
        axes = figure.add_subplot(rows, columns, index + 1)
        axes.set_title(label(panel.metric, panel.unit))
        if not panel.series:
            axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center")
            axes.set_axis_off()
        elif plot.lines:
            _lines(axes, plot, panel, looks)
        else:
            _grouped_bars(axes, plot, panel, looks, WIDTH_IN / columns - 2.0)
    if plot.swept:
        _legend(figure, looks, plot.lines)
    return figure


def _looks(plot: Plot) -> dict[str, Look]:
    """Give each series a look: colour and marker by system, dashes by variant; by variant alone for a single system."""
    every = {series.label: series for panel in plot.panels for series in panel.series}
    systems = list(dict.fromkeys(series.system for series in every.values()))
    looks = {}
    for index, (name, series) in enumerate(every.items()):
        if len(systems) == 1:
            family, member = index, index
        else:
            family = systems.index(series.system)
            mates = [mate.label for mate in every.values() if mate.system == series.system]
            member = mates.index(name) if len(mates) > 1 else family
        looks[name] = Look(COLOURS[family % len(COLOURS)], MARKERS[member % len(MARKERS)], DASHES[member % len(DASHES)])
    return looks


def _lines(axes: Axes, plot: Plot, panel: Panel, looks: dict[str, Look]) -> None:
    log_y = _spans_decades(panel)
    bottom, top = _y_limits(panel, log_y)
    for index, series in enumerate(panel.series):
        look = looks[series.label]
        # Each is thinner than the one below it, so that equal lines show as one inside the other.
        fresh = 1 - index / max(len(panel.series) - 1, 1)
        x, mean, low, high = zip(
            *((point.x, point.mean, point.low, point.high) for point in series.points), strict=True
        )
        width, size = 1.4 + fresh, 4.5 + 3 * fresh
        axes.plot(x, mean, look.dashes, color=look.colour, marker=look.marker, lw=width, ms=size, clip_on=False)
        axes.fill_between(x, np.maximum(low, bottom), high, color=look.colour, alpha=0.15, linewidth=0)
    if log_y:
        _log_axis(axes, "y", bottom, top)
    else:
        axes.set_ylim(bottom, top)
        axes.yaxis.set_major_formatter(_plain)
    axes.set_xlabel(path_label(plot.swept))
    low_x, high_x = plot.x_values[0], plot.x_values[-1]
    log_x = low_x > 0 and high_x / low_x > LOG_RATIO_X
    if log_x:
        _log_axis(axes, "x", low_x * 0.9, high_x * 1.1)
    _swept_ticks(axes, plot.x_values, log_x)


def _y_limits(panel: Panel, log: bool) -> tuple[float, float]:
    """Return limits around the means; the interval of two or three replications may reach far beyond."""
    means = _means(panel)
    highest = max(
        point.high if point.high > point.mean else point.mean for series in panel.series for point in series.points
    )
    if log:
        return min(means) / 1.3, 1.3 * min(highest, 2 * max(means))
    most = 1.0 if panel.metric == "slo_attainment" else 1.5 * max(means)
    return 0.0, 1.06 * max(max(means), min(highest, most)) or 1.0


def _swept_ticks(axes: Axes, values: Sequence[float], log: bool) -> None:
    """Mark the swept values themselves, unless some lie so close together that their numbers would touch."""
    places = [math.log(value) if log else value for value in values]
    closest = min(after - before for before, after in pairwise(places))
    if closest > 0.07 * (places[-1] - places[0]):
        axes.set_xticks(list(values))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(_plain)


def _grouped_bars(axes: Axes, plot: Plot, panel: Panel, looks: dict[str, Look], width_in: float) -> None:
    """Draw horizontal bars, so that names and printed values have room beside each other."""
    log = _spans_decades(panel)
    start = _decade_below(min(_means(panel))) if log else 0.0
    texts, centres, y = [], [], 0
    gap = 1 if plot.swept else 0
    for value in plot.x_values:
        members = [(series, point) for series in panel.series for point in series.points if point.x == value]
        for place, (series, point) in enumerate(members, start=y):
            edge = _bar(axes, place, (point.mean, point.low, point.high), start, looks[series.label].colour)
            texts.append((edge, number(point.mean)))
            _print_value(axes, place, *texts[-1], gap_points=5)
        centres.append(y + (len(members) - 1) / 2)
        y += len(members) + gap
    end = _room_for(texts, start, width_in, log)
    if log:
        _log_axis(axes, "x", start, end)
    else:
        axes.set_xlim(start, end)
        axes.xaxis.set_major_locator(
            FixedLocator(SHARES) if panel.metric == "slo_attainment" else MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
        )
        axes.xaxis.set_major_formatter(_plain)
    _names_axis(axes, centres, [entry(value) for value in plot.x_values], y - 1 - gap)
    if plot.swept:
        axes.set_ylabel(path_label(plot.swept))


def _bar(axes: Axes, y: float, values: tuple[float, float, float], start: float, colour: str) -> float:
    """Draw mean, low and high (NaN for what there is not) from `start`; return where the drawn part ends."""
    mean, low, high = values
    if not mean > start:
        return start
    axes.barh(y, mean - start, left=start, height=0.7, color=colour, alpha=0.85)
    if not high > low:
        return mean
    # On a logarithmic scale a low end of zero has no place; there the range begins where the axis does.
    axes.errorbar(mean, y, xerr=[[mean - max(low, start)], [high - mean]], color="black", capsize=3)
    return high


def _print_value(axes: Axes, y: float, edge: float, text: str, gap_points: int) -> None:
    axes.annotate(text, (edge, y), xytext=(gap_points, 0), textcoords="offset points", va="center_baseline", fontsize=9)


def _decade_below(value: float) -> float:
    """Return the power of ten where a logarithmic scale begins so that a bar up to `value` has a visible length."""
    return float(10 ** math.floor(math.log10(value / 1.5)))


def _num_bars(panel: Panel) -> int:
    return sum(len(series.points) for series in panel.series)


def _spans_decades(panel: Panel) -> bool:
    """Tell whether the values need a logarithmic scale: times often do, shares and rates are read from zero."""
    means = _means(panel)
    is_time = (panel.unit or name_and_unit(panel.metric)[1]) == "s"
    return is_time and min(means) > 0 and max(means) / min(means) > LOG_RATIO_TIMES


def _means(panel: Panel) -> list[float]:
    return [point.mean for series in panel.series for point in series.points]


def _legend(figure: Figure, looks: dict[str, Look], lines: bool) -> None:
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dashes, label=name)
        if lines
        else Patch(color=look.colour, alpha=0.85, label=name)
        for name, look in looks.items()
    ]
    widest = max(len(name) for name in looks) * CHARACTER_IN + 0.8
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, min(len(looks), int(WIDTH_IN / widest))))


def _room_for(texts: Sequence[tuple[float, str]], start: float, width_in: float, log: bool) -> float:
    """Return where an axis of `width_in` must end so that each text fits behind the place where its bar ends."""
    ends = [10 * start] if log else []
    for edge, text in texts:
        share = min(0.6, (len(text) * CHARACTER_IN + 0.25) / width_in)
        ends.append(start * (edge / start) ** (1 / (1 - share)) if log else start + (edge - start) / (1 - share))
    return max(ends, default=0.0) or 1.0


def _names_axis(axes: Axes, places: Sequence[float], names: Sequence[str], last: float) -> None:
    """Write the names at their places on the left, from the top down to the bar at `last`."""
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_ylim(last + 0.6, -0.6)


def _log_axis(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """Make the scale logarithmic, with plain numbers at each power of ten, and at 2 and 5 times it if those are few."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    few = math.log10(high / low) < FEW_DECADES
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.set_major_formatter(_plain)
    axis.set_minor_formatter(NullFormatter())


def _plain(value: float, _place: float) -> str:
    return number(value)


def _figure(height_in: float, title: str) -> Figure:
    lines = textwrap.wrap(title, TITLE_CHARACTERS)
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    figure = Figure(figsize=(WIDTH_IN, height_in + 0.25 * len(lines)), layout=layout)
    figure.suptitle("\n".join(lines))
    return figure
