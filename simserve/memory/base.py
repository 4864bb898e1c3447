"""The protocol of a memory manager. The engine decides who runs; the manager answers whether there is room."""

from collections.abc import Sequence
from typing import Protocol

from simserve.request import Request


class Memory(Protocol):
    """KV memory, in tokens."""

    @property
    def capacity_tokens(self) -> float:
        """Room for tokens; infinity for memory without limit."""

    @property
    def reserved_tokens(self) -> float:
        """Tokens held by the running requests, written or not; NaN where what is written is what is held."""

    def why_never(self, request: Request) -> str | None:
        """Return why the request could not be served even by an empty memory, or None if it could."""

    @property
    def shared_tokens(self) -> int:
        """Tokens that several requests have in common, as often as they are counted more than once among theirs."""

    def try_admit(self, request: Request, tokens: int) -> bool:
        """Take room for the request if there is enough; otherwise change nothing.

        `tokens` are those whose KV is there when its prompt is computed: the prompt, and with it what the request had
        generated before it was preempted.
        """

    def cached_tokens(self, request: Request) -> int:
        """Return how many tokens of a request just admitted have their KV there already: all but the last at most."""

    def computed(self, request: Request, tokens: int) -> None:
        """Note that the next iteration computes an admitted request up to so many tokens."""

    def join(self, request: Request) -> None:
        """Count an admitted request, whose prompt is computed now, among those that decode."""

    def can_grow(self) -> bool:
        """Return whether every request that decodes has room for its next token."""

    def grow(self, steps: int) -> Sequence[float]:
        """Let every request that decodes write one more token, up to `steps` times over, as long as there is room.

        Returns `reserved_tokens` after each step there was room for: at least one, where all `can_grow`.
        """

    def free(self, request: Request) -> None:
        """Give back all that the request holds."""


class Unshared:
    """Memory in which every request has its own KV and nothing is kept."""

    @property
    def shared_tokens(self) -> int:
        """Return 0."""
        return 0

    def cached_tokens(self, request: Request) -> int:
        """Return 0."""
        return 0

    def computed(self, request: Request, tokens: int) -> None:
        """Note nothing."""
