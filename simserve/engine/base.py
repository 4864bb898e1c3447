"""What every engine does: take in arrivals, admit from the head of the queue, run the group, let the finished leave.

One iteration costs O(admitted + finished), not O(batch): see `Group`.

**Preemption**: before every iteration each member of the group must have room for its next token. While that is not so,
the latest arrival among the running gives its memory up and waits in front of the queue, among others like it by
arrival; and then nobody is admitted in this iteration. Nobody is admitted before those who were preempted, whatever
the order of the queue.

**Fast-forward**: between two moments that can change the group (a departure, an arrival or a new head of the queue that
could be admitted, a memory shortage) the iterations are a known series. They are computed at once and become one SimPy
event; their times are the same sums in the same order as step by step.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Generator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any, ClassVar

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
from simserve.scheduling import PrefillPlacement, WaitingQueue

LONGEST_STRETCH = 4096
"""Iterations computed at once at most: bounds memory, and what an arrival makes void."""


class Engine(ABC):
    """A GPU that serves a waiting queue, iteration by iteration.

    Subclasses say when the doors are open to newcomers and when one who came in leaves again.
    """

    leave_together: ClassVar[bool]
    """Whether those who join the group in one iteration all stay until the last of them is done."""

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
        self._queue = queue
        self._prompt_budget = placement.prompt_budget
        self._decodes_pause = placement.pauses_decodes
        self._max_batch_size = max_batch_size
        self._longest_stretch = LONGEST_STRETCH if fast_forward else 1
        self._now_s = 0.0
        self._running = 0
        """Seats taken: the decoding group, and a request whose prompt is unfinished."""
        self._group = Group()
        self._unfinished: Piece | None = None
        """A request whose prompt is computed in part: the tokens that are left of it, and those that are computed."""
        self._preempted: list[Request] = []
        """A heap by arrival of those who wait to come back."""
        self._emitted: dict[int, int] = {}
        """Tokens that each preempted request had emitted, by request id: with its prompt, what it has to compute."""
        self._stall_s = 0.0
        """How long the next iteration waits for transfers between GPU and host."""

    @abstractmethod
    def _doors_open(self) -> bool:
        """Whether waiting requests may be admitted now."""

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
                (request, _, stored), self._unfinished = self._unfinished, None
                self._preempt(request, stored, decoding=False)
            else:
                request, emitted = self._group.drop(latest_id)
                self._emitted[request.id] = emitted
                self._preempt(request, request.prompt_tokens + emitted - 1, decoding=True)

    def _preempt(self, request: Request, stored: int, decoding: bool) -> None:
        """Take its memory from a request that has `stored` tokens of KV, and let it wait to come back."""
        self._running -= 1
        self._memory.free(request)
        heappush(self._preempted, request)
        if swapped := self._host.try_store(request.id, stored, self._now_s):
            cost_s = 2 * self._host.transfer_s(stored)
            self._stall_s += self._host.stall_s(stored)
        else:
            cost_s = self._cost.iteration_s(Batch(((request, stored, 0),), 0, 0, 0))
        self._log.refused.add(request.id)
        self._log.preempt(request, swapped, decoding, stored, cost_s)

    def _compose(self, may_admit: bool) -> list[Piece]:
        """Return the pieces of prompts that the next iteration computes, as far as its budget lasts.

        An unfinished prompt goes on first; then who was preempted comes back, and then newcomers are admitted.
        """
        pieces: list[Piece] = []
        if not (self._queue or self._preempted) or self._running >= self._max_batch_size or not self._doors_open():
            may_admit = False
        if may_admit or self._unfinished:
            limit = self._prompt_budget(self._group.size)
            budget = math.inf if limit is None else limit
            if self._unfinished and budget > 0:
                piece, self._unfinished = self._unfinished, None
                budget = self._cut_piece(pieces, piece, budget)
            if may_admit and self._preempted:
                budget = self._readmit(pieces, budget)
            if may_admit and not self._preempted:
                self._admit(pieces, budget)
        return pieces

    def _readmit(self, pieces: list[Piece], budget: float) -> float:
        """Let those come back who were preempted, until budget, seats or memory run out; return what is left.

        What is left of a prompt to compute is all of it with what was emitted, but for the KV that comes from the host.
        For a request that was decoding and comes from there this is one token.
        """
        line, host, now_s = self._preempted, self._host, self._now_s
        while budget > 0 and line and self._running < self._max_batch_size:
            request = line[0]
            tokens = request.prompt_tokens + self._emitted.get(request.id, 0)
            if host.is_away(request.id, now_s) or not self._memory.try_admit(request, tokens):
                break
            heappop(line)
            from_host, cached = host.take_back(request.id), self._memory.cached_tokens(request)
            self._stall_s += host.stall_s(from_host)
            self._log.readmit(request)
            self._log.cached_tokens[request.id] += cached
            past = from_host or cached
            budget = self._cut_piece(pieces, (request, tokens - past, past), budget)
            self._running += 1
        return budget

    def _admit(self, pieces: list[Piece], budget: float) -> None:
        """Admit from the head of the queue until budget, seats or memory run out, and add the newcomers' pieces.

        A head that does not fit into memory is skipped only where the order says so.
        """
        queue, log, running, now_s = self._queue, self._log, self._running, self._now_s
        try_admit, cached_tokens = self._memory.try_admit, self._memory.cached_tokens
        passed: list[Request] = []
        while budget > 0 and queue and running < self._max_batch_size:
            request = queue.head(now_s)
            prompt_tokens = request.prompt_tokens
            if try_admit(request, prompt_tokens):
                queue.pop()
                log.admitted_iteration[request.id] = log.iteration
                if cached := cached_tokens(request):
                    log.cached_tokens[request.id] = cached
                budget = self._cut_piece(pieces, (request, prompt_tokens - cached, cached), budget)
                running += 1
                continue
            log.refused.add(request.id)
            if len(passed) == queue.skip_ahead:
                break
            passed.append(queue.pop())
        for request in reversed(passed):
            queue.put_back(request)
        self._running = running

    def _cut_piece(self, pieces: list[Piece], piece: Piece, budget: float) -> float:
        """Take as much of a prompt as the budget allows, and return what is left of the budget.

        What is cut short uses the budget up, so there is at most one unfinished prompt.
        """
        request, new, past = piece
        if new > budget:
            part = int(budget)
            self._unfinished = (request, new - part, past + part)
            piece, new = (request, part, past), part
        pieces.append(piece)
        self._memory.computed(request, past + new)
        return budget - new

    def _prefill(self, pieces: list[Piece]) -> float:
        """Run one iteration with pieces of prompts, and a token for everyone in the group unless it pauses."""
        group, memory = self._group, self._memory
        decoding = 0 if self._decodes_pause and self._has_prompt(pieces) else group.size
        ended: list[Request] = []
        new_tokens = 0
        for request, new, _ in pieces:
            new_tokens += new
            ended.append(request)
        if self._unfinished:
            ended.pop()
        batch = Batch(pieces, len(ended), decoding, group.context_tokens if decoding else 0)
        end_s = self._now_s + self._stall_s + self._cost.iteration_s(batch)
        self._stall_s = 0.0
        held: Sequence[float]
        if decoding:
            held = memory.grow(1)
            group.decode(1)
        else:
            held = (memory.reserved_tokens,)
        self._join(ended)
        stored = group.context_tokens + self._unfinished_tokens() - memory.shared_tokens
        self._log.stretch(self._now_s, (end_s,), new_tokens, decoding, self._running, held, stored)
        return end_s

    def _has_prompt(self, pieces: list[Piece]) -> bool:
        """Return whether any of the pieces is more than the next token of a request that comes back with its KV.

        That one is a decode in all but name, and no reason for others to pause.
        """
        emitted = self._emitted
        return any(
            request.id not in emitted or past < request.prompt_tokens + emitted[request.id] - 1
            for request, _, past in pieces
        )

    def _join(self, ended: list[Request]) -> None:
        """Let those join the group whose prompts end in this iteration, with a token each."""
        log, memory, group, emitted_before = self._log, self._memory, self._group, self._emitted
        longest = max([request.output_tokens for request in ended]) if self.leave_together else 0
        for request in ended:
            emitted = 1
            if request.id in emitted_before:
                emitted += emitted_before[request.id]
                log.resume(request)
            else:
                log.first_token_iteration[request.id] = log.iteration
            memory.join(request)
            group.join(request, emitted, longest or request.output_tokens)

    def _unfinished_tokens(self) -> int:
        """Return the KV tokens of the prompt that is computed in part."""
        return self._unfinished[2] if self._unfinished else 0

    def _decode(self, longest: int) -> float:
        """Decode until someone leaves or may come in, or memory runs out; return the end of the last iteration."""
        group = self._group
        start_s = self._now_s + self._stall_s
        self._stall_s = 0.0
        ends_s = self._ends_s(start_s, min(group.undisturbed_steps, longest), self._undisturbed_until_s())
        held = self._memory.grow(len(ends_s))
        steps = len(held)
        ends_s = ends_s[:steps]
        stored = group.context_tokens + group.size + self._unfinished_tokens() - self._memory.shared_tokens
        self._log.stretch(self._now_s, ends_s, 0, group.size, self._running, held, stored)
        group.decode(steps)
        return float(ends_s[-1])

    def _undisturbed_until_s(self) -> float:
        """Return until when nobody can be admitted, unless someone leaves.

        That is for ever with all seats taken, the doors shut, no budget for prompts, or a head of the queue that does
        not fit, if newcomers wait behind it; otherwise until the next arrival, or until time alone brings another head.
        Behind the preempted all wait, until the KV of one may be back.
        """
        if self._running >= self._max_batch_size or not self._doors_open():
            return math.inf
        if (budget := self._prompt_budget(self._group.size)) is not None and budget <= 0:
            return math.inf
        if self._preempted:
            return self._host.next_ready_s(self._now_s)
        if not self._queue:
            return self._arrivals.next_s
        if not self._queue.newcomers_may_pass:
            return math.inf
        return min(self._arrivals.next_s, self._queue.head_changes_s())

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
        left = self._group.leave()
        for request in left:
            self._log.finish_iteration[request.id] = self._finish_iteration(request)
            self._memory.free(request)
        self._running -= len(left)
