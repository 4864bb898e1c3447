"""When requests arrive."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from simserve.spec import BareName, Rate, Spec


class Poisson(Spec):
    """A Poisson process: independent exponential gaps.

    The gaps are drawn at a rate of one and scaled, so that the same seed gives the same pattern at every rate.
    """

    kind: Literal["poisson"] = "poisson"
    rate_per_s: Rate

    def sample_s(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return `num_requests` arrival times in seconds, in order."""
        return np.cumsum(rng.standard_exponential(num_requests)) / self.rate_per_s


ArrivalSpec = Annotated[Poisson, BareName]
"""The arrival processes, told apart by `kind`."""
