"""The ragged forward pass: batching, chunking and paging change when a token is computed, and not what comes out.

The oracle is a plain Llama: one sequence at a time, from its first token, without a cache, a loop for each head.
"""

from collections.abc import Sequence
from functools import cache as cached

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.numerics import (
    MINI,
    ContiguousCache,
    KVCache,
    Ledger,
    Llama,
    LlamaConfig,
    PagedCache,
    Segment,
    forward_padded,
)
from simserve.numerics.arrays import Array, Precision
from simserve.numerics.rotary import frequencies

SMALL = LlamaConfig(layers=2, hidden=16, heads=4, kv_heads=2, head_dim=6, ffn=24, vocab=40, max_positions=64)
LECTURE_STEP = ((37, 0), (9, 0), (1, 120), (1, 15), (1, 64))
"""(new, past) tokens of the five requests of the lecture's mixed step."""


@cached
def model(config: LlamaConfig = SMALL, precision: Precision = np.float64) -> Llama:
    return Llama.random(config, 1, precision)


def plain_logits(llama: Llama, tokens: Sequence[int]) -> Array:
    """Return the logits behind every token of a sequence, [tokens, vocab]."""
    config, weights = llama.config, llama.weights
    queries, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    angles = np.arange(len(tokens))[:, np.newaxis] * frequencies(config)

    def norm(x: Array, weight: Array) -> Array:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + config.norm_eps) * weight

    def turn(x: Array) -> Array:
        a, b = x[:, : config.head_dim // 2], x[:, config.head_dim // 2 :]
        return np.hstack([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)])

    x = weights.embedding[list(tokens)]
    for layer in weights.layers:
        q, k, v = np.split(norm(x, layer.attention_norm) @ layer.qkv, [queries, queries + kv], axis=1)
        merged = []
        for head in range(config.heads):
            own = slice(head * config.head_dim, (head + 1) * config.head_dim)
            shared_head = head * config.kv_heads // config.heads
            shared = slice(shared_head * config.head_dim, (shared_head + 1) * config.head_dim)
            scores = turn(q[:, own]) @ turn(k[:, shared]).T / np.sqrt(config.head_dim)
            scores[np.triu_indices(len(tokens), 1)] = -np.inf
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            merged.append(shares / shares.sum(axis=1, keepdims=True) @ v[:, shared])
        x = x + np.hstack(merged) @ layer.output
        gate, up = np.split(norm(x, layer.mlp_norm) @ layer.gate_up, 2, axis=1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layer.down
    return norm(x, weights.norm) @ weights.head


def empty_cache(llama: Llama, kind: str, block_tokens: int = 4) -> KVCache:
    if kind == "contiguous":
        return ContiguousCache(llama.config, 4096, llama.precision)
    cache = PagedCache(llama.config, 4096, llama.precision, block_tokens)
    for visitor in (-1, -2, -3):  # let blocks go back in another order than they were taken in
        cache.open(visitor, 3 * block_tokens)
        cache.grow({visitor: 3 * block_tokens})
    for visitor in (-2, -1, -3):
        cache.close(visitor)
    return cache


def words(llama: Llama, request_id: int, tokens: int, seed: int = 0) -> list[int]:
    rng = np.random.default_rng((seed, request_id))
    return rng.integers(llama.config.vocab, size=tokens).tolist()


def mixed_step(
    llama: Llama, shapes: Sequence[tuple[int, int]] = LECTURE_STEP, kind: str = "contiguous", seed: int = 0
) -> tuple[list[Segment], KVCache]:
    """Return segments with (new, past) tokens, and a cache in which their past has been computed, each by itself."""
    cache, segments = empty_cache(llama, kind), []
    for request_id, (new, past) in enumerate(shapes):
        tokens = words(llama, request_id, new + past, seed)
        cache.open(request_id, new + past)
        if past:
            llama.forward([Segment(request_id, tokens[:past], emits=False)], cache)
        segments.append(Segment(request_id, tokens[past:]))
    return segments, cache


def one_by_one(llama: Llama, segments: Sequence[Segment], cache: KVCache) -> Array:
    return np.concatenate([llama.forward([segment], cache) for segment in segments])


def assert_close(logits: Array, expected: Array) -> None:
    """The largest difference is within 1e-10 of the largest logit."""
    assert np.abs(logits - expected).max() <= 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_prefill_is_the_plain_llama(kv_heads: int, tied: bool) -> None:
    llama = model(SMALL.model_copy(update={"kv_heads": kv_heads, "tied_embeddings": tied}))
    (segment,), cache = mixed_step(llama, [(20, 0)])
    assert_close(llama.forward([segment], cache)[0], plain_logits(llama, segment.tokens)[-1])


def test_decodes_are_the_plain_llama() -> None:
    llama = model()
    tokens = words(llama, 0, 30)
    cache = empty_cache(llama, "paged")
    cache.open(0, 30)
    logits = np.concatenate([llama.forward([Segment(0, [token])], cache) for token in tokens])
    assert_close(logits, plain_logits(llama, tokens))


@st.composite
def plans(draw: st.DrawFn) -> tuple[str, dict[int, list[int]], list[list[int]]]:
    """A kind of cache, chunks of a few prompts, and steps: each the requests that go on by a chunk, in any order."""
    prompts = st.lists(st.integers(1, 7), min_size=1, max_size=4)
    chunks = dict(enumerate(draw(st.lists(prompts, min_size=1, max_size=4))))
    left = {request_id: len(sizes) for request_id, sizes in chunks.items()}
    steps = []
    while left:
        step = draw(st.lists(st.sampled_from(sorted(left)), min_size=1, max_size=4, unique=True))
        steps.append(step)
        left = {request_id: n - (request_id in step) for request_id, n in left.items() if n > (request_id in step)}
    return draw(st.sampled_from(("contiguous", "paged"))), chunks, steps


@settings(deadline=None, max_examples=60)
@given(plans())
def test_any_chunks_in_any_company(plan: tuple[str, dict[int, list[int]], list[list[int]]]) -> None:
    """However prompts are cut, batched, ordered and stored: after each chunk come the logits of the plain Llama."""
    kind, chunks, steps = plan
    llama = model()
    cache = empty_cache(llama, kind, block_tokens=3)
    tokens = {request_id: words(llama, request_id, sum(sizes)) for request_id, sizes in chunks.items()}
    expected = {request_id: plain_logits(llama, prompt) for request_id, prompt in tokens.items()}
    sizes = {request_id: iter(own) for request_id, own in chunks.items()}
    done = dict.fromkeys(chunks, 0)
    for request_id, prompt in tokens.items():
        cache.open(request_id, len(prompt))
    for step in steps:
        segments = []
        for request_id in step:
            past, new = done[request_id], next(sizes[request_id])
            segments.append(Segment(request_id, tokens[request_id][past : past + new]))
            done[request_id] += new
        logits = llama.forward(segments, cache)
        assert_close(logits, np.stack([expected[request_id][done[request_id] - 1] for request_id in step]))


@pytest.mark.parametrize("config", [SMALL.model_copy(update={"max_positions": 256}), MINI])
def test_the_lecture_s_step_batched_and_one_by_one(config: LlamaConfig) -> None:
    llama = model(config)
    batched = llama.forward(*mixed_step(llama))
    assert_close(one_by_one(llama, *mixed_step(llama)), batched)
    assert_close(forward_padded(llama, *mixed_step(llama)), batched)


def test_single_precision() -> None:
    """The lecture's claim: 1.1e-6 at most between batched and one by one, and the same greedy tokens."""
    for seed in range(5):
        llama = Llama.random(MINI, seed)
        batched = llama.forward(*mixed_step(llama, seed=seed))
        alone = one_by_one(llama, *mixed_step(llama, seed=seed))
        assert batched.dtype == np.float32
        assert np.abs(batched - alone).max() <= 1e-5
        assert (batched.argmax(axis=1) == alone.argmax(axis=1)).all()


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_paged_and_contiguous_are_the_same_to_the_last_bit(precision: Precision) -> None:
    llama = model(MINI, precision)
    paged, contiguous = (llama.forward(*mixed_step(llama, kind=kind)) for kind in ("paged", "contiguous"))
    assert (paged == contiguous).all()


@pytest.mark.parametrize("kind", ["contiguous", "paged"])
def test_kv_does_not_leak(kind: str) -> None:
    """Another prompt for one request, of the same length, leaves the others' logits as they were, to the last bit."""
    llama = model(MINI, np.float32)
    segments, cache = mixed_step(llama, kind=kind)
    logits = llama.forward(segments, cache)
    for changed in range(len(segments)):
        segments, cache = mixed_step(llama, kind=kind)
        other = [(token + 1) % MINI.vocab for token in segments[changed].tokens]
        segments[changed] = segments[changed]._replace(tokens=other)
        same = (llama.forward(segments, cache) == logits).all(axis=1)
        assert same.tolist() == [request_id != changed for request_id in range(len(segments))]


def test_another_past_leaks_neither() -> None:
    llama = model(MINI, np.float32)
    segments, cache = mixed_step(llama, kind="paged")
    logits = llama.forward(segments, cache)
    segments, cache = mixed_step(llama, kind="paged")
    cache.close(2)
    cache.open(2, 121)
    llama.forward([Segment(2, words(llama, 2, 120, seed=9), emits=False)], cache)
    same = (llama.forward(segments, cache) == logits).all(axis=1)
    assert same.tolist() == [True, True, False, True, True]


shapes = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(shapes, st.integers(0, 31))
def test_padded_is_ragged(shapes: list[tuple[int, int]], emitting: int) -> None:
    llama = model()
    logits = []
    for forward in (llama.forward, lambda segments, cache: forward_padded(llama, segments, cache)):
        segments, cache = mixed_step(llama, shapes)
        segments = [segment._replace(emits=bool(emitting >> i & 1)) for i, segment in enumerate(segments)]
        logits.append(forward(segments, cache))
    assert logits[0].shape == logits[1].shape == (sum(emitting >> i & 1 for i in range(len(shapes))), SMALL.vocab)
    if len(logits[0]):
        assert_close(logits[1], logits[0])


def test_weights_of_both_precisions_are_the_same() -> None:
    double, single = model(MINI), model(MINI, np.float32)
    assert (double.weights.embedding.astype(np.float32) == single.weights.embedding).all()
    assert single.precision is np.float32
    assert double.precision is np.float64


def test_tied_embeddings_are_one_table() -> None:
    weights = model(SMALL.model_copy(update={"tied_embeddings": True})).weights
    assert weights.head.base is weights.embedding


# Errors: before anything is computed, so that the cache is as it was.


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([], "a step needs at least one segment"),
        ([Segment(0, [])], "request 0 has no tokens"),
        ([Segment(0, [1, 40])], "request 0 has token 40; the vocabulary has 0 to 39"),
        ([Segment(0, [-1])], "request 0 has token -1; the vocabulary has 0 to 39"),
        ([Segment(0, [1.5])], r"request 0: tokens must be one row of whole numbers, not \[1.5\]"),
        ([Segment(0, [[1]])], r"request 0: tokens must be one row of whole numbers, not \[\[1\]\]"),
        ([Segment(0, [1]), Segment(0, [2])], r"a request stands twice in one step: \[0, 0\]"),
        ([Segment(0, [1]), Segment(7, [2])], r"request 7 is not in the KV cache, which holds \[0, 1, 2\]"),
        ([Segment(0, [1]), Segment(1, [1] * 65)], "request 1 would have 65 tokens; the model has 64 positions"),
        ([Segment(0, [1]), Segment(2, [1, 1, 1])], "request 2 would have 3 tokens of KV; it was opened for 2"),
    ],
)
def test_errors_come_before_anything_is_computed(segments: list[Segment], message: str, padded: bool) -> None:
    llama = model()
    cache = ContiguousCache(SMALL, 200, np.float64)
    for request_id, limit in ((0, 10), (1, 100), (2, 2)):
        cache.open(request_id, limit)
    with pytest.raises(ValueError, match=message):
        forward_padded(llama, segments, cache) if padded else llama.forward(segments, cache)
    assert [cache.length(request_id) for request_id in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("padded", [False, True])
def test_a_full_cache_computes_nothing(padded: bool) -> None:
    # Three blocks of 4. Request 0 has one with 3 tokens in it; 2 more for it and 9 for request 1 need 1 + 3 of the 2 left.
    llama = model()
    cache = PagedCache(SMALL, 12, np.float64, block_tokens=4)
    cache.open(0, 12)
    cache.open(1, 12)
    llama.forward([Segment(0, [1, 2, 3])], cache)
    segments, ledger = [Segment(0, [4, 5]), Segment(1, [1] * 9)], Ledger()
    with pytest.raises(ValueError, match="KV cache full: needs 4 blocks of 4 tokens, 2 are free"):
        forward_padded(llama, segments, cache, ledger) if padded else llama.forward(segments, cache, ledger)
    assert (cache.length(0), cache.length(1), ledger) == (3, 0, Ledger())
    rest = llama.forward([Segment(0, [4, 5])], cache)
    assert_close(rest[0], plain_logits(llama, [1, 2, 3, 4, 5])[-1])


def test_a_cache_of_another_model_is_refused() -> None:
    other = ContiguousCache(SMALL, 10)
    other.open(0, 10)
    what = r"\(layers, 2 \* kv_heads, head_dim, precision\) is \(2, 4, 6, 'float32'\), not \(2, 4, 6, 'float64'\)"
    with pytest.raises(ValueError, match=what):
        model().forward([Segment(0, [1])], other)
