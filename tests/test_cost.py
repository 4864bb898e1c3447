"""Iteration times, by hand; and the two methods of a cost model against each other."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from simserve.batch import Batch
from simserve.catalog import GPU_BY_NAME, MODEL_BY_NAME, Hardware
from simserve.cost import CostModel, Linear, Roofline
from simserve.cost.base import SHORTEST_ARRAY

LLAMA, H100 = MODEL_BY_NAME["llama-3-8b"], Hardware()
FLOP_PER_S, BYTES_PER_S = 989.4e12 * 0.70, 3.35e12 * 0.80


def roofline(**fields: Any) -> CostModel:
    return Roofline(**fields).price(LLAMA, H100)


def decode(sequences: int, context_tokens: int) -> Batch:
    return Batch((), 0, sequences, context_tokens)


def prefill(new_tokens: int, past_tokens: int = 0, emits: bool = True) -> Batch:
    return Batch([(None, new_tokens, past_tokens)], int(emits), 0, 0)


def test_the_lecture_s_decode_steps() -> None:
    # Batch 1: (16,060,522,496 + 1,025 x 131,072) B at 2.68e12 B/s = 6.04 ms.
    # Batch 256: (16,060,522,496 + 256 x 1,025 x 131,072) B = 5.045e10 B: 18.83 ms; its arithmetic takes 5.8 ms.
    cost = roofline()
    alone_s, full_s = cost.iteration_s(decode(1, 1024)), cost.iteration_s(decode(256, 256 * 1024))
    assert alone_s == pytest.approx((16_060_522_496 + 1_025 * 131_072) / BYTES_PER_S, rel=1e-15)
    assert full_s == pytest.approx((16_060_522_496 + 256 * 1_025 * 131_072) / BYTES_PER_S, rel=1e-15)
    assert round(alone_s * 1000) == 6
    assert round(full_s * 1000) == 19


def test_sequences_in_a_20_ms_step() -> None:
    # The largest decode batches within 20 ms: 558 with 512 past tokens each, 34 with 8192.
    cost = roofline()
    for context, most in ((512, 558), (8192, 34)):
        assert cost.iteration_s(decode(most, most * context)) <= 0.020
        assert cost.iteration_s(decode(most + 1, (most + 1) * context)) > 0.020


def test_prefill_is_bound_by_arithmetic() -> None:
    # 4096 x 13,958,643,712 + 4096 x 4097 / 2 x 524,288 + 1,050,673,152 = 6.2 x 10^13 FLOP: 88.8 ms.
    flop = 4096 * 13_958_643_712 + 8_390_656 * 524_288 + 1_050_673_152
    assert roofline().iteration_s(prefill(4096)) == pytest.approx(flop / FLOP_PER_S, rel=1e-15)


def test_short_prefill_is_bound_by_the_weights() -> None:
    # One token: 15 GFLOP take 0.02 ms, the weights 6 ms.
    assert roofline().iteration_s(prefill(1)) == pytest.approx((16_060_522_496 + 131_072) / BYTES_PER_S, rel=1e-15)


def test_chunk_reads_its_past_and_emits_only_at_the_end() -> None:
    # 512 new tokens after 3584: 512 x 3584 + 512 x 513 / 2 = 1,966,336 pairs; 512 x 14 GFLOP + 1 TFLOP take 11.8 ms,
    # the weights and 4096 tokens of KV 6.2 ms.
    flop = 512 * 13_958_643_712 + 1_966_336 * 524_288
    assert roofline().iteration_s(prefill(512, 3584, emits=False)) == pytest.approx(flop / FLOP_PER_S, rel=1e-15)
    last = flop + 1_050_673_152
    assert roofline().iteration_s(prefill(512, 3584)) == pytest.approx(last / FLOP_PER_S, rel=1e-15)
    # One new token after 3584 is bound by memory: 3584 tokens read and one written.
    traffic = 16_060_522_496 + 3_585 * 131_072
    assert roofline().iteration_s(prefill(1, 3584)) == pytest.approx(traffic / BYTES_PER_S, rel=1e-15)


def test_exercise_9_on_an_ideal_gpu() -> None:
    # 32 decodes at context 1024 beside a prompt of 4096: 62.7 ms in one piece; in steps of 512 tokens in all (480 + 32)
    # eight pieces of 480 and one of 256, none over 8.2 ms, 68.1 ms in all: 8.5 % more.
    ideal = Hardware(compute_efficiency=1.0, bandwidth_efficiency=1.0)
    cost = Roofline(weights="streamed").price(LLAMA, ideal)
    assert cost.iteration_s(decode(32, 32 * 1024)) == pytest.approx(5.8e-3, abs=5e-5)
    whole_s = cost.iteration_s(Batch([(None, 4096, 0)], 1, 32, 32 * 1024))
    steps_s, done, context = [], 0, 32 * 1024
    while done < 4096:
        piece = min(480, 4096 - done)
        steps_s.append(cost.iteration_s(Batch([(None, piece, done)], int(done + piece == 4096), 32, context)))
        done, context = done + piece, context + 32
    assert len(steps_s) == 9
    assert whole_s == pytest.approx(62.7e-3, abs=5e-5)
    assert max(steps_s) == pytest.approx(8.2e-3, abs=5e-5)
    assert sum(steps_s) / whole_s == pytest.approx(1.085, abs=1e-3)


def test_streamed_weights_leave_out_the_embedding_table() -> None:
    # 15,009,316,864 B and one token of KV, at 2.68e12 B/s.
    expected_s = (15_009_316_864 + 131_072) / BYTES_PER_S
    assert roofline(weights="streamed").iteration_s(decode(1, 0)) == pytest.approx(expected_s, rel=1e-15)


def test_overhead_is_added_to_every_iteration() -> None:
    plain, slow = roofline(), roofline(overhead_s=0.001)
    for batch in (decode(3, 300), prefill(4096), prefill(1)):
        assert slow.iteration_s(batch) == pytest.approx(plain.iteration_s(batch) + 0.001, rel=1e-15)


def test_hardware_and_model_matter() -> None:
    # Memory-bound on an H200 at full bandwidth: bytes / 4.8e12.
    h200 = Hardware(gpu=GPU_BY_NAME["h200"], bandwidth_efficiency=1.0)
    cost = Roofline().price(LLAMA, h200)
    assert cost.iteration_s(decode(1, 0)) == pytest.approx((16_060_522_496 + 131_072) / 4.8e12, rel=1e-15)
    big = Roofline().price(MODEL_BY_NAME["llama-3-70b"], h200)
    assert big.iteration_s(decode(1, 0)) == pytest.approx((2 * 70_553_706_496 + 327_680) / 4.8e12, rel=1e-15)


def test_linear() -> None:
    cost = Linear(step_s=1.0, prefill_token_s=10.0, decode_sequence_s=100.0, context_token_s=1000.0).price(LLAMA, H100)
    # 1 + 7 x 10 + 3 x 100 + (20 + 4) x 1000: the chunk's 4 past tokens are read too.
    batch = Batch([(None, 5, 4), (None, 2, 0)], 2, 3, 20)
    assert cost.iteration_s(batch) == 1 + 70 + 300 + 24_000
    # Context grows by one token a sequence: 20, 23, 26.
    assert list(cost.decode_s(3, 20, 3)) == [301 + 20_000, 301 + 23_000, 301 + 26_000]


@pytest.mark.parametrize("rates", [{}, {"prefill_token_s": 1.0}, {"context_token_s": 1.0}, {"step_s": 0}])
def test_linear_decodes_take_time(rates: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="must take time"):
        Linear(**rates)


seconds = st.floats(0, 10)
linears = st.builds(
    Linear,
    step_s=st.floats(1e-6, 10),
    prefill_token_s=seconds,
    decode_sequence_s=seconds,
    context_token_s=seconds,
)
rooflines = st.builds(
    lambda weights, overhead_s, model, gpu: Roofline(weights=weights, overhead_s=overhead_s).price(
        MODEL_BY_NAME[model], Hardware(gpu=GPU_BY_NAME[gpu], compute_efficiency=0.61, bandwidth_efficiency=0.83)
    ),
    st.sampled_from(("all", "streamed")),
    st.just(0.0) | st.floats(0, 0.01),
    st.sampled_from(sorted(MODEL_BY_NAME)),
    st.sampled_from(sorted(GPU_BY_NAME)),
)
few_or_many = st.integers(1, SHORTEST_ARRAY - 1) | st.integers(SHORTEST_ARRAY, 300)


@settings(deadline=None)
@given(linears | rooflines, st.integers(1, 2000), st.integers(1, 8192), st.integers(0, 500), few_or_many)
def test_a_stretch_is_its_steps_to_the_last_bit(
    cost: CostModel, sequences: int, context: int, more: int, steps: int
) -> None:
    context_tokens = sequences * context + more
    stretch_s = cost.decode_s(sequences, context_tokens, steps)
    assert isinstance(stretch_s, np.ndarray) == (steps >= SHORTEST_ARRAY)
    each_s = [cost.iteration_s(decode(sequences, context_tokens + i * sequences)) for i in range(steps)]
    assert list(stretch_s) == each_s
    assert np.all(np.diff(stretch_s) >= 0)  # what fast-forward counts on


def test_a_stretch_that_turns_from_arithmetic_to_memory() -> None:
    # 400 sequences from a context of 1: arithmetic takes 38.5 ms and 1.3 us more each step, traffic 7.9 ms and 25.7 us
    # more; after some 1,250 steps traffic takes longer.
    hardware = Hardware(gpu=GPU_BY_NAME["a100-80g"], compute_efficiency=0.5, bandwidth_efficiency=1.0)
    cost = Roofline().price(MODEL_BY_NAME["llama-3-8b"], hardware)
    sequences, steps = 400, 4000
    stretch_s = cost.decode_s(sequences, sequences, steps)
    assert list(stretch_s) == [cost.iteration_s(decode(sequences, sequences * (1 + i))) for i in range(steps)]
    slopes = np.diff(stretch_s)
    assert slopes[0] == pytest.approx(400 * 524_288 / 156e12, rel=1e-6)
    assert slopes[-1] == pytest.approx(400 * 131_072 / 2.039e12, rel=1e-6)
