"""What a ragged forward replaces: every request padded to the longest, so that the step is one [B, L, H] tensor.

Orca, section 3.2, on why requests in different phases do not fit into one batch otherwise.
"""

from collections.abc import Sequence

import numpy as np

from simserve.numerics.arrays import Array
from simserve.numerics.attention import grouped_attention
from simserve.numerics.kv_cache import KVCache
from simserve.numerics.ledger import Ledger
from simserve.numerics.model import Llama
from simserve.numerics.segment import Segment, Step, prepare_step


def forward_padded(model: Llama, segments: Sequence[Segment], cache: KVCache, ledger: Ledger | None = None) -> Array:
    """Compute the segments as `Llama.forward` does, as a rectangle: B requests of L new tokens that see K keys.

    Returns:
        The same logits but for rounding, [emitting, vocab]. The ledger has what the padding cost: see `Ledger.waste`.

    Raises:
        ValueError: as `Llama.forward`.
    """
    ledger = Ledger() if ledger is None else ledger
    step = prepare_step(segments, model.config, model.precision, cache)
    new, past = np.array(step.new), np.array(step.past)
    columns = np.arange(new.max())
    token_ids = np.zeros((len(segments), len(columns)), np.int64)
    token_ids[columns < new[:, np.newaxis]] = step.tokens
    positions = past[:, np.newaxis] + columns
    tokens = model.transform(token_ids.ravel(), positions.ravel(), PaddedAttention(cache, step, ledger), ledger)
    emits = np.array([segment.emits for segment in segments])
    last = tokens.reshape(*token_ids.shape, -1)[emits, new[emits] - 1]
    return model.logits(last, ledger)


class PaddedAttention:
    """Attention of all requests in one batched product, padded to the most queries and the most keys."""

    def __init__(self, cache: KVCache, step: Step, ledger: Ledger) -> None:
        self._cache = cache
        self._step = step
        self._ledger = ledger
        new, past = (np.array(tokens)[:, np.newaxis, np.newaxis] for tokens in (step.new, step.past))
        query, key = np.arange(new.max())[:, np.newaxis], np.arange((past + new).max())
        self._hidden = key > past + np.minimum(query, new - 1)
        """[B, L, K]. A query of padding sees what the last real one sees: it must see something, and is thrown away."""
        self._in_vain = int(np.count_nonzero(self._hidden | (query >= new)))

    def __call__(self, layer: int, queries: Array, kv: Array) -> Array:
        """Return the attention of all rows, [B * L, heads * d], rows of padding among them."""
        batch, longest, keys = self._hidden.shape
        _, heads, head_dim = queries.shape
        kv = kv.reshape(batch, longest, *kv.shape[1:])
        padded = np.zeros((batch, kv.shape[2], keys, head_dim), kv.dtype)
        for row, (segment, new) in enumerate(zip(self._step.segments, self._step.new, strict=True)):
            whole = self._cache.extend(layer, segment.request_id, kv[row, :new], self._ledger)
            padded[row, :, : whole.shape[1]] = whole
        self._ledger.layer_padding_tokens += len(queries) - len(self._step.tokens)
        self._ledger.enter_attention(self._hidden.size, self._in_vain, heads, head_dim)
        queries = queries.reshape(batch, longest, heads, head_dim)
        return grouped_attention(queries, padded, self._hidden).reshape(len(queries) * longest, -1)
