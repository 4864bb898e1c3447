"""Goodput: the highest rate at which a system attains its SLO, found by bisection on the log scale."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Status = Literal["bracketed", "below_low", "above_high"]


@dataclass(frozen=True, slots=True)
class Bracket:
    """The outcome of a search: the highest value seen to attain, and the lowest seen not to."""

    low: float | None
    """None where even the lowest value searched does not attain."""
    high: float | None
    """None where even the highest value searched attains."""
    status: Status
    evaluations: int


def bisect(attains: Callable[[float], bool], low: float, high: float, rel_tol: float) -> Bracket:
    """Find where `attains` turns from true to false between `low` and `high`.

    Both ends are tried first, so that a bound never passes for a result. Then the geometric middle is tried until the
    two sides are within `rel_tol` of each other. Where `attains` is not monotone, one of its crossings is found.
    """
    if not attains(low):
        return Bracket(None, low, "below_low", 1)
    if attains(high):
        return Bracket(high, None, "above_high", 2)
    evaluations = 2
    while high / low > 1 + rel_tol:
        middle = math.sqrt(low * high)
        if not low < middle < high:  # no number lies between
            break
        if attains(middle):
            low = middle
        else:
            high = middle
        evaluations += 1
    return Bracket(low, high, "bracketed", evaluations)
