"""The ledger of the forward pass against the simulator's own counts: `Batch.work()`, `Model`, the roofline. All whole numbers."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.batch import Batch, Work
from simserve.catalog import Hardware, Model
from simserve.cost.roofline import Roofline
from simserve.numerics import MINI, Ledger, Llama, LlamaConfig, Waste, forward_padded, padding
from simserve.request import Request
from tests.test_numerics_forward import SMALL, mixed_step, model

ARCHITECTURES = (
    SMALL.model_copy(update={"max_positions": 256}),
    SMALL.model_copy(update={"kv_heads": 4, "max_positions": 256}),  # multi-head
    SMALL.model_copy(update={"kv_heads": 1, "tied_embeddings": True, "max_positions": 256}),  # multi-query
    MINI,
)

Shape = tuple[int, int, bool]
"""New and past tokens, and whether a token comes out."""


def catalog_model(llama: Llama) -> Model:
    """Return the model as the simulator has it."""
    sizes = llama.config.model_dump(include=set(Model.model_fields))
    return Model(name="mini", bytes_per_value=np.dtype(llama.precision).itemsize, **sizes)


def batch(shapes: Sequence[Shape]) -> Batch:
    """Return the batch as the simulator has it: decodes are a group, everything else is pieces of prompts."""
    decodes = [past for new, past, emits in shapes if new == 1 and past and emits]
    pieces = [shape for shape in shapes if not (shape[0] == 1 and shape[1] and shape[2])]
    requests = [(Request(0, 0.0, new + past, 1, new + past + 1), new, past) for new, past, _ in pieces]
    return Batch(requests, sum(emits for _, _, emits in pieces), len(decodes), sum(decodes))


def counted(llama: Llama, shapes: Sequence[Shape], kind: str = "contiguous") -> Ledger:
    """Return the ledger of one ragged pass."""
    segments, cache = mixed_step(llama, [(new, past) for new, past, _ in shapes], kind)
    ledger = Ledger()
    emits = [emits for _, _, emits in shapes]
    llama.forward([s._replace(emits=e) for s, e in zip(segments, emits, strict=True)], cache, ledger)
    return ledger


mixtures = st.lists(
    st.tuples(st.integers(1, 9) | st.just(1), st.integers(0, 20), st.booleans()), min_size=1, max_size=6
)


@settings(deadline=None, max_examples=100)
@given(
    mixtures,
    st.sampled_from(ARCHITECTURES),
    st.sampled_from((np.float32, np.float64)),
    st.sampled_from(("contiguous", "paged")),
)
def test_the_ledger_is_what_the_cost_model_says(
    shapes: list[Shape], config: LlamaConfig, precision: type[np.float32], kind: str
) -> None:
    llama = model(config, precision)
    ledger, catalog, work = counted(llama, shapes, kind), catalog_model(llama), batch(shapes).work()
    assert ledger.work(config.layers) == work

    assert ledger.linear_flop == work.new_tokens * catalog.linear_flop_per_token
    assert ledger.attention_flop == work.attention_pairs * catalog.attention_flop_per_pair
    assert ledger.head_flop == work.emitting * catalog.head_flop_per_token

    size = catalog.bytes_per_value
    assert ledger.linear_bytes == catalog.linear_parameters * size
    assert ledger.embedding_bytes == work.new_tokens * config.hidden * size
    assert ledger.head_bytes == (catalog.embedding_parameters * size if work.emitting else 0)
    assert ledger.kv_read_bytes == work.kv_read_tokens * catalog.kv_bytes_per_token
    assert ledger.kv_written_bytes == work.kv_written_tokens * catalog.kv_bytes_per_token


@settings(deadline=None, max_examples=30)
@given(mixtures, st.sampled_from(ARCHITECTURES))
def test_the_roofline_prices_what_the_ledger_counts(shapes: list[Shape], config: LlamaConfig) -> None:
    """At 1 FLOP/s an iteration takes the ledger's FLOP in seconds, at 1 byte/s its bytes: weights streamed and KV."""
    llama = model(config, np.float32)
    shapes = [*shapes, (1, 3, True)]  # somebody emits, or the ledger would leave the LM head out
    ledger = counted(llama, shapes)
    cost = Roofline(weights="streamed").price(catalog_model(llama), Hardware())
    assert replace(cost, flop_per_s=1.0, bytes_per_s=math.inf).iteration_s(batch(shapes)) == ledger.flop
    streamed = ledger.linear_bytes + ledger.head_bytes + ledger.kv_bytes
    assert replace(cost, flop_per_s=math.inf, bytes_per_s=1.0).iteration_s(batch(shapes)) == streamed


