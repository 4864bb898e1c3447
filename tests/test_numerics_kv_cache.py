"""The KV caches: what goes in comes out, room is given and taken back, and a full cache says so."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.numerics import ContiguousCache, KVCache, Ledger, LlamaConfig, PagedCache

CONFIG = LlamaConfig(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, ffn=8, vocab=8)
KV_BYTES = 2 * 4 * 4  # of one token in one layer: a key and a value of 4 float32 each

both = pytest.mark.parametrize("kind", [ContiguousCache, PagedCache])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Requests come, grow and go, within 3 requests of 12 tokens."""
    here: dict[int, int] = {}
    events = []
    for _ in range(draw(st.integers(1, 25))):
        request_id = draw(st.integers(0, 2))
        if request_id not in here:
            events.append(("open", request_id, 0))
            here[request_id] = 0
        elif here[request_id] < 12 and draw(st.booleans()):
            new = draw(st.integers(1, 12 - here[request_id]))
            events.append(("grow", request_id, new))
            here[request_id] += new
        else:
            events.append(("close", request_id, 0))
            del here[request_id]
    return events


@both
@settings(deadline=None)
@given(events=histories(), block_tokens=st.integers(1, 5))
def test_what_goes_in_comes_out(kind: type[KVCache], events: list[tuple[str, int, int]], block_tokens: int) -> None:
    # For 3 requests of 12 tokens, which take up to 15 in blocks of 5.
    cache = (
        ContiguousCache(CONFIG, 36) if kind is ContiguousCache else PagedCache(CONFIG, 45, block_tokens=block_tokens)
    )
    empty = cache.free_tokens
    rng = np.random.default_rng(0)
    model: dict[int, list[np.ndarray]] = {}
    for event, request_id, new in events:
        if event == "open":
            cache.open(request_id, 12)
            model[request_id] = [np.empty((2, 0, 4), np.float32)] * 2
        elif event == "close":
            cache.close(request_id)
            del model[request_id]
        else:
            cache.grow({request_id: new})
            for layer in range(2):
                kv = rng.standard_normal((new, 2, 4)).astype(np.float32)
                ledger = Ledger()
                whole = cache.extend(layer, request_id, kv, ledger)
                past = model[request_id][layer]
                model[request_id][layer] = np.concatenate([past, kv.swapaxes(0, 1)], axis=1)
                assert (whole == model[request_id][layer]).all()
                read, written = past.shape[1], new
                assert (ledger.layer_kv_read_tokens, ledger.layer_kv_written_tokens) == (read, written)
                assert (ledger.kv_read_bytes, ledger.kv_written_bytes) == (read * KV_BYTES, written * KV_BYTES)
    assert {request_id: cache.length(request_id) for request_id in model} == {
        request_id: layers[0].shape[1] for request_id, layers in model.items()
    }
    for request_id in model:
        cache.close(request_id)
    assert cache.free_tokens == empty


def test_contiguous_reserves_at_once() -> None:
    cache = ContiguousCache(CONFIG, 10)
    cache.open(0, 7)
    assert cache.free_tokens == 3
    with pytest.raises(ValueError, match="KV cache full: request 1 reserves 4 tokens, 3 of 10 are free"):
        cache.open(1, 4)
    cache.close(0)
    cache.open(1, 10)
    assert cache.free_tokens == 0


def test_paged_takes_blocks_as_it_grows() -> None:
    cache = PagedCache(CONFIG, 13, block_tokens=4)  # three blocks; a rest of one token is left unused
    cache.open(0, 100)
    cache.open(1, 100)
    assert cache.free_tokens == 12
    cache.grow({0: 5, 1: 1})
    assert cache.free_tokens == 0
    with pytest.raises(ValueError, match="KV cache full: needs 2 blocks of 4 tokens, 0 are free"):
        cache.grow({1: 4, 0: 4})
    assert (cache.length(0), cache.length(1)) == (5, 1)
    cache.grow({0: 3, 1: 3})  # into the blocks that they have
    cache.close(0)
    assert cache.free_tokens == 8


@both
def test_unknown_and_twice(kind: type[KVCache]) -> None:
    cache = kind(CONFIG, 100, np.float32)
    cache.open(3, 50)
    with pytest.raises(ValueError, match="request 3 is in the KV cache already"):
        cache.open(3, 50)
    for call in (cache.close, cache.length, lambda request_id: cache.grow({3: 1, request_id: 1})):
        with pytest.raises(ValueError, match=r"request 4 is not in the KV cache, which holds \[3\]"):
            call(4)
    with pytest.raises(ValueError, match="request 3 would have 51 tokens of KV; it was opened for 50"):
        cache.grow({3: 51})
    assert cache.length(3) == 0


@both
def test_no_capacity(kind: type[KVCache]) -> None:
    with pytest.raises(ValueError, match="a KV cache holds at least 1 token, not 0"):
        kind(CONFIG, 0, np.float32)


@pytest.mark.parametrize("block_tokens", [0, 9])
def test_impossible_blocks(block_tokens: int) -> None:
    with pytest.raises(ValueError, match=f"block_tokens must be 1 to 8, the capacity, not {block_tokens}"):
        PagedCache(CONFIG, 8, block_tokens=block_tokens)
