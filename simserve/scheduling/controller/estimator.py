"""The estimator of Clipper's released code: explore sizes, then regress."""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simserve.scheduling.controller.base import LARGEST_LIMIT, Controller
from simserve.spec import Count, Fraction, Spec


class Estimator(Spec):
    """The policy of Clipper's released code, which is not that of its paper: explore sizes, then regress.

    The budget is a share of the time left until the first deadline. While it is longer than any batch has taken, larger
    sizes are explored; else the largest size whose mean latency and three standard deviations fit is computed from a
    ridge regression (ucbrise/clipper at 9f25e3f).
    """

    kind: Literal["estimator"] = "estimator"
    budget: Fraction = 0.92
    """Share of the slack that a batch may take."""
    samples_per_size: Count = 5
    """Batches of the largest size explored before a larger one is tried."""
    ridge: Annotated[float, Field(ge=0)] = 1e-3
    """Penalty of the regression on the slope, in squared queries."""

    def controller(self, target_s: float, rng: np.random.Generator) -> Controller:
        """Return the controller."""
        return EstimatorLimit(self, rng)


class EstimatorLimit:
    """Tries ever larger batches while there is time, padded with copies where queries are few."""

    DEVIATIONS = 3
    """How many standard deviations above the mean must fit."""
    BY_ONE_BELOW = 10
    """Below this size exploration goes up one by one."""
    GROWTH = (0.1, 0.05)
    """From there by this share of the size: mean and standard deviation."""

    def __init__(self, spec: Estimator, rng: np.random.Generator) -> None:
        self._spec = spec
        self._rng = rng
        self._explored = 1
        self._exploring = True
        self._longest_s = 0.0
        self._by_size: dict[int, _Moments] = {}

    def limit(self, slack_s: float) -> int:
        """Return the size to explore, or the largest that the regression allows."""
        budget_s = self._spec.budget * slack_s
        self._exploring = budget_s > self._longest_s or not self._by_size
        if not self._exploring:
            return max(1, min(LARGEST_LIMIT, math.floor(self._estimated(budget_s))))
        moments = self._by_size.get(self._explored)
        if moments is not None and moments.count >= self._spec.samples_per_size:
            self._explored = self._next_size()
        return self._explored

    def _next_size(self) -> int:
        if self._explored < self.BY_ONE_BELOW:
            return self._explored + 1
        growth = max(0.0, self._rng.normal(*self.GROWTH))
        return min(LARGEST_LIMIT, max(self._explored + 1, math.floor(self._explored * (1 + growth))))

    def _estimated(self, budget_s: float) -> float:
        """Return the size whose fitted mean and deviations take the budget."""
        sizes = np.array(list(self._by_size), dtype=np.float64)
        moments = list(self._by_size.values())
        counts = np.array([m.count for m in moments], dtype=np.float64)
        pooled = math.sqrt(sum(m.squares for m in moments) / max(1.0, float(np.sum(counts - 1))))
        highs_s = np.array([m.mean for m in moments]) + self.DEVIATIONS * pooled
        centre, level_s = np.average(sizes, weights=counts), np.average(highs_s, weights=counts)
        spread = float(np.sum(counts * (sizes - centre) ** 2)) + self._spec.ridge
        slope = float(np.sum(counts * (sizes - centre) * (highs_s - level_s))) / spread if spread > 0 else 0.0
        if slope <= 0:
            return float(sizes.max()) if level_s <= budget_s else 1.0
        return float(centre + (budget_s - level_s) / slope)

    def run_size(self, taken: int) -> int:
        """Return the size explored, padding a smaller batch; without exploration the size as it is."""
        return max(taken, self._explored) if self._exploring else taken

    def observe(self, batch_size: int, service_s: float) -> None:
        """Add to the moments of the size."""
        self._by_size.setdefault(batch_size, _Moments()).add(service_s)
        self._longest_s = max(self._longest_s, service_s)


class _Moments:
    """Count, mean and sum of squared deviations, one value at a time (Welford, 1962)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        off = value - self.mean
        self.mean += off / self.count
        self.squares += off * (value - self.mean)
