"""The protocol of a memory manager. The engine decides who runs; the manager answers whether there is room."""

from typing import Protocol

from simserve.request import Request


class Memory(Protocol):
    """KV memory, in tokens."""

    @property
    def reserved_tokens(self) -> float:
        """Tokens held by the running requests, written or not; NaN where what is written is what is held."""

    def why_never(self, request: Request) -> str | None:
        """Return why the request could not be admitted even into an empty memory, or None if it could."""

    def try_admit(self, request: Request) -> bool:
        """Take room for the request if there is enough; otherwise change nothing."""

    def grow(self, sequences: int, steps: int) -> int:
        """Let each of `sequences` running requests write one more token, `steps` times over.

        Returns how many of the steps there is room for.
        """

    def free(self, request: Request) -> None:
        """Give back all that the request holds."""
