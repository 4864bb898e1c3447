"""What becomes of the KV of a preempted request: dropped and computed again, or moved to the memory of the host.

vLLM (Kwon et al., SOSP 2023, section 4.5) has both. Recompute is swapping without a host memory: what does not fit
there is dropped.
"""

import math
from heapq import heappop, heappush
from typing import Annotated, Literal

from pydantic import Field

from simserve.spec import BareName, Positive, Spec


class Recompute(Spec):
    """Drop the KV; prompt and generated tokens are computed again, as one prompt, when the request comes back."""

    kind: Literal["recompute"] = "recompute"

    def host_memory(self, kv_bytes_per_token: int) -> "HostMemory":
        """Return a host memory without room."""
        return HostMemory(capacity_tokens=0, token_s=0.0, overlapped=False)


class Swap(Spec):
    """Move the KV to host memory, and back when the request comes back; recompute where the host has no room."""

    kind: Literal["swap"] = "swap"
    host_bytes: Positive
    """Host memory for KV."""
    link_bytes_per_s: Positive
    """What the link carries in each direction: about 55e9 over PCIe 5.0 x16."""
    overlapped: bool = False
    """False: iterations wait for transfers. True: transfers run beside them, and a request can come back only once its
    KV has gone out and come in again."""

    def host_memory(self, kv_bytes_per_token: int) -> "HostMemory":
        """Return an empty host memory for the KV of a model."""
        return HostMemory(
            capacity_tokens=int(self.host_bytes // kv_bytes_per_token),
            token_s=kv_bytes_per_token / self.link_bytes_per_s,
            overlapped=self.overlapped,
        )


PreemptionSpec = Annotated[Annotated[Recompute | Swap, Field(discriminator="kind")], BareName]
"""The ways to preempt, told apart by `kind`."""


class HostMemory:
    """KV that waits outside the GPU; transfers have the link to themselves."""

    def __init__(self, capacity_tokens: int, token_s: float, overlapped: bool) -> None:
        self._free_tokens = capacity_tokens
        self._token_s = token_s
        self._overlapped = overlapped
        self._stored: dict[int, tuple[int, float]] = {}
        """By request id: tokens, and when they can be back on the GPU."""
        self._ready_s: list[float] = []
        """A heap of the times at which transfers end."""

    def transfer_s(self, tokens: int) -> float:
        """Return the seconds in which the KV of `tokens` crosses the link once."""
        return tokens * self._token_s

    def stall_s(self, tokens: int) -> float:
        """Return the seconds for which iterations wait while the KV of `tokens` crosses the link once."""
        return 0.0 if self._overlapped else self.transfer_s(tokens)

    def try_store(self, request_id: int, tokens: int, now_s: float) -> bool:
        """Move a request's KV out of the GPU if there is room for it; otherwise change nothing."""
        if tokens > self._free_tokens:
            return False
        self._free_tokens -= tokens
        ready_s = now_s
        if self._overlapped:
            ready_s += 2 * self.transfer_s(tokens)
            heappush(self._ready_s, ready_s)
        self._stored[request_id] = (tokens, ready_s)
        return True

    def is_away(self, request_id: int, now_s: float) -> bool:
        """Return whether a request's KV is stored here and cannot be back on the GPU yet."""
        return self._stored.get(request_id, (0, -math.inf))[1] > now_s

    def take_back(self, request_id: int) -> int:
        """Move a request's KV back to the GPU; return its tokens, none if nothing of it is here."""
        tokens, _ = self._stored.pop(request_id, (0, 0.0))
        self._free_tokens += tokens
        return tokens

    def next_ready_s(self, now_s: float) -> float:
        """Return when the next transfer ends, infinity for none on the way."""
        while self._ready_s and self._ready_s[0] <= now_s:
            heappop(self._ready_s)
        return self._ready_s[0] if self._ready_s else math.inf
