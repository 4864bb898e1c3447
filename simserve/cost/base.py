"""The protocol of a cost model."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simserve.batch import Batch

SHORTEST_ARRAY = 24
"""Iterations from which on a stretch is computed with arrays; below it a loop is faster. The numbers are the same."""

Seconds = Any
"""A number of seconds, or an array of them, as the arguments are."""


class CostModel(Protocol):
    """Prices iterations. The two methods agree to the last digit: fast-forward relies on it."""

    def iteration_s(self, batch: Batch) -> float:
        """Return the seconds of one iteration."""

    def decode_s(self, sequences: int, context_tokens: int, steps: int) -> Sequence[float] | NDArray[np.float64]:
        """Return the seconds of each of `steps` iterations that decode the same group.

        `context_tokens` is the group's context before the first; every iteration adds `sequences` to it.
        """
