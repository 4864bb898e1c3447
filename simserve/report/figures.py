"""Figures of a result, drawn from its CSVs alone: figure.png and figure.svg.

A search is drawn as bars of goodput on a logarithmic scale. Anything else has panels: distributions of requests, then
one for each metric, of lines over a swept path, of bars, or against another metric.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation

from simserve.report.callouts import place_beside
from simserve.report.labels import label, number, path_label
from simserve.report.panels import (
    draw_against,
    draw_bar,
    draw_bars,
    draw_distribution,
    draw_lines,
    print_value,
    say_nothing,
)
from simserve.report.scales import decade_below, log_axis, names_axis, room_for
from simserve.report.series import (
    Distribution,
    GoodputBar,
    Panel,
    Plot,
    distributions_of,
    goodput_bars,
    plot_of,
)
from simserve.report.style import CHARACTER_IN, COLOURS, DASHES, MARKERS, WIDTH_IN, Look, style
from simserve.report.tables import read_csv
from simserve.scenario import serving, study

TITLE_CHARACTERS = 95
PANEL_COLUMNS = 2
PANEL_IN = 2.9
LEGEND_ROW_IN = 0.22
DPI = 150


def draw(folder: Path, title: str, figure: study.Figure, slo: serving.SLO | None, search: bool) -> None:
    """Draw the CSVs in `folder`: goodput.csv (beside claims.csv, if there is one) of a search.

    Of anything else, what `figure` asks for: summary.csv, and requests.csv with the bounds of `slo`. The same CSVs give
    the same bytes.

    Raises:
        OSError: a CSV is missing, or a figure cannot be written.
    """
    with style():
        if search:
            claims = folder / "claims.csv"
            bars = goodput_bars(read_csv(folder / "goodput.csv"), read_csv(claims) if claims.exists() else None)
            drawn = goodput_figure(bars, title)
        else:
            plot = plot_of(read_csv(folder / "summary.csv"), figure.metrics or (), figure.against)
            latencies = figure.distributions
            requests = distributions_of(read_csv(folder / "requests.csv"), latencies, slo) if latencies else ()
            drawn = panels_figure(plot, title, requests)
        drawn.savefig(folder / "figure.png", dpi=DPI)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn.savefig(folder / "figure.svg", metadata=nothing)


def goodput_figure(bars: Sequence[GoodputBar], title: str) -> Figure:
    """Draw a bar for each system: the mean, the range of the replications, and what the source says."""
    figure = _figure(1.3 + 0.6 * len(bars), title)
    axes = figure.add_subplot()
    shown = [value for bar in bars for value in (bar.mean, bar.low, bar.source_value or 0.0) if value > 0]
    start = decade_below(min(shown, default=1.0))
    sources = [(bar.source_value, y) for y, bar in enumerate(bars) if bar.source_value]
    systems = list(dict.fromkeys(bar.system for bar in bars))
    texts = []
    for y, bar in enumerate(bars):
        colour = COLOURS[systems.index(bar.system) % len(COLOURS)]
        edge = draw_bar(axes, y, (bar.mean, bar.low, bar.high), start, colour)
        texts.append((max(edge, bar.source_value or 0.0), _goodput_text(bar)))
        print_value(axes, y, *texts[-1], gap_points=11)
    names_axis(axes, list(range(len(bars))), [bar.label for bar in bars], len(bars) - 1)
    axes.set_xlabel(_goodput_label(bars))
    log_axis(axes, "x", start, room_for(texts, start, WIDTH_IN - 2.5, log=True))
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


def panels_figure(plot: Plot, title: str, distributions: Sequence[Distribution] = ()) -> Figure:
    """Draw a panel for each distribution and for each metric, and one legend for all of them."""
    looks = _looks(plot, distributions)
    handles = _handles(plot, distributions, looks)
    panels: list[Distribution | Panel] = [*distributions, *plot.panels]
    columns = min(PANEL_COLUMNS, len(panels))
    heights = [PANEL_IN] * len(distributions) + [_metric_height_in(plot)] * len(plot.panels)
    rows = [max(heights[start : start + columns]) for start in range(0, len(panels), columns)]
    ends_title = f"at the ends of lines: {path_label(plot.swept)}" if plot.against and plot.swept else ""
    legend_rows = math.ceil(len(handles) / _num_legend_columns(handles)) + bool(ends_title)
    figure = _figure(0.8 + sum(rows) + LEGEND_ROW_IN * max(legend_rows - 1, 0), title)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=rows)
    ends = []
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(grid[index])
        if isinstance(panel, Distribution):
            draw_distribution(axes, panel, looks, WIDTH_IN / columns)
        else:
            ends.append((axes, _draw_metric(axes, plot, panel, looks, WIDTH_IN / columns)))
    if handles:
        columns = _num_legend_columns(handles)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, title=ends_title or None)
    if any(labels for _, labels in ends):
        figure.draw_without_rendering()
        for axes, labels in ends:
            place_beside(axes, labels, figure.dpi)
    return figure


def _metric_height_in(plot: Plot) -> float:
    if plot.lines or plot.against:
        return PANEL_IN
    bars = (sum(len(series.points) for series in panel.series) for panel in plot.panels)
    return 1.0 + 0.28 * max(bars, default=0)


def _draw_metric(
    axes: Axes, plot: Plot, panel: Panel, looks: Mapping[str, Look], width_in: float
) -> Sequence[Annotation]:
    """Draw a metric's panel; return labels that are yet to be placed."""
    axes.set_title(label(panel.metric, panel.unit))
    if not panel.series:
        say_nothing(axes)
    elif plot.against:
        return draw_against(axes, panel, plot.against, looks)
    elif plot.lines:
        draw_lines(axes, plot, panel, looks)
    else:
        draw_bars(axes, plot, panel, looks, width_in - 2.0)
    return ()


