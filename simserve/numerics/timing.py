"""How long decodes take on this machine, one by one and in one batch: the one thing here that no seed reproduces.

BLAS takes as many threads as it was told before NumPy was imported: OMP_NUM_THREADS=1 for one.
"""

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simserve.numerics.config import MINI_13M, LlamaConfig
from simserve.numerics.contiguous_cache import ContiguousCache
from simserve.numerics.kv_cache import KVCache
from simserve.numerics.ledger import Ledger
from simserve.numerics.model import Llama
from simserve.numerics.segment import Segment

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class DecodeTiming(NamedTuple):
    """One decode of each of `batch_size` requests; medians over the repeats."""

    batch_size: int
    one_by_one_s: float
    """In as many forward passes as there are requests."""
    batched_s: float
    """In one forward pass."""

    @property
    def speedup(self) -> float:
        """How many times faster the batch is."""
        return self.one_by_one_s / self.batched_s


def time_decodes(
    config: LlamaConfig = MINI_13M,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    repeats: int = 5,
    seed: int = 0,
    context_tokens: int = 64,
) -> list[DecodeTiming]:
    """Measure the wall time of decodes in float32, all with `context_tokens` past tokens.

    Both ways are timed in turn, since other work on the machine comes and goes; a first round of each is thrown away.

    Raises:
        ValueError: a batch size, the repeats or the context below 1, or a context of all the model's positions.
    """
    if min(*batch_sizes, repeats, context_tokens) < 1:
        raise ValueError(
            f"batch sizes, repeats and context must be at least 1, not {batch_sizes}, {repeats}, {context_tokens}"
        )
    model = Llama.random(config, seed)
    return [_time_batch(model, size, repeats, context_tokens) for size in batch_sizes]


def decodes_with_past(model: Llama, batch_size: int, context_tokens: int) -> tuple[list[Segment], KVCache]:
    """Return a decode of each of `batch_size` requests, and a cache with a past for each: random KV, never computed."""
    rng = np.random.default_rng(0)
    config = model.config
    kv = rng.standard_normal((config.layers, context_tokens, 2 * config.kv_heads, config.head_dim))
    cache = ContiguousCache(config, batch_size * (context_tokens + 1), model.precision)
    for request_id in range(batch_size):
        cache.open(request_id, context_tokens + 1)
        cache.grow({request_id: context_tokens})
        for layer in range(config.layers):
            cache.extend(layer, request_id, kv[layer], Ledger())
    tokens = rng.integers(config.vocab, size=batch_size).tolist()
    return [Segment(request_id, [token]) for request_id, token in enumerate(tokens)], cache


def _time_batch(model: Llama, batch_size: int, repeats: int, context_tokens: int) -> DecodeTiming:
    rounds = [
        [_decode_s(model, batch_size, context_tokens, together) for together in (1, batch_size)]
        for _ in range(repeats + 1)
    ]
    one_by_one_s, batched_s = (statistics.median(column) for column in zip(*rounds[1:], strict=True))
    return DecodeTiming(batch_size, one_by_one_s, batched_s)


def _decode_s(model: Llama, batch_size: int, context_tokens: int, together: int) -> float:
    """Return the seconds of a decode of each request, `together` of them in a forward pass."""
    segments, cache = decodes_with_past(model, batch_size, context_tokens)
    started_s = time.perf_counter()
    for first in range(0, batch_size, together):
        model.forward(segments[first : first + together], cache)
    return time.perf_counter() - started_s
