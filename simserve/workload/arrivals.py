"""When requests arrive."""

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simserve.spec import BareName, Duration, Rate, Spec


class Poisson(Spec):
    """A Poisson process: independent exponential gaps.

    The gaps are drawn at a rate of one and scaled, so that the same seed gives the same pattern at every rate.
    """

    kind: Literal["poisson"] = "poisson"
    rate_per_s: Rate

    def sample_s(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return `num_requests` arrival times in seconds, in order."""
        return np.cumsum(rng.standard_exponential(num_requests)) / self.rate_per_s


class Burst(Spec):
    """All at once: the queue never runs dry until the end."""

    kind: Literal["burst"] = "burst"
    at_s: Duration = 0.0

    def sample_s(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return `num_requests` times the same arrival time."""
        return np.full(num_requests, self.at_s)


class Listed(Spec):
    """Arrivals written out, for small examples."""

    kind: Literal["listed"] = "listed"
    at_s: Annotated[tuple[Duration, ...], Field(strict=False, min_length=1)]
    """When each request arrives, in order; a run takes as many as it has requests."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if list(self.at_s) != sorted(self.at_s):
            raise ValueError("at_s must be in order of time")
        return self

    def sample_s(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the first `num_requests` arrival times."""
        return np.array(self.at_s[:num_requests])


ArrivalSpec = Annotated[Annotated[Poisson | Burst | Listed, Field(discriminator="kind")], BareName]
"""The arrival processes, told apart by `kind`."""
