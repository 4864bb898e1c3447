"""The waiting queue. Its head goes first, and is not skipped unless the order says so."""

import math
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from simserve.request import Request


class WaitingQueue(Protocol):
    """Requests that wait for admission."""

    skip_ahead: int
    """How many requests behind a head that does not fit may be tried in its place."""

    @property
    def newcomers_may_pass(self) -> bool:
        """Whether a request that joins a queue that is not empty may be admitted before those in it."""

    def push(self, request: Request) -> None:
        """Add a request."""

    def head(self, now_s: float) -> Request:
        """Return the request that goes next, and leave it there. The queue must not be empty."""

    def pop(self) -> Request:
        """Take the request that `head` has just shown."""

    def put_back(self, request: Request) -> None:
        """Give back a request that was taken only to look past it; asked of a queue that skips ahead."""

    def head_changes_s(self) -> float:
        """Return when another request becomes the head, by time alone; infinity for never."""

    def __len__(self) -> int: ...


class FCFSQueue(deque[Request]):
    """A line at a counter."""

    push = deque.append
    pop = deque.popleft
    put_back = deque.appendleft

    def __init__(self, skip_ahead: int = 0) -> None:
        super().__init__()
        self.skip_ahead = skip_ahead

    @property
    def newcomers_may_pass(self) -> bool:
        """Whether the line is so short that who joins it may be tried in the place of its head."""
        return len(self) <= self.skip_ahead

    def head(self, now_s: float) -> Request:
        """Return who is first in line."""
        return self[0]

    def head_changes_s(self) -> float:
        """Return infinity: a line does not change by itself."""
        return math.inf


class KeyedQueue:
    """The lowest key goes first, ties by arrival; but whoever has waited `max_wait_s` goes before, by arrival.

    O(log n) for each request: a heap by key, and where there is a longest wait, a line by arrival beside it. A request
    taken from one is left in the other until it surfaces there.
    """

    skip_ahead = 0
    newcomers_may_pass = True

    def __init__(self, key: Callable[[Request], Any], max_wait_s: float = math.inf) -> None:
        self._key = key
        self._max_wait_s = max_wait_s
        self._heap: list[tuple[Any, int, Request]] = []
        self._line: deque[Request] = deque()
        self._gone_from_heap: set[int] = set()
        self._gone_from_line: set[int] = set()
        self._length = 0
        self._head_is_overdue = False

    def push(self, request: Request) -> None:
        """Add a request."""
        heappush(self._heap, (self._key(request), request.id, request))
        if self._max_wait_s < math.inf:
            self._line.append(request)
        self._length += 1

    def head(self, now_s: float) -> Request:
        """Return the longest overdue request, or that with the lowest key."""
        self._head_is_overdue = bool(self._line) and now_s >= self._line[0].arrival_s + self._max_wait_s
        return self._line[0] if self._head_is_overdue else self._heap[0][2]

    def pop(self) -> Request:
        """Take the request that `head` has just shown."""
        if self._head_is_overdue:
            request = self._line.popleft()
            self._gone_from_heap.add(request.id)
        else:
            request = heappop(self._heap)[2]
            if self._line:
                self._gone_from_line.add(request.id)
        self._length -= 1
        while self._heap and self._heap[0][1] in self._gone_from_heap:
            self._gone_from_heap.remove(heappop(self._heap)[1])
        while self._line and self._line[0].id in self._gone_from_line:
            self._gone_from_line.remove(self._line.popleft().id)
        return request

    def put_back(self, request: Request) -> None:
        """Refuse: a queue by key skips nobody."""
        raise AssertionError(f"request {request.id} was skipped in a queue that skips nobody")

    def head_changes_s(self) -> float:
        """Return when the longest waiting request becomes overdue."""
        if not self._line or self._head_is_overdue:
            return math.inf
        return self._line[0].arrival_s + self._max_wait_s

    def __len__(self) -> int:
        return self._length
