"""The requests that are still to come."""

import math
from collections.abc import Iterable, Iterator

from simserve.request import Request


class Arrivals:
    """A known sequence of arrivals, from which an engine takes in what has come by the end of each iteration.

    One event for each arrival would say the same; but an engine with all seats taken need not be woken for each.

    **Same-time rule**: an arrival at exactly the instant an iteration ends is seen by the admission that follows.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._coming: Iterator[Request] = iter(requests)
        self._next = next(self._coming, None)
        self.next_s = self._next.arrival_s if self._next else math.inf
        """When the next one arrives; infinity after the last."""

    def take(self, now_s: float) -> list[Request]:
        """Take all that have arrived by `now_s`, that instant included."""
        taken: list[Request] = []
        request, coming = self._next, self._coming
        while request is not None and request.arrival_s <= now_s:
            taken.append(request)
            request = next(coming, None)
        self._next = request
        self.next_s = request.arrival_s if request else math.inf
        return taken
