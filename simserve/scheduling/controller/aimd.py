"""A fixed limit, and Clipper's default: additive increase, multiplicative decrease."""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simserve.cost import within
from simserve.scheduling.controller.base import LARGEST_LIMIT, Controller, Learning, Limit, Unpadded
from simserve.spec import Count, Spec


class Fixed(Spec):
    """Always the same limit, tuned offline."""

    kind: Literal["fixed"] = "fixed"
    batch_size: Limit

    def controller(self, target_s: float, rng: np.random.Generator) -> Controller:
        """Return the controller."""
        return FixedLimit(self.batch_size)


class FixedLimit(Unpadded):
    """A number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def limit(self, slack_s: float) -> int:
        """Return the number."""
        return self._limit

    def observe(self, batch_size: int, service_s: float) -> None:
        """Learn nothing."""


class AIMD(Learning):
    """Additive increase, multiplicative decrease, as TCP finds its window."""

    kind: Literal["aimd"] = "aimd"
    increase: Count = 1
    """Added to the limit after a full batch within the target."""
    decrease: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """What the limit is multiplied by, and rounded down, after a batch beyond the target."""

    def controller(self, target_s: float, rng: np.random.Generator) -> Controller:
        """Return the controller."""
        return AIMDLimit(self, self.target * target_s)


class AIMDLimit(Unpadded):
    """Feels its way up to the target, and steps back when it has passed it.

    A batch with fewer queries than allowed shows nothing about the limit, so it raises nothing: without that the limit
    of an idle worker would grow for ever (TCP's congestion window validation, RFC 7661, has the same rule).
    """

    def __init__(self, spec: AIMD, target_s: float) -> None:
        self._increase = spec.increase
        self._decrease = spec.decrease
        self._target_s = target_s
        self._limit = spec.initial

    def limit(self, slack_s: float) -> int:
        """Return where it stands."""
        return self._limit

    def observe(self, batch_size: int, service_s: float) -> None:
        """Step up or back."""
        if not within(service_s, self._target_s):
            self._limit = max(1, math.floor(round(self._limit * self._decrease, 9)))  # 0.9 x 10 is 9
        elif batch_size >= self._limit:
            self._limit = min(self._limit + self._increase, LARGEST_LIMIT)
