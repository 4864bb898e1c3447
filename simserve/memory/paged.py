"""Paged memory: blocks of a few tokens, taken one at a time as a sequence grows into them.

PagedAttention (Kwon et al., SOSP 2023, section 4). A request takes the blocks of its whole prompt when admitted, and
one more whenever it writes the first token of a new block, so it wastes less than one block. What it will need in the
end is not known, so memory can run out while everyone decodes: then the engine preempts.

Sequences that decode advance in lock-step, so each crosses into a new block at every `block_tokens`-th step, at a phase
of its own that never changes. It is enough to count how many cross at each phase: a step costs one look-up, whatever
the batch, and when memory runs out is known ahead.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, cycle, islice
from typing import Annotated, Literal

from pydantic import Field

from simserve.memory.base import Unshared
from simserve.request import Request
from simserve.spec import Count, Spec


class Paged(Spec):
    """KV memory in blocks, taken on demand."""

    kind: Literal["paged"] = "paged"
    block_tokens: Count = 16
    """Tokens of a block."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Share of all blocks that an admission must leave free, so that those who run can grow. vLLM V0: 0.01, V1: 0."""

    def manager(self, capacity_tokens: int) -> "PagedMemory":
        """Return an empty memory of as many whole blocks as `capacity_tokens` hold."""
        return PagedMemory(self, capacity_tokens)


class PagedMemory(Unshared):
    """Blocks held by requests, counted in tokens; and when each that decodes takes its next."""

    def __init__(self, policy: Paged, capacity_tokens: int) -> None:
        block, blocks = policy.block_tokens, capacity_tokens // policy.block_tokens
        self._block_tokens = block
        self.capacity_tokens = blocks * block
        # Rounded first: 0.07 x 100 is 7.000000000000001, and one block more would be kept.
        self._kept_tokens = math.ceil(round(policy.watermark * blocks, 6)) * block
        self.reserved_tokens = 0
        self._steps = 0
        """Steps that the decoding requests have grown by: their common clock."""
        self._crossing = [0] * block
        """Tokens taken anew, in blocks, by the step at which `_steps` has each value modulo the block."""
        self._admitted: dict[int, int] = {}
        """Tokens that each request has room for which does not decode yet, by request id."""
        self._decoding: dict[int, int] = {}
        """Tokens of each decoding request, less `_steps`: a number that stays the same."""

    def _in_blocks(self, tokens: int) -> int:
        """Return the tokens of as many blocks as `tokens` need."""
        return -(-tokens // self._block_tokens) * self._block_tokens

    def why_never(self, request: Request) -> str | None:
        """Return why the request can never be served to its end, or None.

        It stores at most all its tokens but the last, whose KV is never written. If it is preempted just before its
        end, it must be admitted with all of these, beside the watermark.
        """
        need, room = self._in_blocks(request.total_tokens - 1), self.capacity_tokens - self._kept_tokens
        if need <= room:
            return None
        size = self._block_tokens
        return f"grows to {need // size} blocks of {size} tokens, more than the {room // size} below the watermark"

    def try_admit(self, request: Request, tokens: int) -> bool:
        """Take the blocks of `tokens`, if they, the next tokens of those who decode and the watermark all have room."""
        need = self._in_blocks(tokens)
        if not self._has_room(need):
            return False
        self.reserved_tokens += need
        self._admitted[request.id] = tokens
        return True

    def _has_room(self, tokens: int) -> bool:
        """Return whether so many tokens can be taken beside the next ones of those who decode, and the watermark."""
        next_tokens = self._crossing[self._steps % self._block_tokens]
        return self.reserved_tokens + tokens + next_tokens + self._kept_tokens <= self.capacity_tokens

    def join(self, request: Request) -> None:
        """Let an admitted request grow with the others from now on."""
        offset = self._admitted.pop(request.id) - self._steps
        self._decoding[request.id] = offset
        self._crossing[-offset % self._block_tokens] += self._block_tokens

    def can_grow(self) -> bool:
        """Return whether there are blocks for those who begin a new one with their next token."""
        return self.reserved_tokens + self._crossing[self._steps % self._block_tokens] <= self.capacity_tokens

    def grow(self, steps: int) -> Sequence[float]:
        """Take the blocks of the next steps, as far as they go; return the tokens held after each."""
        return self._grow_within(self.capacity_tokens, steps)

    def _grow_within(self, limit: int, steps: int) -> Sequence[float]:
        """Take the blocks of the next steps, as long as no more than `limit` tokens are held."""
        block, crossing = self._block_tokens, self._crossing
        phase = self._steps % block
        if steps == 1 and (tokens := self.reserved_tokens + crossing[phase]) <= limit:
            self._steps += 1
            self.reserved_tokens = tokens
            return (tokens,)
        ahead = crossing[phase : phase + steps] + crossing[: max(0, min(phase, phase + steps - block))]
        taken = islice(accumulate(cycle(ahead), initial=self.reserved_tokens), 1, steps + 1)
        held = list(taken)
        if held[-1] > limit:
            del held[bisect_right(held, limit) :]
        self._steps += len(held)
        if held:
            self.reserved_tokens = held[-1]
        return held

    def free(self, request: Request) -> None:
        """Give the request's blocks back."""
        self.reserved_tokens -= self._in_blocks(self._leave(request))
        self._check_empty(request)

    def _leave(self, request: Request) -> int:
        """Forget a request, and return the tokens for which it has blocks."""
        if (offset := self._decoding.pop(request.id, None)) is None:
            return self._admitted.pop(request.id)
        self._crossing[-offset % self._block_tokens] -= self._block_tokens
        return offset + self._steps

    def _check_empty(self, request: Request) -> None:
        """Raise AssertionError if anything is held by nobody."""
        nobody = not self._admitted and not self._decoding
        if self.reserved_tokens < 0 or (nobody and (self.reserved_tokens or any(self._crossing))):
            raise AssertionError(
                f"{len(self._admitted) + len(self._decoding)} requests hold {self.reserved_tokens} tokens "
                f"after request {request.id} gave its blocks back"
            )
