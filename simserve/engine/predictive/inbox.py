"""Where queries wait for a worker of their model."""

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np
import simpy

from simserve.cost import within
from simserve.engine.clock import Clock
from simserve.memory import ClockCache
from simserve.query_records import QueryLog
from simserve.workload import Queries


class Inbox(Protocol):
    """Queries in order of arrival, for the workers of one model."""

    waiting: deque[int]

    def refresh(self, now_s: float) -> None:
        """Let in what has arrived by now."""

    def next_arrival(self) -> simpy.Event | None:
        """Return an event when the next query comes; None if none will."""

    def more(self, wanted: int, until_s: float) -> simpy.Event:
        """Return an event when `wanted` queries may wait, and at `until_s` at the latest.

        It may come too soon, where other workers or the cache take queries, but not too late: look, and ask again.
        """

    def bury(self, now_s: float) -> None:
        """Drop those at the head of the line whose deadline has passed."""

    def take(self, limit: int, now_s: float) -> list[int]:
        """Take up to `limit` queries; those whose deadline has passed are dropped, and may leave none."""

    def slack_s(self, now_s: float) -> float:
        """Return how long until the deadline of the first in line that can still be answered; infinity without one."""

    def head_s(self) -> float:
        """Return when the first in line arrived."""

    def done(self, taken: list[int], now_s: float) -> None:
        """Note that these have been answered now."""


class ArrivalInbox:
    """Filled from a list of arrivals that is known beforehand, so that a busy worker is not woken for each.

    **Same-time rule**: a query that arrives at exactly the instant a batch ends is there for the next.
    """

    def __init__(self, clock: Clock, queries: Queries, log: QueryLog) -> None:
        self._clock = clock
        self._log = log
        self._arrival_s: list[float] = [*queries.arrival_s.tolist(), math.inf]
        patient = bool(np.isinf(queries.deadline_s).all())
        self._deadline_s: list[float] | None = None if patient else queries.deadline_s.tolist()
        self._next = 0
        self.waiting: deque[int] = deque()

    def refresh(self, now_s: float) -> None:
        """Let in what has arrived by now."""
        arrival_s, query, waiting = self._arrival_s, self._next, self.waiting
        while arrival_s[query] <= now_s:
            waiting.append(query)
            query += 1
        self._next = query

    def next_arrival(self) -> simpy.Event | None:
        """Return an event at the next arrival; None after the last."""
        arrival_s = self._arrival_s[self._next]
        return self._clock.at(arrival_s) if arrival_s < math.inf else None

    def more(self, wanted: int, until_s: float) -> simpy.Event:
        """Return an event at the arrival that could be the last one wanted, or at `until_s`."""
        last = min(self._next + wanted - len(self.waiting), len(self._arrival_s)) - 1
        return self._clock.at(min(self._arrival_s[last], until_s))

    def take(self, limit: int, now_s: float) -> list[int]:
        """Take the first in line."""
        waiting = self.waiting
        if self._deadline_s is None:
            leave = waiting.popleft
            return [leave()] if limit == 1 else [leave() for _ in range(min(limit, len(waiting)))]
        taken: list[int] = []
        while waiting and len(taken) < limit:
            query = waiting.popleft()
            if self._is_dead(query, now_s):
                self._drop(query)
            else:
                taken.append(query)
        return taken

    def _is_dead(self, query: int, now_s: float) -> bool:
        """Whether an answer is worth nothing any more; at exactly the deadline it still is."""
        return self._deadline_s is not None and not within(now_s, self._deadline_s[query])

    def bury(self, now_s: float) -> None:
        """Drop those at the head of the line whose deadline has passed: they are no company for a batch."""
        if self._deadline_s is not None:  # asked before every batch
            while self.waiting and self._is_dead(self.waiting[0], now_s):
                self._drop(self.waiting.popleft())

    def _drop(self, query: int) -> None:
        self._log.expired.append(query)

    def slack_s(self, now_s: float) -> float:
        """Return how long until the first in line is worth nothing; who is that already will not be taken."""
        if self._deadline_s is None:
            return math.inf
        deadlines_s = (self._deadline_s[query] for query in self.waiting)
        return next((deadline_s for deadline_s in deadlines_s if within(now_s, deadline_s)), math.inf) - now_s

    def head_s(self) -> float:
        """Return when the first in line arrived."""
        return self._arrival_s[self.waiting[0]]

    def done(self, taken: list[int], now_s: float) -> None:
        """Note nothing."""


