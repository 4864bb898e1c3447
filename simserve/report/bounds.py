"""Bounds across the panels of metrics: a dashed line and what it stands for."""

from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text

from simserve.report.labels import name_and_unit, number
from simserve.report.series import Panel

GAP_POINTS = 3
"""From a bound to its label."""

LINE: Any = {"color": "black", "linestyle": "--", "linewidth": 0.8, "zorder": 2}
LABEL: Any = {"fontsize": 8, "ha": "center", "va": "center", "zorder": 5}

Which = Literal["x", "y"]


@dataclass(frozen=True, slots=True)
class BoundLabel:
    """The label of a bound, to be moved along it to where it hides the least."""

    text: Annotation
    axis: Which
    """The axis that the bound is a value of."""


def draw_bound(axes: Axes, which: Which, panel: Panel) -> list[BoundLabel]:
    """Draw the bound of a panel, if it has one, across the axis that its metric is on; return the label to be placed.

    A bound beyond the end of the axis has a label with an arrow there.
    """
    if panel.bound is None:
        return []
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    if low <= panel.bound <= high:
        (axes.axvline if which == "x" else axes.axhline)(panel.bound, **LINE)
    place = min(max(panel.bound, low), high)
    along: Any = axes.get_xaxis_transform() if which == "x" else axes.get_yaxis_transform()
    written = axes.annotate(
        bound_text(panel, which, low, high),
        (place, 0.5) if which == "x" else (0.5, place),
        xycoords=along,
        xytext=(0, 0),
        textcoords="offset points",
        **LABEL,
    )
    written.set_in_layout(False)
    outline(written)
    return [BoundLabel(written, which)]


def draw_bound_of_bars(axes: Axes, panel: Panel, row: float) -> None:
    """Draw the bound of a panel of horizontal bars, its label on a row of its own."""
    if panel.bound is None:
        return
    low, high = axes.get_xlim()
    text = bound_text(panel, "x", low, high)
    if not low <= panel.bound <= high:
        left = panel.bound < low
        beyond = LABEL | {"transform": axes.get_yaxis_transform(), "ha": "left" if left else "right"}
        axes.text(0.01 if left else 0.99, row, text, **beyond)
        return
    axes.axvline(panel.bound, **LINE)
    right = (axes.transScale + axes.transLimits).transform((panel.bound, row))[0] < 0.7
    axes.annotate(
        text,
        (panel.bound, row),
        xytext=(GAP_POINTS if right else -GAP_POINTS, 0),
        textcoords="offset points",
        **LABEL | {"ha": "left" if right else "right"},
    )


def bound_text(panel: Panel, which: Which, low: float, high: float) -> str:
    """Return what is written at a bound: its number and unit, and where it is if that is beyond the axis."""
    bound = panel.bound or 0.0
    unit = name_and_unit(panel.metric)[1] or panel.unit
    text = number(bound) + ("" if unit in ("", "count", "share") else f" {unit}")
    if low <= bound <= high:
        return text
    if bound < low:
        return f"← {text}" if which == "x" else f"{text} ↓"
    return f"{text} →" if which == "x" else f"{text} ↑"


def outline(text: Text) -> None:
    """Keep a text readable on top of lines."""
    text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
