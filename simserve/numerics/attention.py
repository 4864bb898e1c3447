"""Attention: the one layer that cares which request a token belongs to."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from simserve.numerics.arrays import Array, Mask
from simserve.numerics.kv_cache import KVCache
from simserve.numerics.layers import softmax
from simserve.numerics.ledger import Ledger


class Attention(Protocol):
    """How the tokens of one step attend: what tells a ragged forward from a padded one."""

    def __call__(self, layer: int, queries: Array, kv: Array) -> Array:
        """Put the new `kv`, [N, 2 kv_heads, d], into the cache; return [N, heads * d] for `queries`, [N, heads, d]."""


def grouped_attention(queries: Array, kv: Array, hidden: Mask | None) -> Array:
    """Return softmax(q k' / sqrt(d)) v for each head: [..., n, heads * d].

    Args:
        queries: [..., n, heads, d]; leading axes are batches, the same for all arguments.
        kv: keys and then values, [..., 2 kv_heads, T, d]. A group of heads / kv_heads neighbouring heads shares a KV
            head (Ainslie et al., GQA, arXiv 2305.13245), and is one matrix product with it.
        hidden: the (query, key) pairs that must not count, [..., n, T]; None for none.
    """
    *batch, n, heads, d = queries.shape
    kv_heads, keys_seen = kv.shape[-3] // 2, kv.shape[-2]
    group = heads // kv_heads
    keys, values = kv[..., :kv_heads, :, :], kv[..., kv_heads:, :, :]
    grouped = queries.reshape(*batch, n, kv_heads, group, d).swapaxes(-4, -3)
    scores = grouped.reshape(*batch, kv_heads, n * group, d) @ keys.swapaxes(-2, -1)
    scores *= d**-0.5
    if hidden is not None:
        by_query = scores.reshape(*batch, kv_heads, n, group, keys_seen)
        np.copyto(by_query, -np.inf, where=hidden[..., np.newaxis, :, np.newaxis, :])
    softmax(scores)
    merged = (scores @ values).reshape(*batch, kv_heads, n, group, d)
    return merged.swapaxes(-4, -3).reshape(*batch, n, heads * d)


class RaggedAttention:
    """Selective batching (Yu et al., Orca, OSDI 2022, section 3.2): Split, each request by itself, Merge.

    Attention has no weights that a batch could share, so taking it apart costs next to nothing.
    """

    def __init__(self, cache: KVCache, spans: Sequence[tuple[int, slice]], ledger: Ledger) -> None:
        """Prepare for a flat matrix in which each `(request id, rows)` of `spans` holds the tokens of one request."""
        self._cache = cache
        self._spans = spans
        self._ledger = ledger

    def __call__(self, layer: int, queries: Array, kv: Array) -> Array:
        """Return the merged attention, [N, heads * d]."""
        merged = np.empty((len(queries), queries[0].size), queries.dtype)
        for request_id, rows in self._spans:
            whole = self._cache.extend(layer, request_id, kv[rows], self._ledger)
            merged[rows] = self._causal(queries[rows], whole)
        return merged

    def _causal(self, queries: Array, kv: Array) -> Array:
        """Attend from the last tokens of a sequence, [n, heads, d], to all of it, [2 kv_heads, T, d]."""
        n, heads, d = queries.shape
        keys = kv.shape[1]
        hidden = None if n == 1 else ~np.tri(n, keys, keys - n, dtype=np.bool_)  # one query alone sees every key
        masked = 0 if hidden is None else int(np.count_nonzero(hidden))
        self._ledger.enter_attention(n * keys, masked, heads, d)
        return grouped_attention(queries, kv, hidden)
