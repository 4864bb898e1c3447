"""The simulation clock: SimPy's environment, with events at absolute times."""

from heapq import heappush

import simpy
from simpy.events import NORMAL


class At(simpy.Event):
    """An event that fires when the clock reads `time_s`, to the last digit.

    SimPy's `timeout(delay)` fires at now + delay, and now + (time - now) is not always the time: an arrival could
    fall on the wrong side of the iteration end that it coincides with.
    """

    def __init__(self, clock: "Clock", time_s: float) -> None:
        self.env = clock
        self.callbacks = []
        self._ok = True
        self._value = None
        heappush(clock._queue, (time_s, NORMAL, next(clock._eid), self))


class Clock(simpy.Environment):
    """A SimPy environment whose time is in seconds."""

    def at(self, time_s: float) -> At:
        """Return an event that fires at `time_s`."""
        return At(self, time_s)
