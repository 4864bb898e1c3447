"""A model with a cache, a clock and a queue: what every schedule of generation runs on."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simserve.numerics.contiguous_cache import ContiguousCache
from simserve.numerics.kv_cache import KVCache
from simserve.numerics.ledger import Ledger
from simserve.numerics.model import Llama
from simserve.numerics.paged_cache import PagedCache
from simserve.numerics.prompt import Prompt, check_prompts
from simserve.numerics.sampling import Sampler
from simserve.numerics.schedule import Cell, Iteration, Schedule
from simserve.numerics.segment import Segment
from simserve.request import Request


class Generated(NamedTuple):
    """What came out of a run, and how it ran."""

    tokens: dict[int, tuple[int, ...]]
    """The output of each request, by its id."""
    schedule: Schedule
    ledger: Ledger
    """Of all iterations together."""


@dataclass(slots=True, eq=False)
class Member:
    """A request on its way: computed tokens catch up with known ones, and each time they have, one more is known."""

    request: Request
    tokens: list[int]
    """Known ones: prompt, and output so far."""
    computed: int = 0

    @property
    def decoding(self) -> bool:
        """Whether its prompt is computed."""
        return self.computed >= self.request.prompt_tokens

    @property
    def outstanding(self) -> int:
        """Known tokens that are not computed yet: what is left of the prompt, or the last token of the output."""
        return len(self.tokens) - self.computed

    @property
    def output(self) -> tuple[int, ...]:
        """The tokens that have come out."""
        return tuple(self.tokens[self.request.prompt_tokens :])

    @property
    def done(self) -> bool:
        """Whether its last token has come out. Nobody computes that one."""
        return len(self.tokens) == self.request.total_tokens

    def cell(self, new: int) -> Cell:
        """Return what computing `new` more tokens is; none are computed in an idle seat."""
        if not new:
            return Cell(self.request.id, "-", 0, self.computed, emits=False)
        return Cell(self.request.id, "D" if self.decoding else "P", new, self.computed, emits=new == self.outstanding)

    def segment(self, new: int) -> Segment:
        """Return the next `new` known tokens; a token comes out if they are the last of them."""
        tokens = self.tokens[self.computed : self.computed + new]
        return Segment(self.request.id, tokens, emits=new == self.outstanding)


Piece = tuple[Member, int]
"""Who, and how many tokens of it are computed next: none in the idle seat of one that is done."""


class Machine:
    """A model with its cache, a clock and a queue: runs what it is told to, and writes down what happened."""

    def __init__(
        self, model: Llama, prompts: Sequence[Prompt], seats: int, sampler: Sampler, block_tokens: int | None
    ) -> None:
        _check_counts(max_batch_size=seats, block_tokens=block_tokens)
        check_prompts(model.config, prompts)
        self.seats = seats
        self._model = model
        self._sampler = sampler
        self._cache = _new_cache(model, prompts, seats, block_tokens)
        ordered = sorted(prompts, key=lambda prompt: (prompt.request.arrival_s, prompt.request.id))
        self._members = [Member(request, list(tokens)) for request, tokens in ordered]
        self.waiting = deque(self._members)
        self._now = 0
        self._iterations: list[Iteration] = []
        self._ledger = Ledger()

    def wait_for_arrival(self) -> None:
        """Let time pass until someone is there."""
        self._now = max(self._now, math.ceil(self.waiting[0].request.arrival_s))

    def admit(self) -> Member | None:
        """Give a seat to who has waited longest, if anyone has arrived."""
        if not self.waiting or self.waiting[0].request.arrival_s > self._now:
            return None
        member = self.waiting.popleft()
        self._cache.open(member.request.id, member.request.total_tokens)
        return member

    def iterate(self, pieces: Sequence[Piece]) -> None:
        """Run one iteration: one forward pass, and a token for every sequence whose tokens are all computed."""
        cells = tuple(member.cell(new) for member, new in pieces)
        segments = [member.segment(new) for member, new in pieces if new]
        ledger = Ledger()
        logits = self._model.forward(segments, self._cache, ledger)
        for member, new in pieces:
            member.computed += new
        emitting = [member for member, new in pieces if new and not member.outstanding]
        for member, row in zip(emitting, logits, strict=True):
            member.tokens.append(self._sampler.pick(row, member.request.id, len(member.output)))
        self._iterations.append(Iteration(self._now, cells, ledger.work(self._model.config.layers)))
        self._ledger += ledger
        self._now += 1

    def release(self, members: Iterable[Member]) -> None:
        """Give the memory of those who leave back."""
        for member in members:
            self._cache.close(member.request.id)

    def generated(self) -> Generated:
        """Return what happened."""
        tokens = {member.request.id: member.output for member in self._members}
        requests = tuple(member.request for member in self._members)
        return Generated(tokens, Schedule(requests, tuple(self._iterations)), self._ledger)


def _new_cache(model: Llama, prompts: Sequence[Prompt], seats: int, block_tokens: int | None) -> KVCache:
    """Return a cache in which the longest request fits on every seat."""
    seats = max(min(seats, len(prompts)), 1)
    longest = max((prompt.request.total_tokens for prompt in prompts), default=1)
    if block_tokens is None:
        return ContiguousCache(model.config, seats * longest, model.precision)
    blocks = seats * math.ceil(longest / block_tokens)
    return PagedCache(model.config, blocks * block_tokens, model.precision, block_tokens)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1, not {count}")
