"""Memory without end: what a GPU would do if KV memory were no limit."""

import math
from collections.abc import Sequence
from typing import Literal

from simserve.memory.base import Unshared
from simserve.request import Request
from simserve.spec import Spec


class Unlimited(Spec):
    """No limit on KV memory."""

    kind: Literal["unlimited"] = "unlimited"

    def manager(self, capacity_tokens: int) -> "UnlimitedMemory":
        """Return a manager; it asks for no capacity."""
        return UnlimitedMemory()


class UnlimitedMemory(Unshared):
    """Always has room."""

    capacity_tokens = math.inf
    reserved_tokens = math.nan

    def why_never(self, request: Request) -> str | None:
        """Return None: every request fits."""
        return None

    def try_admit(self, request: Request, tokens: int) -> bool:
        """Return True."""
        return True

    def join(self, request: Request) -> None:
        """Nothing is counted."""

    def can_grow(self) -> bool:
        """Return True."""
        return True

    def grow(self, steps: int) -> Sequence[float]:
        """Return NaN for each step: what is written is what is held."""
        return (math.nan,) * steps

    def free(self, request: Request) -> None:
        """Nothing is held."""
