"""What every engine does: take in arrivals, admit from the head of the queue, run the group, let the finished leave.

One iteration costs O(admitted + finished), not O(batch): see `Group`.

**Preemption**: before every iteration each member of the group must have room for its next token. While that is not so,
the latest arrival among the running gives its memory up and goes back to the front of the queue, and then nobody is
admitted in this iteration.

**Fast-forward**: between two moments that can change the group (a departure, an arrival or a new head of the queue that
could be admitted, a memory shortage) the iterations are a known series. They are computed at once and become one SimPy
event; their times are the same sums in the same order as step by step.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Generator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from simserve.batch import Batch, Piece
from simserve.cost import CostModel
from simserve.engine.arrivals import Arrivals
from simserve.engine.clock import Clock
from simserve.engine.group import Group
from simserve.memory import HostMemory, Memory
from simserve.records import Log
from simserve.request import Request
from simserve.scheduling import PreemptedFirst, PrefillPlacement, WaitingQueue

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
        host: HostMemory,
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
        self._host = host
        self._queue = PreemptedFirst(queue)
        self._prompt_budget = placement.prompt_budget
        self._decodes_pause = placement.pauses_decodes
        self._max_batch_size = max_batch_size
        self._longest_stretch = LONGEST_STRETCH if fast_forward else 1
        self._now_s = 0.0
        self._running = 0
        """Seats taken: the decoding group, and a request whose prompt is unfinished."""
        self._group = Group()
        self._unfinished: tuple[Request, int] | None = None
        """A request whose prompt is computed in part, and how much of it."""
        self._emitted: dict[int, int] = {}
        """Tokens that each preempted request had emitted, by request id: with its prompt, what it has to compute."""

    @abstractmethod
    def _doors_open(self) -> bool:
        """Whether waiting requests may be admitted now."""

    @abstractmethod
    def _tokens_to_run(self, joining: list[Request]) -> list[int]:
        """Return, for each of those who join the group together, after how many tokens of its own it leaves."""

    @abstractmethod
    def _finish_iteration(self, request: Request) -> int:
        """Return the iteration of a leaving request's last token."""

    def process(self) -> Generator[simpy.Event, Any, None]:
        """Serve until no request is left and none will come: the SimPy process of the engine."""
        while True:
            if self._arrivals.next_s <= self._now_s:
                self._take_in()
            preempted = not self._memory.can_grow()
            if preempted:
                self._preempt_until_all_can_grow()
            pieces = self._compose(may_admit=not preempted)
            if pieces:
                next_s = self._prefill(pieces)
            elif self._group.size:
                next_s = self._decode(1 if preempted else self._longest_stretch)
            else:
                next_s = self._next_event_s()
                if next_s == math.inf:
                    return
            yield self._clock.at(next_s)
            self._now_s = next_s
            self._retire()

    def _next_event_s(self) -> float:
        """Return when something happens without an iteration: an arrival, or a transfer that ends."""
        return min(self._arrivals.next_s, self._host.next_ready_s(self._now_s))

    def _take_in(self) -> None:
        """Let what has arrived join the queue; a request that can never be admitted is turned away at once."""
        for request in self._arrivals.take(self._now_s):
            if why := self._memory.why_never(request):
                self._log.reject(request, why)
            else:
                self._queue.push(request)

    def _preempt_until_all_can_grow(self) -> None:
        """Preempt the latest arrival among the running, until those who stay have room for their next tokens."""
        while not self._memory.can_grow():
            latest_id = self._group.latest_id()
            if self._unfinished and self._unfinished[0].id > latest_id:
                (request, stored), self._unfinished = self._unfinished, None
                self._preempt(request, stored, decoding=False)
            else:
                request, emitted = self._group.drop(latest_id)
                self._emitted[request.id] = emitted
                self._preempt(request, request.prompt_tokens + emitted - 1, decoding=True)

    def _preempt(self, request: Request, stored: int, decoding: bool) -> None:
        """Take its memory from a request that has `stored` tokens of KV, and give it back to the queue."""
        self._running -= 1
        self._memory.free(request)
        self._queue.give_back(request)
        swapped = self._host.try_store(request.id, stored, self._now_s)
        if swapped:
            cost_s = 2 * self._host.transfer_s(stored)
        else:
            cost_s = self._cost.iteration_s(Batch(((request, stored, 0),), 0, 0, 0))
        self._log.preempt(request, swapped, decoding, stored, cost_s)

    def _compose(self, may_admit: bool) -> list[Piece]:
        """Return the pieces of prompts that the next iteration computes, as far as its budget lasts.

        An unfinished prompt goes on first; then newcomers are admitted.
        """
        pieces: list[Piece] = []
        may_admit = may_admit and bool(self._queue) and self._running < self._max_batch_size and self._doors_open()
        if may_admit or self._unfinished:
            limit = self._prompt_budget(self._group.size)
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
        queue, running, now_s = self._queue, self._running, self._now_s
        passed: list[Request] = []
        while budget > 0 and queue and running < self._max_batch_size:
            request = queue.head(now_s)
            if self._comes_in(request):
                queue.pop()
                self._log.admit(request)
                budget = self._cut_piece(pieces, request, self._host.take_back(request.id), budget)
                running += 1
            elif len(passed) < queue.skip_ahead:
                passed.append(queue.pop())
            else:
                break
        for request in reversed(passed):
            queue.put_back(request)
        self._running = running

    def _comes_in(self, request: Request) -> bool:
        """Take room for a request, unless there is none, or its KV is still on its way between GPU and host."""
        if self._host.is_away(request.id, self._now_s):
            return False
        if self._memory.try_admit(request, self._tokens_to_compute(request)):
            return True
        self._log.refused.add(request.id)
        return False

    def _tokens_to_compute(self, request: Request) -> int:
        """Return the tokens whose KV a request must have to emit its next: the prompt, and what it has emitted."""
        return request.prompt_tokens + self._emitted.get(request.id, 0)

    def _cut_piece(self, pieces: list[Piece], request: Request, past: int, budget: float) -> float:
        """Take as much of a prompt as the budget allows, and return what is left of the budget.

        What is cut short uses the budget up, so there is at most one unfinished prompt.
        """
        new = self._tokens_to_compute(request) - past
        if new > budget:
            new = int(budget)
            self._unfinished = (request, past + new)
        pieces.append((request, new, past))
        return budget - new

    def _prefill(self, pieces: list[Piece]) -> float:
        """Run one iteration with pieces of prompts, and a token for everyone in the group unless it pauses."""
        group, memory = self._group, self._memory
        decoding = 0 if self._decodes_pause else group.size
        unfinished = self._unfinished[0].id if self._unfinished else None
        joining = [request for request, _, _ in pieces if request.id != unfinished]
        batch = Batch(pieces, len(joining), decoding, group.context_tokens if decoding else 0)
        end_s = self._now_s + self._host.take_stall_s() + self._cost.iteration_s(batch)

        held = memory.grow(1) if decoding else (memory.reserved_tokens,)
        if decoding:
            group.decode(1)
        self._join(joining)
        new_tokens, stored = sum(new for _, new, _ in pieces), group.context_tokens + self._unfinished_tokens()
        self._log.stretch(self._now_s, (end_s,), new_tokens, decoding, self._running, held, stored)
        return end_s

    def _join(self, joining: list[Request]) -> None:
        """Let those join the group whose prompts end in this iteration, with a token each."""
        for request, tokens_to_run in zip(joining, self._tokens_to_run(joining), strict=True):
            self._log.begin_tokens(request)
            self._memory.join(request)
            self._group.join(request, self._emitted.get(request.id, 0) + 1, tokens_to_run)

    def _unfinished_tokens(self) -> int:
        """Return the KV tokens of the prompt that is computed in part."""
        return self._unfinished[1] if self._unfinished else 0

    def _decode(self, longest: int) -> float:
        """Decode until someone leaves or may come in, or memory runs out; return the end of the last iteration."""
        group = self._group
        start_s = self._now_s + self._host.take_stall_s()
        ends_s = self._ends_s(start_s, min(group.undisturbed_steps, longest), self._undisturbed_until_s())
        held = self._memory.grow(len(ends_s))
        steps = len(held)
        ends_s = ends_s[:steps]
        stored = group.context_tokens + group.size + self._unfinished_tokens()
        self._log.stretch(self._now_s, ends_s, 0, group.size, self._running, held, stored)
        group.decode(steps)
        return float(ends_s[-1])

    def _undisturbed_until_s(self) -> float:
        """Return until when nobody can be admitted, unless someone leaves.

        That is for ever with all seats taken, the doors shut, no budget for prompts, or a head of the queue that does
        not fit, if newcomers wait behind it; otherwise until the next arrival, or until time alone brings another head
        or the KV of a swapped one.
        """
        if self._running >= self._max_batch_size or not self._doors_open():
            return math.inf
        if (budget := self._prompt_budget(self._group.size)) is not None and budget <= 0:
            return math.inf
        if not self._queue:
            return self._arrivals.next_s
        ready_s = self._host.next_ready_s(self._now_s)
        if not self._queue.newcomers_may_pass:
            return ready_s
        return min(self._arrivals.next_s, self._queue.head_changes_s(), ready_s)

    def _ends_s(self, start_s: float, steps: int, until_s: float) -> Sequence[float] | NDArray[np.float64]:
        """Return the ends of up to `steps` decoding iterations; the last is the first at or after `until_s`."""
        sequences, context = self._group.size, self._group.context_tokens
        if steps > 1 and until_s < math.inf:
            (first_s,) = self._cost.decode_s(sequences, context, 1)
            steps = min(steps, int((until_s - start_s) / first_s) + 2)  # iterations only get longer
        durations_s = self._cost.decode_s(sequences, context, steps)
        ends_s: Sequence[float] | NDArray[np.float64]
        if isinstance(durations_s, np.ndarray):
            durations_s[0] += start_s
            ends_s = np.add.accumulate(durations_s)
        else:
            ends_s = list(accumulate(durations_s, initial=start_s))[1:]
        return ends_s if ends_s[-1] < until_s else ends_s[: bisect_left(ends_s, until_s) + 1]

    def _retire(self) -> None:
        """Let those leave whose last iteration has run."""
        for request in self._group.leave():
            self._log.finish_iteration[request.id] = self._finish_iteration(request)
            self._running -= 1
            self._memory.free(request)
