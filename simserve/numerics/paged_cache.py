"""A KV cache in blocks that are taken as they are needed."""

from collections.abc import Mapping

import numpy as np

from simserve.numerics.arrays import Array, Ints, Precision
from simserve.numerics.config import LlamaConfig
from simserve.numerics.kv_cache import KVCache


class PagedCache(KVCache):
    """One pool of blocks; a request takes one when it needs it (Kwon et al., PagedAttention, SOSP 2023).

    Reading gathers a request's blocks into a fresh array, so that the same products run on the same numbers as with a
    contiguous cache, to the last bit.
    """

    def __init__(
        self, config: LlamaConfig, capacity_tokens: int, precision: Precision = np.float32, block_tokens: int = 16
    ) -> None:
        """Make an empty pool; a rest of `capacity_tokens` that fills no block is left unused.

        Raises:
            ValueError: there is room for less than one block.
        """
        super().__init__(config, capacity_tokens, precision)
        if not 1 <= block_tokens <= capacity_tokens:
            raise ValueError(f"block_tokens must be 1 to {capacity_tokens}, the capacity, not {block_tokens}")
        self.block_tokens = block_tokens
        self._free_blocks = list(range(capacity_tokens // block_tokens))
        pool_tokens = len(self._free_blocks) * block_tokens
        self._pool = np.empty((self.layers, self.kv_rows, pool_tokens, self.head_dim), precision)
        self._blocks: dict[int, list[int]] = {}
        self._slots: dict[int, Ints] = {}
        """Where in the pool each token of a request is, up to the end of its last block."""

    @property
    def free_tokens(self) -> int:
        """Tokens in blocks that nobody has."""
        return len(self._free_blocks) * self.block_tokens

    def _reserve(self, request_id: int, max_tokens: int) -> None:
        self._blocks[request_id] = []

    def _release(self, request_id: int) -> None:
        self._free_blocks += self._blocks.pop(request_id)
        self._slots.pop(request_id, None)

    def _missing_blocks(self, request_id: int, total_tokens: int) -> int:
        return -(-total_tokens // self.block_tokens) - len(self._blocks[request_id])

    def _why_no_room(self, new_tokens: Mapping[int, int]) -> str | None:
        totals = {request_id: self._lengths[request_id] + new for request_id, new in new_tokens.items()}
        needed = sum(self._missing_blocks(request_id, total) for request_id, total in totals.items())
        if needed <= len(self._free_blocks):
            return None
        return f"needs {needed} blocks of {self.block_tokens} tokens, {len(self._free_blocks)} are free"

    def _make_room(self, request_id: int, total_tokens: int) -> None:
        if missing := self._missing_blocks(request_id, total_tokens):
            blocks = self._blocks[request_id]
            blocks += (self._free_blocks.pop() for _ in range(missing))
            starts = np.array(blocks)[:, np.newaxis] * self.block_tokens
            self._slots[request_id] = (starts + np.arange(self.block_tokens)).ravel()

    def _store(self, layer: int, request_id: int, past: int, kv: Array) -> Array:
        slots = self._slots[request_id][: past + kv.shape[1]]
        pool = self._pool[layer]
        pool[:, slots[past:]] = kv
        whole: Array = pool.take(slots, axis=1)
        return whole