class CachedInbox(ArrivalInbox):
    """An inbox behind a cache: a query whose answer is there, or under way, does not wait for a worker of its own."""

    def __init__(self, clock: Clock, queries: Queries, log: QueryLog, cache: ClockCache) -> None:
        super().__init__(clock, queries, log)
        self._key = queries.key.tolist()
        self._cache = cache

    def refresh(self, now_s: float) -> None:
        """Let in what has arrived by now and is not answered by another."""
        arrival_s, look_up, key = self._arrival_s, self._cache.look_up, self._key
        while arrival_s[self._next] <= now_s:
            query = self._next
            self._next += 1
            leader = look_up(key[query])
            if leader is None:
                self._cache.insert(key[query], query)
                self.waiting.append(query)
            else:
                self._log.answered_by[query] = leader
                if self._deadline_s is not None:  # who is joined is worth an answer as long as any of them
                    self._deadline_s[leader] = max(self._deadline_s[leader], self._deadline_s[query])

    def _drop(self, query: int) -> None:
        super()._drop(query)
        self._cache.forget(self._key[query], query)

    def done(self, taken: list[int], now_s: float) -> None:
        """Note that these answers are there from now on; who came before found them under way."""
        self.refresh(now_s)
        for query in taken:
            self._cache.answered(self._key[query], query)


class MailInbox:
    """Filled by whoever sends queries: the selection layer before several models.

    The same-time rule holds here too: before a worker looks, `receive` lets the sender send what has arrived by now.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.receive: Callable[[float], None] = lambda now_s: None
        self._votes: dict[int, simpy.Event] = {}
        self._sent_s: dict[int, float] = {}
        self._wanting: list[tuple[int, float, simpy.Event]] = []
        self.waiting: deque[int] = deque()

    def send(self, query: int) -> simpy.Event:
        """Put a query in; return the event of its prediction."""
        now_s = self._clock.now
        vote = self._votes[query] = self._clock.event()
        self._sent_s[query] = now_s
        self.waiting.append(query)
        self._wanting = [entry for entry in self._wanting if entry[1] > now_s]  # the others have given up
        for wanted, _, enough in self._wanting:
            if len(self.waiting) >= wanted:
                enough.succeed()
        self._wanting = [entry for entry in self._wanting if not entry[2].triggered]
        return vote

    def refresh(self, now_s: float) -> None:
        """Let the sender send what has arrived by now."""
        self.receive(now_s)

    def next_arrival(self) -> simpy.Event:
        """Return an event when the next query is sent, if ever one is."""
        return self._enough(1, math.inf)

    def more(self, wanted: int, until_s: float) -> simpy.Event:
        """Return an event when that many wait, or at `until_s`."""
        return self._enough(wanted, until_s) | self._clock.at(until_s)

    def _enough(self, wanted: int, until_s: float) -> simpy.Event:
        enough = self._clock.event()
        self._wanting.append((wanted, until_s, enough))
        return enough

    def bury(self, now_s: float) -> None:
        """Do nothing: an ensemble drops nobody."""

    def take(self, limit: int, now_s: float) -> list[int]:
        """Take the first in line."""
        return [self.waiting.popleft() for _ in range(min(limit, len(self.waiting)))]

    def slack_s(self, now_s: float) -> float:
        """Return infinity: the selection layer does not tell its workers of deadlines."""
        return math.inf

    def head_s(self) -> float:
        """Return when the first in line was sent."""
        return self._sent_s[self.waiting[0]]

    def done(self, taken: list[int], now_s: float) -> None:
        """Hand the predictions over."""
        for query in taken:
            del self._sent_s[query]
            self._votes.pop(query).succeed()
