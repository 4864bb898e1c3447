"""Quantile regression: fit the tail of the latency over the batch size, and invert it at the target."""

import math
from collections import deque
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import linprog

from simserve.cost import within
from simserve.scheduling.controller.base import LARGEST_LIMIT, Controller, Learning, Unpadded
from simserve.spec import Count


class Quantile(Learning):
    """Fits a quantile of the latency as a line over the batch size, and inverts it at the target."""

    kind: Literal["quantile"] = "quantile"
    quantile: Annotated[float, Field(gt=0.5, lt=1)] = 0.99
    window: Annotated[Count, Field(ge=10, le=2000)] = 100
    """How many of the last batches are fitted."""
    refit_batches: Count = 10
    """Batches from one fit to the next."""
    spread: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """How far below the fitted limit batches are allowed to go, as a share of it: a line needs different sizes."""

    def controller(self, target_s: float, rng: np.random.Generator) -> Controller:
        """Return the controller."""
        return QuantileLimit(self, self.target * target_s)


class QuantileLimit(Unpadded):
    """Knows, from the last batches, how large one may be so that all but a few in a hundred are in time."""

    STEPS = 4
    """Sizes tried below the fitted limit, in turn."""
    REACH = 2.0
    """How many times the largest batch of the window a fit is trusted for."""

    def __init__(self, spec: Quantile, target_s: float) -> None:
        self._spec = spec
        self._target_s = target_s
        self._fitted = float(spec.initial)
        self._samples: deque[tuple[int, float]] = deque(maxlen=spec.window)
        self._observed = 0

    def limit(self, slack_s: float) -> int:
        """Return the fitted limit, or in turn a little less."""
        below = self._spec.spread * (self._observed % (self.STEPS + 1)) / self.STEPS
        return max(1, min(LARGEST_LIMIT, math.floor(self._fitted * (1 - below))))

    def observe(self, batch_size: int, service_s: float) -> None:
        """Remember the batch; at the start step up one by one, later fit now and then."""
        self._samples.append((batch_size, service_s))
        self._observed += 1
        if self._observed < self._spec.refit_batches:
            self._fitted += within(service_s, self._target_s)
        elif self._observed % self._spec.refit_batches == 0:
            self._fitted = max(1.0, self._inverted())

    def _inverted(self) -> float:
        """Return the batch size at which the fitted line meets the target."""
        sizes, seconds = np.array(self._samples).T
        largest = float(sizes.max())
        longer = max(largest + 1, largest * (1 + self._spec.spread))  # a larger batch, also where batches are small
        if sizes.min() == largest:  # no line through one size
            return longer if within(float(seconds.max()), self._target_s) else largest / 2
        fixed_s, per_query_s = fit_quantile(sizes, seconds, self._spec.quantile)
        if per_query_s <= 0:
            return longer if fixed_s < self._target_s else largest / 2
        return min((self._target_s - fixed_s) / per_query_s, self.REACH * largest)


def fit_quantile(x: NDArray[np.float64], y: NDArray[np.float64], quantile: float) -> tuple[float, float]:
    """Return intercept and slope of the line below which a share `quantile` of the points lies.

    Quantile regression (Koenker and Bassett, 1978) as a linear program: residuals above the line cost `quantile` each,
    those below cost the rest.
    """
    size, scale = len(x), float(np.max(y))
    weights = np.concatenate((np.zeros(2), np.full(size, quantile), np.full(size, 1 - quantile)))
    rows = np.hstack((np.ones((size, 1)), x[:, np.newaxis], np.eye(size), -np.eye(size)))
    bounds = [(None, None)] * 2 + [(0, None)] * (2 * size)
    solution = linprog(weights, A_eq=rows, b_eq=y / scale, bounds=bounds, method="highs")
    intercept, slope = np.asarray(solution.x)[:2] * scale
    return float(intercept), float(slope)
