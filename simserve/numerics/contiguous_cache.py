"""A KV cache that sets memory aside for the longest a request may become."""

from collections.abc import Mapping

import numpy as np

from simserve.numerics.arrays import Array, Precision
from simserve.numerics.config import LlamaConfig
from simserve.numerics.kv_cache import KVCache


class ContiguousCache(KVCache):
    """One array for each request, as long as it may ever become: Orca's reservation."""

    def __init__(self, config: LlamaConfig, capacity_tokens: int, precision: Precision = np.float32) -> None:
        super().__init__(config, capacity_tokens, precision)
        self._arrays: dict[int, Array] = {}

    @property
    def free_tokens(self) -> int:
        """Tokens that are not reserved."""
        return self.capacity_tokens - sum(self._limits.values())

    def _reserve(self, request_id: int, max_tokens: int) -> None:
        if max_tokens > self.free_tokens:
            raise ValueError(
                f"KV cache full: request {request_id} reserves {max_tokens} tokens, "
                f"{self.free_tokens} of {self.capacity_tokens} are free"
            )
        self._arrays[request_id] = np.empty((self.layers, self.kv_rows, max_tokens, self.head_dim), self.precision)

    def _release(self, request_id: int) -> None:
        del self._arrays[request_id]

    def _why_no_room(self, new_tokens: Mapping[int, int]) -> str | None:
        return None

    def _make_room(self, request_id: int, total_tokens: int) -> None:
        pass

    def _store(self, layer: int, request_id: int, past: int, kv: Array) -> Array:
        array = self._arrays[request_id][layer]
        total = past + kv.shape[1]
        array[:, past:total] = kv
        whole: Array = array[:, :total]
        return whole
