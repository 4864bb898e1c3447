"""Queue orders that make the most of a prefix cache (SGLang; Zheng et al., NeurIPS 2024, section 3).

`lpm` looks at what is cached now: who finds the longest prefix goes first. `dfs` looks at those who wait: next is who
shares most with the one before. Both may let somebody wait for long.
"""

import math
from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import Annotated, Literal, Protocol

import numpy as np
from pydantic import Field

from simserve.content import Content, common_tokens, leading, num_tokens
from simserve.request import Request
from simserve.scheduling.queue import WaitingQueue
from simserve.spec import Count, Spec, Whole
from simserve.workload import Workload


class Found(Protocol):
    """What a look into the cache finds."""

    @property
    def tokens(self) -> int:
        """The longest cached prefix."""


class PrefixLookup(Protocol):
    """A prefix cache, as far as an order needs it."""

    version: int
    """Grows whenever what is cached changes."""

    def match(self, content: Content, prompt_tokens: int) -> Found:
        """Return how much of the first `prompt_tokens` tokens of a text is cached."""


_SOMEBODY_LEFT = -1
"""No version of a cache."""


class LongestPrefixQueue:
    """The longest cached prefix goes first, ties by arrival; by arrival alone while more than `most_matched` wait.

    Keys change with the cache and with who waits, so they are found anew when the head is asked for: once in each
    scheduling step, as in SGLang (what the step itself admits and evicts counts in the next one), and again when
    somebody joins. A step is known by its time.
    """

    skip_ahead = 0
    newcomers_may_pass = True

    def __init__(self, cache: PrefixLookup, most_matched: int = 128, defer_tokens: int | None = None) -> None:
        self._cache = cache
        self._most_matched = most_matched
        self._defer_tokens = defer_tokens
        self._waiting: dict[int, Request] = {}
        self._arrived: list[int] = []
        """A heap of ids; it may hold some that have left."""
        self._line: list[int] = []
        """Ids of all who wait, whoever goes first at the end."""
        self._sorted_version: int | None = None
        """The version of the cache by which the line is sorted; None when it has to be sorted anew, `_SOMEBODY_LEFT`
        when it has to be in the next step: who was deferred for the one who left need not be any more."""
        self._step_s = -math.inf
        """The scheduling step for which the line holds, whatever happens to the cache meanwhile."""
        self._head_id = -1

    def push(self, request: Request) -> None:
        """Add a request."""
        self._waiting[request.id] = request
        heappush(self._arrived, request.id)
        self._sorted_version = None

    def head(self, now_s: float) -> Request:
        """Return who finds the longest prefix in the cache, or who came first where too many wait."""
        self._head_id = self._first() if len(self._waiting) > self._most_matched else self._best(now_s)
        return self._waiting[self._head_id]

    def _first(self) -> int:
        self._sorted_version = None
        while self._arrived[0] not in self._waiting:
            heappop(self._arrived)
        return self._arrived[0]

    def _best(self, now_s: float) -> int:
        same_step = self._sorted_version is not None and now_s == self._step_s
        if not same_step and self._sorted_version != self._cache.version:
            self._sort()
        self._step_s = now_s
        return self._line[-1]

    def _sort(self) -> None:
        """Sort those who wait by what they find in the cache, those who are deferred behind."""
        self._arrived = sorted(self._waiting)
        requests = [self._waiting[number] for number in self._arrived]
        matched = {r.id: self._cache.match(r.text(), r.prompt_tokens).tokens for r in requests}
        deferred = self._deferred(requests, matched)
        self._line = sorted(matched, key=lambda number: (number in deferred, -matched[number], number), reverse=True)
        self._sorted_version = self._cache.version

    def _deferred(self, requests: list[Request], matched: dict[int, int]) -> set[int]:
        """Return who had better wait until another has computed their prefix.

        That is who finds next to nothing in the cache, but shares as much with somebody who came before and finds
        nothing either. To share `defer_tokens` is to begin with the same `defer_tokens` tokens.
        """
        if (tokens := self._defer_tokens) is None:
            return set()
        deferred: set[int] = set()
        beginnings: set[Content] = set()
        for request in requests:
            if matched[request.id] > tokens:
                continue
            beginning = leading(request.text(), tokens)
            if beginning in beginnings:
                deferred.add(request.id)
            elif num_tokens(beginning) == tokens:
                beginnings.add(beginning)
        return deferred

    def pop(self) -> Request:
        """Take the request that `head` has just shown."""
        if self._sorted_version is not None:
            self._line.pop()
            self._sorted_version = _SOMEBODY_LEFT
        return self._waiting.pop(self._head_id)

    def put_back(self, request: Request) -> None:
        """Refuse: this queue skips nobody."""
        raise AssertionError(f"request {request.id} was skipped in a queue that skips nobody")

    def head_changes_s(self) -> float:
        """Return infinity: only what comes, goes and is cached changes the order, not time."""
        return math.inf

    def __len__(self) -> int:
        return len(self._waiting)


