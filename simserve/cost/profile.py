"""Latency profiles: how long a model takes for a batch, as a function of its size (Clipper, NSDI 2017, section 4.3).

Every profile is a fixed part and one that grows with the batch, so that a disturbance can stretch either.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simserve.batch import Batch
from simserve.catalog import Hardware, NamedModel
from simserve.columns import read_column
from simserve.cost.linear import Linear
from simserve.cost.roofline import Roofline
from simserve.spec import BareName, Count, Duration, FilePath, Spec

SHORTEST_SERVICE_S = 1e-9
"""A batch takes some time."""

LARGEST_BATCH = 10_000_000

ROUNDING = 1e-12
"""By what share a time may pass a bound and still keep it: what sums of decimal fractions are off by."""


def within(time_s: float, bound_s: float) -> bool:
    """Whether a time keeps a bound, a time that equals it in decimal arithmetic included."""
    return time_s <= bound_s * (1 + ROUNDING)


def largest_within(target_s: float, latency_s: Callable[[int], float]) -> int:
    """Return the largest batch size whose latency, which never falls with the size, keeps the target; 0 for none."""
    return bisect_left(range(1, LARGEST_BATCH + 1), True, key=lambda size: not within(latency_s(size), target_s))


class LatencyProfile(Spec):
    """Seconds of a batch by its size."""

    kind: str

    @property
    @abstractmethod
    def fixed_s(self) -> float:
        """Seconds of every batch, whatever its size."""

    @abstractmethod
    def variable_s(self, batch_size: int) -> float:
        """Return the seconds that come on top for a batch of this size; never fewer for a larger one."""

    def latency_s(self, batch_size: int) -> float:
        """Return the seconds of a batch."""
        return self.fixed_s + self.variable_s(batch_size)

    def largest_batch(self, target_s: float) -> int:
        """Return the size of the largest batch that takes at most `target_s`; 0 if not even one query does."""
        return largest_within(target_s, self.latency_s)


class LinearProfile(LatencyProfile):
    """A straight line, `a_s + b_s * batch`: what the Clipper paper found for many frameworks."""

    kind: Literal["linear"] = "linear"
    a_s: Duration
    """Fixed cost of a batch."""
    b_s: Duration
    """Cost of each query in it."""

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.a_s + self.b_s < SHORTEST_SERVICE_S:
            raise ValueError(f"a batch must take time: a_s and b_s together at least {SHORTEST_SERVICE_S:g}")
        return self

    @property
    def fixed_s(self) -> float:
        """Return `a_s`."""
        return self.a_s

    def variable_s(self, batch_size: int) -> float:
        """Return `b_s` for each query."""
        return self.b_s * batch_size


def _check_points(points: NDArray[np.float64]) -> None:
    """Raise ValueError for points that are no latency profile."""
    sizes, latencies_s = points.T
    if len(points) < 2 or not np.isfinite(points).all():
        raise ValueError("a profile needs at least two points, each a batch size and its latency in seconds")
    if not (sizes[0] >= 1 and np.all(np.diff(sizes) > 0) and np.all(np.diff(latencies_s) >= 0)):
        raise ValueError("batch sizes must rise from 1 or more, and latencies must not fall")
    if latencies_s[0] < SHORTEST_SERVICE_S:
        raise ValueError(f"a batch must take time: latencies of at least {SHORTEST_SERVICE_S:g} s")


class _Interpolated(LatencyProfile):
    """Straight lines between points; beyond the last the last line goes on, before the first it is as at the first."""

    @property
    @abstractmethod
    def _points(self) -> NDArray[np.float64]:
        """Rows of (batch size, seconds)."""

    @property
    def fixed_s(self) -> float:
        """Return where the first line meets batch size 0, but not below 0."""
        (size, latency_s), (next_size, next_s) = self._points[:2]
        return max(0.0, float(latency_s - size * (next_s - latency_s) / (next_size - size)))

    def variable_s(self, batch_size: int) -> float:
        """Return what the points say, above the fixed part."""
        sizes, latencies_s = self._points.T
        latency_s = float(np.interp(batch_size, sizes, latencies_s))
        if batch_size > sizes[-1]:
            slope = (latencies_s[-1] - latencies_s[-2]) / (sizes[-1] - sizes[-2])
            latency_s += float((batch_size - sizes[-1]) * slope)
        return latency_s - self.fixed_s


class PiecewiseProfile(_Interpolated):
    """Straight lines between points that are written out."""

    kind: Literal["piecewise"] = "piecewise"
    points: Annotated[tuple[Annotated[tuple[Count, Duration], Field(strict=False)], ...], Field(strict=False)]
    """Pairs of batch size and seconds, sizes rising."""

    @property
    def _points(self) -> NDArray[np.float64]:
        return np.array(self.points, dtype=np.float64).reshape(-1, 2)

    @model_validator(mode="after")
    def _are_a_profile(self) -> Self:
        _check_points(self._points)
        return self


class MeasuredProfile(_Interpolated):
    """Straight lines between measured points, from a CSV file."""

    kind: Literal["measured"] = "measured"
    path: FilePath
    """A CSV file with a header; relative paths start at the scenario's folder."""
    batch_column: str = "batch"
    latency_column: str = "latency_s"
    seconds_per_unit: Annotated[float, Field(gt=0)] = 1.0
    """0.001 where the column holds milliseconds."""

    @property
    def _points(self) -> NDArray[np.float64]:
        sizes = read_column(self.path, self.batch_column)
        latencies = read_column(self.path, self.latency_column)
        return np.stack((sizes, latencies * self.seconds_per_unit), axis=1)

    @model_validator(mode="after")
    def _are_a_profile(self) -> Self:
        points = self._points
        if len(wrong := np.flatnonzero(~np.isfinite(points).all(axis=1))):
            columns = f"{self.batch_column} and {self.latency_column}"
            raise ValueError(f"{self.path}: row {wrong[0] + 1} below the header needs a number for each of {columns}")
        try:
            _check_points(points)
        except ValueError as fault:
            raise ValueError(f"{self.path}: {fault}") from None
        return self


class DecodeProfile(LatencyProfile):
    """One decoding step of a language model: the batch is the sequences that get a token each."""

    kind: Literal["decode"] = "decode"
    model: NamedModel
    hardware: Hardware = Hardware()
    cost: Annotated[Annotated[Roofline | Linear, Field(discriminator="kind")], BareName] = Roofline()
    context_tokens: Annotated[Count, Field(le=10_000_000)]
    """Past tokens of each sequence, whose KV the step reads."""

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        self.hardware.check_fits(self.model)
        return self

    def latency_s(self, batch_size: int) -> float:
        """Return the seconds of the step."""
        step = Batch((), 0, batch_size, batch_size * self.context_tokens)
        return self.cost.price(self.model, self.hardware).iteration_s(step)

    @property
    def fixed_s(self) -> float:
        """Return what a step with no sequence would take: the reading of the weights."""
        return self.latency_s(0)

    def variable_s(self, batch_size: int) -> float:
        """Return what the sequences add."""
        return self.latency_s(batch_size) - self.fixed_s


ProfileSpec = Annotated[LinearProfile | PiecewiseProfile | MeasuredProfile | DecodeProfile, Field(discriminator="kind")]
"""The latency profiles, told apart by `kind`."""
