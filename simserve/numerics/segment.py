"""What one request puts into a forward pass, and what is checked before anything is computed."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simserve.numerics.arrays import Ints, Precision
from simserve.numerics.config import LlamaConfig
from simserve.numerics.kv_cache import KVCache


class Segment(NamedTuple):
    """The next tokens of one request: a whole prompt, a chunk of one, or the one token that a decode goes on from.

    The forward pass makes no difference between them: new tokens come behind those whose KV is in the cache.
    """

    request_id: int
    tokens: Sequence[int]
    emits: bool = True
    """Whether logits come out behind the last token; not for a chunk that is not its prompt's last."""


class Step(NamedTuple):
    """The segments of one forward pass, checked and laid end to end, with room for their KV made."""

    segments: Sequence[Segment]
    tokens: Ints
    """[N], of all segments."""
    new: list[int]
    """Tokens of each segment."""
    past: list[int]
    """Tokens of each segment's request whose KV is in the cache already."""


def prepare_step(segments: Sequence[Segment], config: LlamaConfig, precision: Precision, cache: KVCache) -> Step:
    """Check the segments, then make room in the cache for their tokens.

    Raises:
        ValueError: no segments; a request unknown or given twice; no tokens; a token outside the vocabulary; a sequence
            longer than the model's positions; a cache made for another model, or full. Nothing has changed then.
    """
    cache.check_fits(config, precision)
    tokens = _flat_tokens(segments, config.vocab)
    new = {segment.request_id: len(segment.tokens) for segment in segments}
    if len(new) < len(segments):
        raise ValueError(f"a request stands twice in one step: {[segment.request_id for segment in segments]}")
    past = {request_id: cache.length(request_id) for request_id in new}
    for request_id in new:
        check_length(request_id, past[request_id] + new[request_id], config.max_positions)
    cache.grow(new)
    return Step(segments, tokens, list(new.values()), list(past.values()))


def _flat_tokens(segments: Sequence[Segment], vocab: int) -> Ints:
    """Return all tokens end to end."""
    if not segments:
        raise ValueError("a step needs at least one segment")
    for segment in segments:
        check_tokens(segment.request_id, segment.tokens, vocab)
    return np.concatenate([segment.tokens for segment in segments])


def check_tokens(request_id: int, tokens: Sequence[int], vocab: int) -> None:
    """Check the tokens of a request.

    Raises:
        ValueError: there are none, or one is not a whole number from 0 to vocab - 1.
    """
    if not len(tokens):
        raise ValueError(f"request {request_id} has no tokens; it needs at least one")
    array = np.asarray(tokens)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"request {request_id}: tokens must be one row of whole numbers, not {tokens!r}")
    if array.min() < 0 or array.max() >= vocab:
        wrong = array[(array < 0) | (array >= vocab)]
        raise ValueError(f"request {request_id} has token {wrong[0]}; the vocabulary has 0 to {vocab - 1}")


def check_length(request_id: int, tokens: int, max_positions: int) -> None:
    """Check the length of a request.

    Raises:
        ValueError: it is longer than the model has positions.
    """
    if tokens > max_positions:
        raise ValueError(f"request {request_id} would have {tokens} tokens; the model has {max_positions} positions")
