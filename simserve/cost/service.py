"""How long the batches of one replica take: its profile, stretched by disturbances, speed and noise."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from simserve.cost.profile import LatencyProfile, largest_within
from simserve.spec import Duration, Spec, Whole

Factor = Annotated[float, Field(ge=1e-9, le=1e9)]
"""What a time can be stretched or shrunk by, and still be told from none and from for ever."""

Moment = Annotated[int, Whole, Field(ge=0)]


class Disturbance(Spec):
    """A while in which batches take longer: another job on the machine, or a garbage collection.

    It lasts from batch i up to, not including, batch j of the replica, or for batches that start from time t up to u.
    """

    batches: Annotated[tuple[Moment, Moment], Field(strict=False)] | None = None
    time_s: Annotated[tuple[Duration, Duration], Field(strict=False)] | None = None
    fixed: Factor = 1.0
    """Factor on the fixed part of the profile, `a_s` of a linear one."""
    per_query: Factor = 1.0
    """Factor on the part that grows with the batch, `b_s` of a linear profile."""
    pause_s: Duration = 0.0
    """Seconds in which the replica stands still, once for each batch."""

    @model_validator(mode="after")
    def _one_window(self) -> Self:
        if (self.batches is None) == (self.time_s is None):
            raise ValueError("give either batches or time_s, each as [from, to]")
        start, end = self.batches or self.time_s or (0, 0)
        if start >= end:
            raise ValueError(f"starts at {start:g} and ends at {end:g}: the end must be later")
        return self

    def is_on(self, batch: int, now_s: float) -> bool:
        """Whether it holds for a replica's batch of that number, from 0, which starts now."""
        if self.batches is not None:
            return self.batches[0] <= batch < self.batches[1]
        assert self.time_s is not None
        return self.time_s[0] <= now_s < self.time_s[1]


class Situation(NamedTuple):
    """What a replica's profile is stretched by at the moment."""

    fixed: float = 1.0
    per_query: float = 1.0
    pause_s: float = 0.0

    def computing_s(self, profile: LatencyProfile, batch_size: int) -> float:
        """Return the seconds of a batch, without noise and without the pause."""
        return self.fixed * profile.fixed_s + self.per_query * profile.variable_s(batch_size)

    def largest_batch(self, profile: LatencyProfile, target_s: float, speed: float = 1.0) -> int:
        """Return the size of the largest batch within the target, without noise; 0 if not even one query is."""
        slowness = 1.0 / speed
        return largest_within(target_s, lambda size: self.computing_s(profile, size) * slowness + self.pause_s)


CALM = Situation()


class ServiceTimes:
    """The service times of one replica, batch by batch."""

    def __init__(
        self,
        profile: LatencyProfile,
        disturbances: Sequence[Disturbance],
        noise: Iterator[float],
        speed: float = 1.0,
    ) -> None:
        self._profile = profile
        self._disturbances = disturbances
        self._noise = noise
        self._seconds_in: defaultdict[Situation, dict[int, float]] = defaultdict(dict)
        """Times without noise by batch size, as far as they have been asked for: profiles can be slow to compute."""
        self._seconds = self._seconds_in[CALM]
        """Those of the last batch's situation."""
        self._slowness = 1.0 / speed
        self.situation = CALM
        """How it was for the last batch."""
        self._batch = 0

    def draw_s(self, batch_size: int, now_s: float) -> float:
        """Return the seconds of the replica's next batch, which starts now; a pause is not subject to noise."""
        if self._disturbances:
            self.situation = self._situation(now_s)
            self._seconds = self._seconds_in[self.situation]
            self._batch += 1
        try:
            seconds = self._seconds[batch_size]
        except KeyError:
            seconds = self._seconds[batch_size] = self._without_noise_s(batch_size)
        return seconds * next(self._noise) + self.situation.pause_s

    def _without_noise_s(self, batch_size: int) -> float:
        return self.situation.computing_s(self._profile, batch_size) * self._slowness

    def _situation(self, now_s: float) -> Situation:
        """Return what all disturbances that are on now come to."""
        situation = CALM
        for disturbance in self._disturbances:
            if disturbance.is_on(self._batch, now_s):
                situation = Situation(
                    situation.fixed * disturbance.fixed,
                    situation.per_query * disturbance.per_query,
                    situation.pause_s + disturbance.pause_s,
                )
        return situation