class DepthFirstQueue:
    """Next is who shares the longest prefix with the one taken before; where nobody shares any, who came first.

    That walks the tree of the waiting prompts depth first: what hangs on a branch is served before the branch is
    left, whoever joins it meanwhile included. O(log n) comparisons for each request: sorted by their segments, texts
    that begin alike lie side by side, so the nearest to a text is next to its place.

    SGLang's `dfs-weight` walks the tree of the cache anew in each step, heaviest branch first, and may leave a branch
    half way.
    """

    skip_ahead = 0
    newcomers_may_pass = True

    def __init__(self) -> None:
        self._sorted: list[tuple[Content, int]] = []
        """The text and id of all who wait, in the order of their segments."""
        self._waiting: dict[int, Request] = {}
        self._arrived: list[int] = []
        """A heap of ids; it may hold some that have left."""
        self._last: Content = ()
        """The text of the request taken before."""
        self._head_at = 0

    def push(self, request: Request) -> None:
        """Add a request."""
        insort(self._sorted, (request.text(), request.id))
        self._waiting[request.id] = request
        heappush(self._arrived, request.id)

    def head(self, now_s: float) -> Request:
        """Return who shares most with the one taken before, or who came first."""
        here = bisect_left(self._sorted, (self._last, 0))
        nearest = [i for i in (here - 1, here) if 0 <= i < len(self._sorted)]
        shared, _, at = max((common_tokens(self._last, self._sorted[i][0]), -self._sorted[i][1], i) for i in nearest)
        self._head_at = at if shared else self._place_of_first()
        return self._waiting[self._sorted[self._head_at][1]]

    def _place_of_first(self) -> int:
        while self._arrived[0] not in self._waiting:
            heappop(self._arrived)
        first = self._waiting[self._arrived[0]]
        return bisect_left(self._sorted, (first.text(), first.id))

    def pop(self) -> Request:
        """Take the request that `head` has just shown."""
        self._last, number = self._sorted.pop(self._head_at)
        return self._waiting.pop(number)

    def put_back(self, request: Request) -> None:
        """Refuse: this queue skips nobody."""
        raise AssertionError(f"request {request.id} was skipped in a queue that skips nobody")

    def head_changes_s(self) -> float:
        """Return infinity: the order does not change by itself."""
        return math.inf

    def __len__(self) -> int:
        return len(self._waiting)


class LongestPrefix(Spec):
    """Longest cached prefix first (SGLang's `lpm`)."""

    kind: Literal["lpm"] = "lpm"
    most_matched: Annotated[int, Whole, Field(ge=0)] = 128
    """While more than this wait, first come, first served: matching them all takes too long. SGLang: 128."""
    defer_tokens: Count | None = 32
    """Who finds no more than this in the cache, but shares as much with another who waits, goes last, so that one
    request computes the prefix for all. SGLang: 32; null defers nobody."""

    def prefix_queue(self, cache: PrefixLookup) -> WaitingQueue:
        """Return an empty queue that looks into `cache`."""
        return LongestPrefixQueue(cache, self.most_matched, self.defer_tokens)


class DepthFirst(Spec):
    """Depth first through the tree of the waiting prompts."""

    kind: Literal["dfs"] = "dfs"

    def queue(self, workload: Workload, rng: np.random.Generator) -> WaitingQueue:
        """Return an empty queue; it needs no look into the cache."""
        return DepthFirstQueue()