@pytest.mark.parametrize("config", ARCHITECTURES)
def test_every_weight_is_in_the_ledger(config: LlamaConfig) -> None:
    llama = model(config, np.float32)
    ledger = counted(llama, [(1, 0, True)])
    table = 0 if config.tied_embeddings else llama.weights.embedding.nbytes
    assert ledger.linear_bytes + ledger.norm_bytes + ledger.head_bytes + table == catalog_model(llama).weight_bytes


def test_a_decode_by_hand() -> None:
    # SMALL: 2 layers, H = 16, 4 heads of 6, 2 KV heads, F = 24, V = 40; float32. One decode with 10 past tokens.
    # Linear: 16 * (24 + 24) + 24 * 16 + 3 * 16 * 24 = 2304 weights a layer. KV of a token: 2 * 2 * 6 = 24 values a layer.
    ledger = counted(model(precision=np.float32), [(1, 10, True)])
    assert ledger == Ledger(
        linear_flop=2 * 2 * 2304,
        attention_flop=2 * 11 * 4 * 4 * 6,  # 11 pairs: a product for the score and one for the value, 4 heads of 6
        head_flop=2 * 16 * 40,
        linear_bytes=2 * 2304 * 4,
        norm_bytes=5 * 16 * 4,
        embedding_bytes=16 * 4,
        head_bytes=16 * 40 * 4,
        kv_read_bytes=2 * 10 * 24 * 4,
        kv_written_bytes=2 * 24 * 4,
        emitting=1,
        layer_tokens=2,
        layer_pairs=2 * 11,
        layer_kv_read_tokens=2 * 10,
        layer_kv_written_tokens=2,
    )
    assert ledger.work(2) == Work(1, 11, 10, 1, 1)
    assert ledger.waste(2) == Waste(0, 0)


def test_a_dense_prefill_computes_masked_pairs() -> None:
    # 4 queries after 10 past tokens compute 4 * 14 = 56 scores; 3 + 2 + 1 of them are of keys to come.
    ledger = counted(model(), [(4, 10, True)])
    assert ledger.work(2).attention_pairs == 50
    assert ledger.waste(2).masked_pairs == 6
    assert ledger.masked_flop * 50 == ledger.attention_flop * 6


def test_weight_reads_of_the_lecture() -> None:
    """One mixed step of five requests reads 4.88 times fewer weight bytes than five steps, and saves nothing else."""
    llama = model(MINI, np.float32)
    (segments, cache), (alone, same) = mixed_step(llama), mixed_step(llama)
    batched, one_by_one = Ledger(), Ledger()
    llama.forward(segments, cache, batched)
    for segment in alone:
        llama.forward([segment], same, one_by_one)
    ratio = one_by_one.weight_bytes / batched.weight_bytes
    assert round(ratio, 2) == 4.88
    assert one_by_one.embedding_bytes == batched.embedding_bytes  # read by the token, so the ratio is below 5
    assert one_by_one.flop == batched.flop
    assert one_by_one.kv_bytes == batched.kv_bytes
    assert one_by_one.work(2) == batched.work(2) == Work(49, 950, 199, 49, 5)


def test_padding_of_the_lecture() -> None:
    """The padded pass computes 185 tokens for 49 and 22,385 pairs for 950: what the calculator says."""
    llama = model(MINI)
    ledger = Ledger()
    forward_padded(llama, *mixed_step(llama), ledger)
    work, waste = ledger.work(2), ledger.waste(2)
    assert (work.new_tokens, work.new_tokens + waste.padding_tokens) == (49, 185)
    assert (work.attention_pairs, work.attention_pairs + waste.masked_pairs) == (950, 22_385)
    assert ledger.linear_flop == 185 * catalog_model(llama).linear_flop_per_token


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20)), min_size=1, max_size=5))
def test_the_padded_pass_wastes_what_the_calculator_says(shapes: list[tuple[int, int]]) -> None:
    llama, ledger = model(), Ledger()
    forward_padded(llama, *mixed_step(llama, shapes), ledger)
    expected, work, waste = padding(shapes), ledger.work(2), ledger.waste(2)
    assert work == batch([(new, past, True) for new, past in shapes]).work()
    assert work.new_tokens + waste.padding_tokens == expected.computed_tokens
    assert work.attention_pairs + waste.masked_pairs == expected.computed_pairs
    assert (work.new_tokens, work.attention_pairs) == (expected.useful_tokens, expected.useful_pairs)


def test_ledgers_add_up() -> None:
    llama = model()
    segments, cache = mixed_step(llama, [(3, 2), (1, 5)])
    together = Ledger()
    for segment in segments:
        llama.forward([segment], cache, together)
    assert counted(llama, [(3, 2, True)]) + counted(llama, [(1, 5, True)]) == together


def test_a_left_out_layer_is_noticed() -> None:
    with pytest.raises(AssertionError, match="a count of 3 over 2 layers leaves a remainder of 1"):
        Ledger(layer_tokens=3).work(2)
