"""Figures of a result, drawn from its CSVs alone: figure.png and figure.svg.

A search is drawn as bars of goodput on a logarithmic scale. Anything else has panels: distributions of requests, traces
of large tables, then one for each metric, of lines over a swept path, of bars, or against another metric.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation

from simserve.report.bounds import BoundLabel, draw_bound
from simserve.report.callouts import place_along, place_beside
from simserve.report.gantt import gantt_figure
from simserve.report.labels import label, name_and_unit, number, path_label
from simserve.report.panels import (
    REFERENCE,
    draw_against,
    draw_bar,
    draw_bars,
    draw_cell,
    draw_distribution,
    draw_lines,
    draw_traces,
    print_value,
    say_nothing,
    traces_title,
)
from simserve.report.scales import decade_below, log_axis, names_axis, room_for
from simserve.report.series import (
    Distribution,
    GoodputBar,
    Panel,
    Plot,
    Traces,
    distributions_of,
    goodput_bars,
    plot_of,
    traces_of,
)
from simserve.report.style import CHARACTER_IN, COLOURS, DASHES, MARKERS, STYLE, WIDTH_IN, Look, style
from simserve.report.tables import read_csv
from simserve.scenario import study

TITLE_CHARACTERS = 95
PANEL_COLUMNS = 2
PANEL_IN = 2.9
CELL_COLUMNS = 3
CELL_IN = 1.6
CELL_MARGIN_IN = 0.7
"""Of the title above cells and the name of the axis below."""
LEGEND_ROW_IN = 0.22
DPI = 150


def draw(folder: Path, title: str, figure: study.Figure, slo: study.Promise | None, search: bool) -> None:
    """Draw the CSVs in `folder`: goodput.csv (beside claims.csv, if there is one) of a search.

    Of anything else, what `figure` asks for: summary.csv, requests.csv with the bounds of `slo`, and large tables, of
    which any may be missing. The same CSVs give the same bytes.

    Raises:
        OSError: a CSV is missing, or a figure cannot be written.
    """
    with style():
        if search:
            claims = folder / "claims.csv"
            bars = goodput_bars(read_csv(folder / "goodput.csv"), read_csv(claims) if claims.exists() else None)
            drawn = goodput_figure(bars, title)
        else:
            drawn = _asked_for(folder, title, figure, slo)
        drawn.savefig(folder / "figure.png", dpi=DPI)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn.savefig(folder / "figure.svg", metadata=nothing)


def _asked_for(folder: Path, title: str, figure: study.Figure, slo: study.Promise | None) -> Figure:
    """Draw what is no search."""
    table = cache(read_csv)
    if figure.gantt:
        return gantt_figure(table(folder / "schedule.csv"), title)
    plot = plot_of(table(folder / "summary.csv"), figure.metrics or (), figure.against, figure.lines)
    latencies = figure.distributions
    requests = distributions_of(table(folder / "requests.csv"), latencies, slo) if latencies else ()
    paths = [folder / f"{curves.table}.csv" for curves in figure.curves]
    traces = [
        traces_of(table(path) if path.exists() else None, curves)
        for path, curves in zip(paths, figure.curves, strict=True)
    ]
    return panels_figure(plot, title, requests, traces)


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


def panels_figure(
    plot: Plot, title: str, distributions: Sequence[Distribution] = (), traces: Sequence[Traces] = ()
) -> Figure:
    """Draw a panel for each distribution, each kind of traces and each metric, and one legend for all of them."""
    drawing = _Drawing(plot, distributions, traces)
    blocks = _blocks([*distributions, *traces, *plot.panels])
    heights = [sum(drawing.heights_in(block)) for block in blocks]
    ends_title = f"at the ends of lines: {path_label(plot.swept)}" if plot.against and plot.swept else ""
    handles = drawing.handles
    legend_rows = math.ceil(len(handles) / _num_legend_columns(handles)) + bool(ends_title)
    figure = _figure(0.8 + sum(heights) + LEGEND_ROW_IN * max(legend_rows - 1, 0), title)
    if len(blocks) == 1 and not _is_wide(blocks[0][0]):
        drawing.draw(figure, blocks[0])
    else:  # on figures of their own, for the names beside bars would make room beside all that is above them
        grid = figure.add_gridspec(len(blocks), 1, height_ratios=heights)
        for place, block in enumerate(blocks):
            drawing.draw(figure.add_subfigure(grid[place]), block)
    if handles:
        columns = _num_legend_columns(handles)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, title=ends_title or None)
    drawing.place_labels(figure)
    return figure


Shown = Distribution | Traces | Panel


def _is_wide(panel: Shown) -> bool:
    """Tell whether a panel takes all the width for itself."""
    return isinstance(panel, Traces) and len(panel.cells) > 1


def _blocks(panels: Sequence[Shown]) -> list[list[Shown]]:
    """Return the panels in their order: each wide one is a block of its own, others that follow each other are one."""
    blocks: list[list[Shown]] = []
    for panel in panels:
        if blocks and not _is_wide(panel) and not _is_wide(blocks[-1][0]):
            blocks[-1].append(panel)
        else:
            blocks.append([panel])
    return blocks


class _Drawing:
    """Panels on their way onto a figure: how everything looks, and the labels that are yet to be placed."""

    def __init__(self, plot: Plot, distributions: Sequence[Distribution], traces: Sequence[Traces]) -> None:
        self._plot = plot
        self._looks = _looks(plot, distributions, traces)
        self._ends: list[tuple[Axes, Sequence[Annotation]]] = []
        self._bounds: list[tuple[Axes, Sequence[BoundLabel]]] = []
        self.handles = _handles(plot, distributions, traces, self._looks)
        """What the legend has."""

    def heights_in(self, block: Sequence[Shown]) -> list[float]:
        """Return how high each row of a block is."""
        heights = [self._height_in(panel) for panel in block]
        return [max(heights[start : start + PANEL_COLUMNS]) for start in range(0, len(heights), PANEL_COLUMNS)]

    def _height_in(self, panel: Shown) -> float:
        if isinstance(panel, Panel):
            return _metric_height_in(self._plot)
        if isinstance(panel, Traces) and _is_wide(panel):
            return CELL_MARGIN_IN + CELL_IN * math.ceil(len(panel.cells) / _num_cell_columns(panel))
        return PANEL_IN

    def draw(self, figure: Figure | SubFigure, block: Sequence[Shown]) -> None:
        """Draw a block on a figure of its own."""
        first = block[0]
        if isinstance(first, Traces) and _is_wide(first):
            _draw_cells(figure, first, self._looks)
            return
        columns, heights = min(PANEL_COLUMNS, len(block)), self.heights_in(block)
        grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
        for place, panel in enumerate(block):
            self._draw_panel(figure.add_subplot(grid[place]), panel, WIDTH_IN / columns)

    def _draw_panel(self, axes: Axes, panel: Shown, width_in: float) -> None:
        if isinstance(panel, Distribution):
            draw_distribution(axes, panel, self._looks, width_in)
        elif isinstance(panel, Traces):
            draw_traces(axes, panel, self._looks, width_in)
        else:
            self._draw_metric(axes, panel, width_in)

    def _draw_metric(self, axes: Axes, panel: Panel, width_in: float) -> None:
        plot = self._plot
        axes.set_title(label(panel.metric, panel.unit))
        if not panel.series:
            say_nothing(axes)
        elif plot.against:
            self._ends.append((axes, draw_against(axes, panel, plot.against, self._looks)))
            if axes.axison:
                self._bounds.append((axes, [*draw_bound(axes, "y", panel), *draw_bound(axes, "x", plot.against)]))
        elif plot.lines:
            draw_lines(axes, plot, panel, self._looks)
            self._bounds.append((axes, draw_bound(axes, "y", panel)))
        else:
            draw_bars(axes, plot, panel, self._looks, width_in - 2.0)

    def place_labels(self, figure: Figure) -> None:
        """Move labels to where they hide the least, now that all has its place."""
        if not any(labels for _, labels in [*self._ends, *self._bounds]):
            return
        figure.draw_without_rendering()
        for axes, ends in self._ends:
            if ends:
                place_beside(axes, ends, figure.dpi)
        for axes, bounds in self._bounds:
            place_along(axes, bounds, figure.dpi)


def _metric_height_in(plot: Plot) -> float:
    if plot.lines or plot.against:
        return PANEL_IN
    bars = (sum(len(series.points) for series in panel.series) + (panel.bound is not None) for panel in plot.panels)
    return 1.0 + 0.28 * max(bars, default=0)


def _num_cell_columns(panel: Traces) -> int:
    cells = len(panel.cells)
    return cells if cells <= CELL_COLUMNS else 2 if cells == 4 else CELL_COLUMNS


def _draw_cells(figure: Figure | SubFigure, panel: Traces, looks: Mapping[str, Look]) -> None:
    """Draw traces that would hide each other apart, on axes that can be compared."""
    cells, columns = panel.cells, _num_cell_columns(panel)
    figure.suptitle(traces_title(panel), fontsize=STYLE["axes.titlesize"])
    figure.supxlabel(label(panel.x), fontsize=STYLE["font.size"])
    grid = figure.subplots(math.ceil(len(cells) / columns), columns, sharex=True, sharey=True, squeeze=False)
    places = list(grid.flat)
    for axes, traces in zip(places, cells, strict=False):
        draw_cell(axes, panel, traces, looks, WIDTH_IN / columns)
    for empty in range(len(cells), len(places)):
        places[empty].remove()
        places[empty - columns].tick_params(labelbottom=True)


def _looks(plot: Plot, distributions: Sequence[Distribution], traces: Sequence[Traces]) -> dict[str, Look]:
    """Give each series, curve and trace a look: colour by system, dashes (and marker) by variant."""
    series, curves, traced = _series(plot), _curves(distributions), _traced(traces)
    systems = list(dict.fromkeys([*series.values(), *curves.values(), *traced.values()]))
    if len(systems) == 1:  # whose variants have all colours
        return {name: _look(index, index) for index, name in enumerate(series | curves | traced)}
    return _looks_of(series, systems) | _looks_of(curves, systems) | _looks_of(traced, systems)


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


def _traced(traces: Sequence[Traces]) -> dict[str, str]:
    """Return the system of each trace."""
    return {trace.label: trace.system for panel in traces for trace in panel.traces}


def _handles(
    plot: Plot, distributions: Sequence[Distribution], traces: Sequence[Traces], looks: Mapping[str, Look]
) -> list[Line2D | Patch]:
    """Return what the legend has: lines where there are some, else bars, unless their names stand beside them."""
    series, curves = _series(plot), _curves(distributions)
    together = {trace.label for panel in traces for cell in panel.cells if len(cell) > 1 for trace in cell}
    alone = {trace.label for panel in traces if len(panel.traces) == 1 for trace in panel.traces}
    smooth = {trace.label for panel in traces for trace in panel.traces if not trace.line.jagged}
    marked = plot.lines or plot.against is not None
    handles: list[Line2D | Patch] = []
    for name, look in looks.items():
        with_marker = marked and name in series
        if with_marker or name in curves or name in together | alone:
            marker = look.marker if with_marker else ""
            dashes = look.dashes if with_marker or name in curves or name in smooth else "-"
            handles.append(Line2D([], [], color=look.colour, marker=marker, linestyle=dashes, label=name))
        elif plot.swept and name in series:
            handles.append(Patch(color=look.colour, alpha=0.85, label=name))
    references = dict.fromkeys(
        name_and_unit(panel.reference)[0] for panel in traces if panel.reference and panel.references
    )
    return handles + [Line2D([], [], color="black", label=name, **REFERENCE) for name in references]


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
