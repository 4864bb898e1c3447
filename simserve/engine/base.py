"""What every engine does: take in arrivals, admit from the head of the queue, run the group, let the finished leave.

One iteration costs O(admitted + finished), not O(batch): sequences that decode advance in lock-step, so the running
group is its size, its total context, and a calendar of who leaves after which iteration.

**Fast-forward**: between two moments that can change the group (a departure, an arrival that could be admitted, a
memory shortage) the iterations are a known series. They are computed at once and become one SimPy event; their times
are the same sums in the same order as step by step.
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

from simserve.batch import Batch
from simserve.cost import CostModel
from simserve.engine.arrivals import Arrivals
from simserve.engine.clock import Clock
from simserve.memory import Memory
from simserve.records import Log
from simserve.request import Request
from simserve.scheduling import WaitingQueue

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
        max_batch_size: int,
        fast_forward: bool = True,
    ) -> None:
        self._clock = clock
        self._arrivals = arrivals
        self._log = log
        self._cost = cost
        self._memory = memory
        self._queue = queue
        self._max_batch_size = max_batch_size
        self._longest_stretch = LONGEST_STRETCH if fast_forward else 1
        self._now_s = 0.0
        self._running = 0
        self._context_tokens = 0
        self._calendar: list[tuple[int, Request]] = []
        """A heap of (last iteration, request) of all running requests."""

    @abstractmethod
    def _doors_open(self) -> bool:
        """Whether waiting requests may be admitted now."""

    @abstractmethod
    def _enter_departures(self, admitted: list[Request], iteration: int) -> None:
        """Enter in the calendar after which iteration each newcomer leaves, if `iteration` computes its prompt."""

    def process(self) -> Generator[simpy.Event, Any, None]:
        """Serve until no request is left and none will come: the SimPy process of the engine."""
        while True:
            if self._arrivals.next_s <= self._now_s:
                self._take_in()
            admitted = self._admit()
            if self._running:
                next_s = self._prefill(admitted) if admitted else self._decode()
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

    def _admit(self) -> list[Request]:
        """Take requests from the head of the queue until seats or memory run out. The head is never skipped."""
        admitted: list[Request] = []
        queue, running = self._queue, self._running
        if queue and running < self._max_batch_size and self._doors_open():
            try_admit = self._memory.try_admit
            while queue and running < self._max_batch_size and try_admit(queue.head()):
                admitted.append(queue.pop())
                running += 1
            self._running = running
        return admitted

    def _prefill(self, admitted: list[Request]) -> float:
        """Run one iteration with the prompts of the newcomers and one token for everyone else; return its end."""
        log, iteration = self._log, self._log.iteration
        decoding, prompt_tokens, pieces = self._running - len(admitted), 0, []
        for request in admitted:
            log.admitted_iteration[request.id] = log.first_token_iteration[request.id] = iteration
            prompt_tokens += request.prompt_tokens
            pieces.append((request.prompt_tokens, 0))
        self._enter_departures(admitted, iteration)
        batch = Batch(pieces, len(admitted), decoding, self._context_tokens)
        end_s = self._now_s + self._cost.iteration_s(batch)
        self._context_tokens += prompt_tokens + decoding
        reserved = self._memory.reserved_tokens
        log.stretch(self._now_s, (end_s,), prompt_tokens, decoding, self._running, reserved, self._context_tokens)
        return end_s

    def _decode(self) -> float:
        """Decode until someone leaves or may come in; return the end of the last iteration."""
        sequences, context = self._running, self._context_tokens
        steps = min(self._calendar[0][0] - self._log.iteration + 1, self._longest_stretch)
        ends_s = self._ends_s(steps, self._undisturbed_until_s())
        steps = self._memory.grow(sequences, len(ends_s))
        ends_s = ends_s[:steps]
        self._context_tokens += steps * sequences
        reserved = self._memory.reserved_tokens
        self._log.stretch(self._now_s, ends_s, 0, sequences, sequences, reserved, context + sequences)
        return float(ends_s[-1])

    def _undisturbed_until_s(self) -> float:
        """Return until when no arrival can be admitted.

        That is for ever with all seats taken, the doors shut, or a head of the queue that does not fit: a newcomer
        would join behind it.
        """
        if self._running >= self._max_batch_size or self._queue or not self._doors_open():
            return math.inf
        return self._arrivals.next_s

    def _ends_s(self, steps: int, until_s: float) -> Sequence[float] | NDArray[np.float64]:
        """Return the ends of up to `steps` decoding iterations; the last is the first at or after `until_s`."""
        now_s, sequences, context = self._now_s, self._running, self._context_tokens
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
        log, calendar, iteration = self._log, self._calendar, self._log.iteration
        while calendar and calendar[0][0] < iteration:
            last, request = heappop(calendar)
            first = log.first_token_iteration[request.id]
            log.finish_iteration[request.id] = first + request.output_tokens - 1
            self._context_tokens -= request.prompt_tokens + last - first
            self._running -= 1
            self._memory.free(request)
