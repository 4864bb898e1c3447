"""What every engine does: take in arrivals, admit from the head of the queue, run the group, let the finished leave.

One iteration costs O(admitted + finished), not O(batch): sequences that decode advance in lock-step, so the group is
its size, its total context, and a calendar of who leaves at which count of decoding iterations.

**Fast-forward**: between two moments that can change the group (a departure, an arrival or a new head of the queue that
could be admitted, a memory shortage) the iterations are a known series. They are computed at once and become one SimPy
event; their times are the same sums in the same order as step by step.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Generator, Sequence
from heapq import heappop
from itertools import accumulate
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from simserve.batch import Batch, Piece
from simserve.cost import CostModel
from simserve.engine.arrivals import Arrivals
from simserve.engine.clock import Clock
from simserve.memory import Memory
from simserve.records import Log
from simserve.request import Request
from simserve.scheduling import PrefillPlacement, WaitingQueue

LONGEST_STRETCH = 4096
"""Iterations computed at once at most: bounds memory, and what an arrival makes void."""


class Engine(ABC):
    """A GPU that serves a waiting queue, iteration by iteration.

    Subclasses say when the doors are open to newcomers and when one who came in leaves again.
    """

    def __init__(
        self,
        clock: Clock,
        arrivals: Arrivals,
        log: Log,
        cost: CostModel,
        memory: Memory,
        queue: WaitingQueue,
        placement: PrefillPlacement,
        max_batch_size: int,
        fast_forward: bool = True,
    ) -> None:
        self._clock = clock
        self._arrivals = arrivals
        self._log = log
        self._cost = cost
        self._memory = memory
        self._queue = queue
        self._prompt_budget = placement.prompt_budget
        self._decodes_pause = placement.pauses_decodes
        self._max_batch_size = max_batch_size
        self._longest_stretch = LONGEST_STRETCH if fast_forward else 1
        self._now_s = 0.0
        self._running = 0
        """Seats taken: the decoding group, and a request whose prompt is unfinished."""
        self._decoding = 0
        self._context_tokens = 0
        """KV tokens of the decoding group."""
        self._unfinished: tuple[Request, int] | None = None
        """A request whose prompt is computed in part, and how much of it."""
        self._decodes_done = 0
        """How many iterations have decoded: the group's own clock, which stands still while it pauses."""
        self._calendar: list[tuple[int, int, Request]] = []
        """A heap of (leaves, joined, request): decodes done when each member of the group leaves, and when it came."""

    @abstractmethod
    def _doors_open(self) -> bool:
        """Whether waiting requests may be admitted now."""

    @abstractmethod
    def _enter_departures(self, joined: list[Request], decodes_done: int) -> None:
        """Enter in the calendar at which count of decoding iterations each new member of the group leaves."""

    @abstractmethod
    def _finish_iteration(self, request: Request) -> int:
        """Return the iteration of a leaving request's last token."""

    def process(self) -> Generator[simpy.Event, Any, None]:
        """Serve until no request is left and none will come: the SimPy process of the engine."""
        while True:
            if self._arrivals.next_s <= self._now_s:
                self._take_in()
            pieces = self._compose()
            if pieces:
                next_s = self._prefill(pieces)
            elif self._decoding:
                next_s = self._decode()
            elif self._arrivals.next_s < math.inf:
                next_s = self._arrivals.next_s
            else:
                return
            yield self._clock.at(next_s)
            self._now_s = next_s
            self._retire()

    def _take_in(self) -> None:
        """Let what has arrived join the queue; a request that can never be admitted is turned away at once."""
        for request in self._arrivals.take(self._now_s):
            if why := self._memory.why_never(request):
                self._log.reject(request, why)
            else:
                self._queue.push(request)

    def _compose(self) -> list[Piece]:
        """Return the pieces of prompts that the next iteration computes, as far as its budget lasts.

        An unfinished prompt goes on first; then newcomers are admitted.
        """
        pieces: list[Piece] = []
        may_admit = self._queue and self._running < self._max_batch_size and self._doors_open()
        if may_admit or self._unfinished:
            limit = self._prompt_budget(self._decoding)
            budget = math.inf if limit is None else limit
            if self._unfinished and budget > 0:
                (request, past), self._unfinished = self._unfinished, None
                budget = self._cut_piece(pieces, request, past, budget)
            if may_admit:
                self._admit(pieces, budget)
        return pieces

    def _admit(self, pieces: list[Piece], budget: float) -> None:
        """Admit from the head of the queue until budget, seats or memory run out, and add the newcomers' pieces.

        A head that does not fit into memory is skipped only where the order says so.
        """
        queue, running = self._queue, self._running
        try_admit, now_s = self._memory.try_admit, self._now_s
        passed: list[Request] = []
        while budget > 0 and queue and running < self._max_batch_size:
            if try_admit(queue.head(now_s)):
                budget = self._cut_piece(pieces, queue.pop(), 0, budget)
                running += 1
            elif len(passed) < queue.skip_ahead:
                passed.append(queue.pop())
            else:
                break
        for request in reversed(passed):
            queue.put_back(request)
        self._running = running

    def _cut_piece(self, pieces: list[Piece], request: Request, past: int, budget: float) -> float:
        """Take as much of a prompt as the budget allows, and return what is left of the budget.

        What is cut short uses the budget up, so there is at most one unfinished prompt.
        """
        new = request.prompt_tokens - past
        if new > budget:
            new = int(budget)
            self._unfinished = (request, past + new)
        pieces.append((request, new, past))
        return budget - new

    def _prefill(self, pieces: list[Piece]) -> float:
        """Run one iteration with pieces of prompts, and a token for everyone in the group unless it pauses."""
        log, iteration = self._log, self._log.iteration
        decoding = 0 if self._decodes_pause else self._decoding
        joined: list[Request] = []
        new_tokens = joined_tokens = 0
        for request, new, past in pieces:
            new_tokens += new
            if not past:
                log.admitted_iteration[request.id] = iteration
            if new + past == request.prompt_tokens:
                log.first_token_iteration[request.id] = iteration
                joined_tokens += new + past
                joined.append(request)
        batch = Batch(pieces, len(joined), decoding, self._context_tokens if decoding else 0)
        end_s = self._now_s + self._cost.iteration_s(batch)

        if decoding:
            self._decodes_done += 1
        self._decoding += len(joined)
        self._context_tokens += joined_tokens + decoding
        self._enter_departures(joined, self._decodes_done)
        stored, reserved = self._context_tokens + self._unfinished_tokens(), self._memory.reserved_tokens
        log.stretch(self._now_s, (end_s,), new_tokens, decoding, self._running, reserved, stored)
        return end_s

    def _unfinished_tokens(self) -> int:
        """Return the KV tokens of the prompt that is computed in part."""
        return self._unfinished[1] if self._unfinished else 0

    def _decode(self) -> float:
        """Decode until someone leaves or may come in; return the end of the last iteration."""
        sequences, context = self._decoding, self._context_tokens
        steps = min(self._calendar[0][0] - self._decodes_done, self._longest_stretch)
        ends_s = self._ends_s(steps, self._undisturbed_until_s())
        steps = self._memory.grow(sequences, len(ends_s))
        ends_s = ends_s[:steps]
        self._context_tokens += steps * sequences
        self._decodes_done += steps
        stored, reserved = context + sequences + self._unfinished_tokens(), self._memory.reserved_tokens
        self._log.stretch(self._now_s, ends_s, 0, sequences, self._running, reserved, stored)
        return float(ends_s[-1])

    def _undisturbed_until_s(self) -> float:
        """Return until when nobody can be admitted, unless someone leaves.

        That is for ever with all seats taken, the doors shut, no budget for prompts, or a head of the queue that does
        not fit, if newcomers wait behind it; otherwise until the next arrival, or until time alone brings another head.
        """
        if self._running >= self._max_batch_size or not self._doors_open():
            return math.inf
        if (budget := self._prompt_budget(self._decoding)) is not None and budget <= 0:
            return math.inf
        if not self._queue:
            return self._arrivals.next_s
        if not self._queue.newcomers_may_pass:
            return math.inf
        return min(self._arrivals.next_s, self._queue.head_changes_s())

    def _ends_s(self, steps: int, until_s: float) -> Sequence[float] | NDArray[np.float64]:
        """Return the ends of up to `steps` decoding iterations; the last is the first at or after `until_s`."""
        now_s, sequences, context = self._now_s, self._decoding, self._context_tokens
        if steps > 1 and until_s < math.inf:
            (first_s,) = self._cost.decode_s(sequences, context, 1)
            steps = min(steps, int((until_s - now_s) / first_s) + 2)  # iterations only get longer
        durations_s = self._cost.decode_s(sequences, context, steps)
        ends_s: Sequence[float] | NDArray[np.float64]
        if isinstance(durations_s, np.ndarray):
            durations_s[0] += now_s
            ends_s = np.add.accumulate(durations_s)
        else:
            ends_s = list(accumulate(durations_s, initial=now_s))[1:]
        return ends_s if ends_s[-1] < until_s else ends_s[: bisect_left(ends_s, until_s) + 1]

    def _retire(self) -> None:
        """Let those leave whose last iteration has run."""
        log, calendar, done = self._log, self._calendar, self._decodes_done
        while calendar and calendar[0][0] <= done:
            leaves, joined, request = heappop(calendar)
            log.finish_iteration[request.id] = self._finish_iteration(request)
            self._context_tokens -= request.prompt_tokens + leaves - joined
            self._decoding -= 1
            self._running -= 1
            self._memory.free(request)
