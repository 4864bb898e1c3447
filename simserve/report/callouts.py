"""Where labels of points and of bounds go: beside them, where they hide the least."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from simserve.report.bounds import BoundLabel

GAP_POINTS = 7
"""From a point to its label."""

SAME_PLACE_POINTS = 8
"""Equal labels of points closer than this are one."""

STEP_PIXELS = 4
"""How densely lines are seen."""

POINTS_PER_IN = 72

BOUND_GAP_POINTS = 4.5
"""From a bound to its label."""

MARKER_POINTS = 4
"""How far a mark goes beyond the line that it is on; less than the gap, or a bound itself would be in the way."""

PLACES = 15
"""How many places along a bound are tried for its label."""


def place_beside(axes: Axes, labels: Sequence[Annotation], dpi: float) -> None:
    """Move labels that stand on their points beside them; the figure must have been laid out at `dpi`.

    Of equal labels of points in one place only the first is kept, in black, for all of them.
    """
    point = dpi / POINTS_PER_IN
    lines = _along_lines(axes)
    taken: list[Bbox] = []
    kept: list[tuple[Annotation, Any]] = []
    for label in labels:
        place = axes.transData.transform(label.xy)
        near = (other for other, there in kept if math.dist(place, there) < SAME_PLACE_POINTS * point)
        if same := next((other for other in near if other.get_text() == label.get_text()), None):
            same.set_color("black")
            label.remove()
            continue
        box = label.get_window_extent()
        moves = list(_moves(box.width / 2, box.height / 2, GAP_POINTS * point))
        _, best = min((_hidden(box.translated(*move), lines, taken, axes.bbox), i) for i, move in enumerate(moves))
        taken.append(box.translated(*moves[best]))
        kept.append((label, place))
        label.set_position((moves[best][0] / point, moves[best][1] / point))


def place_along(axes: Axes, labels: Sequence[BoundLabel], dpi: float) -> None:
    """Move labels along their bounds, to either side; the figure must have been laid out at `dpi`."""
    lines, marker = _along_lines(axes), MARKER_POINTS * dpi / POINTS_PER_IN
    inside = axes.bbox.padded(marker)
    for label in labels:
        written = label.text
        others = [text.get_window_extent() for text in axes.texts if text is not written]
        box = written.get_window_extent()
        moved = [box.translated(*move) for move in _moves_along(axes, box, label.axis, dpi / POINTS_PER_IN)]
        _, best = min((_hidden(there.padded(marker), lines, others, inside), i) for i, there in enumerate(moved))
        x, y = (moved[best].x0 - box.x0) * POINTS_PER_IN / dpi, (moved[best].y0 - box.y0) * POINTS_PER_IN / dpi
        written.set_position((x, y))


def _moves_along(axes: Axes, box: Bbox, across: str, point: float) -> Iterator[tuple[float, float]]:
    """Yield the moves of a label that stands on the middle of a bound: first above or right of it, from its far end."""
    slack = (axes.bbox.width - box.width if across == "y" else axes.bbox.height - box.height) / 2 - 2 * point
    reach = (box.height if across == "y" else box.width) / 2 + BOUND_GAP_POINTS * point
    for side, share in product((reach, -reach), np.linspace(1, -1, PLACES).tolist()):
        yield (share * slack, side) if across == "y" else (side, share * slack)


def _moves(half_width: float, half_height: float, gap: float) -> Iterator[tuple[float, float]]:
    """Yield the moves from a point to around it, the more usual first."""
    for right, up in ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
        reach = gap if right == 0 or up == 0 else 0.6 * gap
        yield right * (half_width + reach), up * (half_height + reach)


def _hidden(box: Bbox, lines: "np.ndarray[Any, Any]", taken: Sequence[Bbox], inside: Bbox) -> float:
    """Return how bad it would be to have a label there."""
    x, y = lines.T
    crossed = np.count_nonzero((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1))
    outside = box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1
    return float(crossed + 50 * sum(box.overlaps(other) for other in taken) + 200 * outside)


def _along_lines(axes: Axes) -> "np.ndarray[Any, Any]":
    """Return dots along all lines of a panel, in pixels."""
    dots = []
    for line in axes.lines:
        corners = line.get_transform().transform(np.asarray(line.get_xydata()))  # a bound's goes from side to side
        dots.append(corners)
        for start, end in pairwise(corners):
            steps = np.arange(0, 1, STEP_PIXELS / max(math.dist(start, end), STEP_PIXELS))[:, np.newaxis]
            dots.append(start + steps * (end - start))
    return np.concatenate(dots)
