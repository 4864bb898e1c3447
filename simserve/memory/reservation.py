"""Reservation: a request takes, when admitted, all the memory it may ever need, and holds it until it ends.

Orca (Yu et al., OSDI 2022, Algorithm 1) reserves a request's own `max_tokens`. The vLLM paper (Kwon et al., SOSP
2023, section 6.1) rebuilds three variants: `max` reserves the model's longest sequence, `pow2` rounds the output up
to a power of two, `oracle` knows the output. Nothing admitted ever runs out of memory, so nothing is ever preempted.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Self

from pydantic import model_validator

from simserve.memory.base import Unshared
from simserve.request import Request
from simserve.spec import Count, Spec


def _power_of_two_at_least(tokens: int) -> int:
    return 1 << (tokens - 1).bit_length()


class Reservation(Spec):
    """How many tokens a request reserves at admission."""

    kind: Literal["reservation"] = "reservation"
    reserve: Literal["max", "pow2", "oracle", "request"] = "oracle"
    """`max`: `max_tokens` of this memory; `pow2`: prompt + the next power of two at or above the output; `oracle`:
    prompt + output; `request`: the request's own `max_tokens`."""
    max_tokens: Count | None = None
    """Longest sequence served, prompt and output together: longer requests are rejected. `reserve: max` needs it."""

    @model_validator(mode="after")
    def _max_needs_a_limit(self) -> Self:
        if self.reserve == "max" and self.max_tokens is None:
            raise ValueError("reserve: max needs max_tokens, the length to reserve")
        return self

    def reserved_by(self) -> Callable[[Request], int]:
        """Return the function that gives the tokens a request reserves."""
        limit = self.max_tokens or 0
        return {
            "max": lambda request: limit,
            "pow2": lambda request: request.prompt_tokens + _power_of_two_at_least(request.output_tokens),
            "oracle": lambda request: request.prompt_tokens + request.output_tokens,
            "request": lambda request: request.max_tokens,
        }[self.reserve]

    def manager(self, capacity_tokens: int) -> "ReservationMemory":
        """Return an empty memory of `capacity_tokens`."""
        return ReservationMemory(self, capacity_tokens)


class ReservationMemory(Unshared):
    """A counter of reserved tokens that never passes the capacity."""

    def __init__(self, policy: Reservation, capacity_tokens: int) -> None:
        self._reserved_by = policy.reserved_by()
        self._limit_tokens = policy.max_tokens
        self.capacity_tokens = capacity_tokens
        self.reserved_tokens = 0

    def why_never(self, request: Request) -> str | None:
        """Return why the request can never be admitted, or None."""
        if self._limit_tokens is not None and request.total_tokens > self._limit_tokens:
            return f"{request.total_tokens} tokens, longer than the limit of {self._limit_tokens}"
        if (need := self._reserved_by(request)) > self.capacity_tokens:
            return f"reserves {need} tokens, more than the whole KV memory of {self.capacity_tokens}"
        return None

    def try_admit(self, request: Request, tokens: int) -> bool:
        """Reserve all that the request will need, if it fits."""
        reserved = self.reserved_tokens + self._reserved_by(request)
        if reserved > self.capacity_tokens:
            return False
        self.reserved_tokens = reserved
        return True

    def join(self, request: Request) -> None:
        """Nothing changes: room for its output is reserved already."""

    def can_grow(self) -> bool:
        """Return True: nothing admitted runs out of memory."""
        return True

    def grow(self, steps: int) -> Sequence[float]:
        """Return the same reservation after each step."""
        return (self.reserved_tokens,) * steps

    def free(self, request: Request) -> None:
        """Give the reservation back."""
        self.reserved_tokens -= self._reserved_by(request)
        if self.reserved_tokens < 0:
            raise AssertionError(
                f"freed more than was reserved: {self.reserved_tokens} tokens left after request {request.id}"
            )