def _looks(plot: Plot, distributions: Sequence[Distribution]) -> dict[str, Look]:
    """Give each series and curve a look: colour by system, dashes (and marker) by variant."""
    series, curves = _series(plot), _curves(distributions)
    systems = list(dict.fromkeys([*series.values(), *curves.values()]))
    if len(systems) == 1:  # whose variants have all colours
        return {name: _look(index, index) for index, name in enumerate(series | curves)}
    return _looks_of(series, systems) | _looks_of(curves, systems)


def _looks_of(drawn: Mapping[str, str], systems: Sequence[str]) -> dict[str, Look]:
    looks = {}
    for name, system in drawn.items():
        family = systems.index(system)
        mates = [mate for mate, other in drawn.items() if other == system]
        looks[name] = _look(family, mates.index(name) if len(mates) > 1 else family)
    return looks


def _look(family: int, member: int) -> Look:
    return Look(COLOURS[family % len(COLOURS)], MARKERS[member % len(MARKERS)], DASHES[member % len(DASHES)])


def _series(plot: Plot) -> dict[str, str]:
    """Return the system of each series."""
    return {series.label: series.system for panel in plot.panels for series in panel.series}


def _curves(distributions: Sequence[Distribution]) -> dict[str, str]:
    """Return the system of each curve."""
    return {curve.label: curve.system for panel in distributions for curve in panel.curves}


def _handles(plot: Plot, distributions: Sequence[Distribution], looks: Mapping[str, Look]) -> list[Line2D | Patch]:
    """Return what the legend has: lines where there are some, else bars, unless their names stand beside them."""
    series, curves = _series(plot), _curves(distributions)
    marked = plot.lines or plot.against is not None
    handles: list[Line2D | Patch] = []
    for name, look in looks.items():
        if name in curves or marked:
            marker = look.marker if marked and name in series else ""
            handles.append(Line2D([], [], color=look.colour, marker=marker, linestyle=look.dashes, label=name))
        elif plot.swept:
            handles.append(Patch(color=look.colour, alpha=0.85, label=name))
    return handles


def _num_legend_columns(handles: Sequence[Line2D | Patch]) -> int:
    widest = max((len(str(handle.get_label())) for handle in handles), default=0) * CHARACTER_IN + 0.8
    return max(1, min(len(handles), int(WIDTH_IN / widest)))


def _figure(height_in: float, title: str) -> Figure:
    wide = any(east_asian_width(character) in "WF" for character in title)
    lines = textwrap.wrap(title, TITLE_CHARACTERS // 2 if wide else TITLE_CHARACTERS)
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    figure = Figure(figsize=(WIDTH_IN, height_in + 0.25 * len(lines)), layout=layout)
    figure.suptitle("\n".join(lines))
    return figure
