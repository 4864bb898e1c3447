"""Charts of who runs in which iteration, from schedule.csv: as lines of text, and drawn."""

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from simserve.report.series import swept_columns, variant
from simserve.report.style import COLOURS, WIDTH_IN

PHASES = {
    "P": ("prefill", COLOURS[1]),
    "D": ("decode", COLOURS[0]),
    "-": ("idle seat", "0.75"),
    ".": ("waiting", "0.93"),
}
"""What each phase is called, and its colour."""

ROW_IN = 0.3
SMALLEST_LETTER = 60
"""With more iterations than this, letters would not fit into their cells."""

Chart = list[tuple[str, str]]
"""A label and a row of phases for each request; a blank where it is not there."""


def charts_of(schedule: pd.DataFrame) -> Iterator[tuple[str, Chart]]:
    """Yield the chart of each system at each point of the sweep, of the first replication."""
    first = schedule[schedule["replication"] == 0]
    swept = swept_columns(schedule, before="replication")
    for (system, *values), rows in first.groupby(["system", *swept], sort=False, dropna=False):
        words = variant(str(system), dict(zip(swept, values, strict=True)))
        yield (
            ", ".join(filter(None, (str(system), words))),
            [(f"r{request}", _row(cells)) for request, cells in rows.groupby("request_id")],
        )


def _row(cells: pd.DataFrame) -> str:
    row = [" "] * (int(cells["iteration"].max()) + 1)
    for iteration, phase in zip(cells["iteration"], cells["phase"], strict=True):
        row[int(iteration)] = str(phase)
    return "".join(row)


def chart_text(chart: Chart) -> str:
    """Return a chart as lines of text, the last digit of each iteration above it."""
    width = max(len(name) for name, _ in chart) + 2
    length = max(len(row) for _, row in chart)
    header = " " * width + "".join(str(iteration % 10) for iteration in range(length))
    return "\n".join([header, *(f"{name:{width}}{row}" for name, row in chart)])


def gantt_figure(schedule: pd.DataFrame, title: str) -> Figure:
    """Draw a chart for each system below each other, on one axis of iterations."""
    charts = list(charts_of(schedule))
    heights = [len(chart) for _, chart in charts]
    figure = Figure(
        figsize=(WIDTH_IN, 1.2 + sum(0.5 + ROW_IN * rows for rows in heights)),
        layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08),
    )
    figure.suptitle(title)
    panels = figure.subplots(len(charts), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (system, chart) in zip(panels, charts, strict=True):
        _draw_chart(axes, chart)
        iterations = len({i for _, row in chart for i, phase in enumerate(row) if phase in "PD"})
        axes.set_title(f"{system}: {iterations} iterations", loc="left")
    panels[-1].set_xlabel("iteration")
    longest = max(len(row) for _, chart in charts for _, row in chart)
    panels[-1].set_xlim(0, longest)
    panels[-1].xaxis.set_major_locator(MaxNLocator(20, integer=True))
    handles = [Patch(color=colour, label=f"{phase}  {name}") for phase, (name, colour) in PHASES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_chart(axes: Axes, chart: Chart) -> None:
    letters = max(len(row) for _, row in chart) <= SMALLEST_LETTER
    for y, (_, row) in enumerate(chart):
        for phase, (_, colour) in PHASES.items():
            cells = [(iteration, 1) for iteration, found in enumerate(row) if found == phase]
            axes.broken_barh(
                cells, (y - 0.42, 0.84), facecolor=colour, edgecolor="white", linewidth=0.8 if letters else 0.0
            )
        if letters:
            for iteration, phase in enumerate(row.replace(" ", "")):
                x = iteration + len(row) - len(row.lstrip()) + 0.5
                colour = "white" if phase in "PD" else "0.3"
                axes.text(x, y, phase, ha="center", va="center", fontsize=8, color=colour)
    axes.set_yticks(range(len(chart)), [name for name, _ in chart])
    axes.set_ylim(len(chart) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.tick_params(left=False)
