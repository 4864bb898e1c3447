"""Noise: by what factor a batch takes longer or shorter than its profile says."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import repeat
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simserve.spec import BareName, Spec

CHUNK = 512
"""Factors drawn at once."""

SMALLEST = 0.01
"""No batch is a hundred times faster than its profile."""

Sigma = Annotated[float, Field(ge=0, le=10)]


class _Drawn(Spec):
    """Factors from a distribution."""

    @abstractmethod
    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return `size` factors."""

    def factors(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield a factor for each batch, without end."""
        while True:
            yield from self._draw(CHUNK, rng).tolist()


class NoNoise(Spec):
    """Every batch takes what its profile says."""

    kind: Literal["none"] = "none"

    def factors(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield 1 without end."""
        return repeat(1.0)


class NormalNoise(_Drawn):
    """1 + a normal variable; at least 0.01."""

    kind: Literal["normal"] = "normal"
    sigma: Sigma
    """Standard deviation, as a share of the latency."""

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return np.maximum(1 + self.sigma * rng.standard_normal(size), SMALLEST)


class LognormalNoise(_Drawn):
    """A lognormal factor of mean 1."""

    kind: Literal["lognormal"] = "lognormal"
    sigma: Sigma
    """Standard deviation of the factor's logarithm."""

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return np.exp(self.sigma * rng.standard_normal(size) - self.sigma**2 / 2)


class ExponentialNoise(_Drawn):
    """An exponential factor of mean 1: the memoryless service of queueing theory."""

    kind: Literal["exponential"] = "exponential"

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return rng.standard_exponential(size)


_Kinds = Annotated[NoNoise | NormalNoise | LognormalNoise | ExponentialNoise, Field(discriminator="kind")]
NoiseSpec = Annotated[_Kinds, BareName]
"""The kinds of noise, told apart by `kind`."""
