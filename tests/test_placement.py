"""Prefill placement in the engine: by hand, on the H100, and what must hold whatever comes.

The random systems of test_engine.py go through every placement too, against the reference engine.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simserve.metrics import itl_max_s, run_metrics, token_gaps, ttft_s
from simserve.records import Records
from simserve.simulation import simulate
from tests.support import TABLE, Row, assert_identical, scenario, serve, workload
from tests.test_engine import PLAIN, STEP, UNLIMITED, check, linear_costs, requests, systems, ties

BOTH = pytest.mark.parametrize("fast_forward", [True, False])


def orca(rows: list[Row], prefill: Any, fast_forward: bool = True, **system: Any) -> Records:
    usual = {"engine": "continuous", "max_batch_size": 3, "memory": UNLIMITED, "cost": STEP}
    return serve(rows, fast_forward=fast_forward, **{**usual, **system}, prefill=prefill)


def chunked(budget_tokens: int) -> dict[str, Any]:
    return {"kind": "chunked", "budget_tokens": budget_tokens}


# By hand.

# Three requests at 0, prompts of 2, 7 and 1 tokens, outputs of 5, 2 and 3; a budget of 4 tokens.
#
#   iteration   r0        r1          r2       tokens   KV read   KV stored after it
#   0           prompt 2  prompt 2    .        4        0         2 + 2
#   1           decode    prompt 3    .        4        2 + 2     3 + 5
#   2           decode    prompt 2    prompt 1 4        3 + 5     4 + 7 + 1
#   3           decode    decode      decode   3        4 + 7 + 1 5 + 8 + 2
#   4           decode                decode   2        5 + 2     6 + 3
#
# r1 has its first token when its last piece ends; r2 is admitted into what that piece leaves of the budget.
PIECES = [(0.0, 2, 5), (0.0, 7, 2), (0.0, 1, 3)]


@BOTH
def test_pieces_fill_the_budget(fast_forward: bool) -> None:
    records = orca(PIECES, chunked(4), fast_forward)
    iterations = records.iterations
    assert iterations.prefill_tokens.tolist() == [4, 3, 3, 0, 0]
    assert iterations.decode_sequences.tolist() == [0, 1, 1, 3, 2]
    assert iterations.running.tolist() == [2, 2, 3, 3, 2]
    assert records.waiting.tolist() == [1, 1, 0, 0, 0]
    assert iterations.kv_stored_tokens.tolist() == [4, 8, 12, 15, 9]
    assert records.requests.admitted_iteration.tolist() == [0, 0, 2]
    assert records.first_token_s.tolist() == [1, 3, 3]
    assert records.finish_s.tolist() == [5, 4, 5]


def test_a_piece_reads_the_pieces_before_it() -> None:
    # 1 s a step and 1 s for each token of KV read: 1 + 0, 1 + 4, 1 + 8, 1 + 12, 1 + 7.
    records = orca(PIECES, chunked(4), cost={"kind": "linear", "step_s": 1.0, "context_token_s": 1.0})
    assert np.diff(records.iterations.end_s, prepend=0.0).tolist() == [1, 5, 9, 13, 8]


def test_a_lone_prompt_takes_as_many_pieces_as_its_budgets() -> None:
    for prompt, pieces in ((8, 1), (9, 2), (16, 2), (17, 3)):
        records = orca([(0.0, prompt, 1)], chunked(8))
        assert records.iterations.prefill_tokens.tolist() == [8] * (pieces - 1) + [prompt - 8 * (pieces - 1)]
        assert records.requests.admitted_iteration.tolist() == [0]
        assert records.first_token_s.tolist() == records.finish_s.tolist() == [pieces]


def test_an_unfinished_prompt_holds_a_seat_and_its_memory() -> None:
    # Two seats. r0's prompt of 10 takes the iterations 0 to 2 (4 + 4 + 2); r1 gets the second seat and what the last
    # piece leaves, 2 of its 3 tokens, though r2, of one token, would fit. Iteration 3 has 3 tokens for r1, beside r0's
    # decode, and needs one: r1 ends with it, as does r0, and r2 comes in.
    rows = [(0.0, 10, 2), (0.0, 3, 1), (0.0, 1, 1)]
    records = orca(rows, chunked(4), max_batch_size=2, memory={"kind": "reservation", "reserve": "oracle"})
    assert records.iterations.prefill_tokens.tolist() == [4, 4, 4, 1, 1]
    assert records.iterations.running.tolist() == [1, 1, 2, 2, 1]
    assert records.iterations.kv_reserved_tokens.tolist() == [12, 12, 16, 16, 2]
    assert records.iterations.kv_stored_tokens.tolist() == [4, 8, 12, 14, 1]


# Prompts first. 1 s a step, 1 s for each prompt token, 1 s for each token of KV read. r0 has 2 prompt and 4 output
# tokens; r1 comes at 4 with 3 and 3, r2 at 9 with 1 and 2.
#
#   iteration   time     runs         KV read      tokens of
#   0            0-3     prompt r0    0            r0
#   1            3-6     decode       2            r0
#   2            6-10    prompt r1    0            r1
#   3           10-12    prompt r2    0            r2
#   4           12-20    decode       3 + 3 + 1    r0, r1, r2
#   5           20-29    decode       4 + 4        r0, r1
#
# r0 pauses from 6 to 12, so three gaps of different length end in iteration 4: 20 - 6, 20 - 10 and 20 - 12.
PAUSED = [(0.0, 2, 4), (4.0, 3, 3), (9.0, 1, 2)]
ALL_RATES = {"kind": "linear", "step_s": 1.0, "prefill_token_s": 1.0, "context_token_s": 1.0}


@BOTH
def test_prompts_first_and_decodes_wait(fast_forward: bool) -> None:
    records = orca(PAUSED, "first", fast_forward, cost=ALL_RATES)
    iterations = records.iterations
    assert iterations.end_s.tolist() == [3, 6, 10, 12, 20, 29]
    assert iterations.prefill_tokens.tolist() == [2, 0, 3, 1, 0, 0]
    assert iterations.decode_sequences.tolist() == [0, 1, 0, 0, 3, 2]
    assert iterations.running.tolist() == [1, 1, 2, 3, 3, 2]
    assert iterations.kv_stored_tokens.tolist() == [2, 3, 3 + 3, 3 + 3 + 1, 4 + 4 + 2, 5 + 5]
    assert records.first_token_s.tolist() == [3, 10, 12]
    assert records.finish_s.tolist() == [29, 29, 20]


def test_gaps_of_several_lengths_end_in_one_iteration() -> None:
    records = orca(PAUSED, "first", cost=ALL_RATES)
    gaps_s, counts = token_gaps(records)
    assert sorted(np.repeat(gaps_s, counts).tolist()) == [3, 8, 9, 9, 10, 14]
    assert itl_max_s(records).tolist() == [14, 10, 8]
    assert run_metrics(records, None, 1)["itl_mean_s"] == pytest.approx((3 + 8 + 9 + 9 + 10 + 14) / 6)


def test_the_same_requests_mixed() -> None:
    # r1 is admitted at 6, beside r0's decode: 1 + 3 + 3 s. r2 at 13, beside two: 1 + 1 + (4 + 3) s; r0 leaves with it.
    # r1 and r2 decode with 4 and 1 tokens of KV: 1 + 5 s.
    records = orca(PAUSED, "mixed", cost=ALL_RATES)
    assert records.iterations.end_s.tolist() == [3, 6, 13, 22, 28]
    assert itl_max_s(records).tolist() == [9, 9, 6]


# Thirty-two decodes at context 1024 meet a prompt of 4096 tokens, on an ideal H100 with Llama-3-8B: 989.4e12 FLOP/s,
# 3.35e12 B/s, 15,009,316,864 B of weights streamed. 32 prompts of 16 tokens are 512: one iteration under any placement.
# After 1,008 decodes every context is 16 + 1008 = 1024, and at that moment, to the last digit, the long prompt arrives.

DECODES = [(0.0, 16, 1 + 1008 + 12)] * 32


def step_ms(new: int, past: int, context: int, sequences: int = 32, emits: bool = False) -> float:
    """A piece of `new` prompt tokens after `past`, beside decodes with `context` tokens of KV each."""
    pairs = new * past + new * (new + 1) // 2 + sequences * (context + 1)
    flop = 13_958_643_712 * (new + sequences) + 524_288 * pairs + 1_050_673_152 * (sequences + emits)
    traffic = 15_009_316_864 + 131_072 * (past + new + sequences * (context + 1))
    return 1e3 * max(flop / 989.4e12, traffic / 3.35e12)


def long_prompt(prefill: Any) -> tuple[np.ndarray, Records]:
    """Return the milliseconds of the iterations from the arrival of the long prompt on."""
    system = {
        "engine": "continuous",
        "max_batch_size": 64,
        "prefill": prefill,
        "cost": {"kind": "roofline", "weights": "streamed"},
    }
    whole = scenario(system, hardware={"compute_efficiency": 1.0, "bandwidth_efficiency": 1.0})

    def served(rows: list[Row]) -> Records:
        return simulate(workload(rows), whole.systems["a"], whole.model, whole.hardware)

    alone = served(DECODES).iterations
    assert alone.prefill_tokens.tolist() == [512] + [0] * 1020
    assert alone.kv_stored_tokens[1008] == 32 * 1024
    records = served([*DECODES, (float(alone.end_s[1008]), 4096, 2)])
    assert records.requests.admitted_iteration[-1] == 1009
    iterations = records.iterations
    return 1e3 * (iterations.end_s - iterations.start_s)[1009:], records


def test_long_prompt_mixed() -> None:
    # 4,128 new tokens; 4096 x 4097 / 2 = 8,390,656 pairs of the prompt and 32 x 1025 = 32,800 of the decodes; 33 emit:
    # 57.6213 + 4.4164 + 0.0347 TFLOP = 62.0723 TFLOP. Memory would take 5.9 ms.
    steps_ms, records = long_prompt("mixed")
    assert steps_ms[0] == pytest.approx(62.0723e12 / 989.4e12 * 1e3, rel=1e-5)
    assert steps_ms[0] == pytest.approx(step_ms(4096, 0, 1024, emits=True), rel=1e-9)
    assert round(steps_ms[0], 1) == 62.7
    assert 1e3 * ttft_s(records)[-1] == pytest.approx(steps_ms[0], rel=1e-9)
    assert 1e3 * itl_max_s(records)[:32] == pytest.approx(np.full(32, steps_ms[0]), rel=1e-9)


def test_long_prompt_in_pieces() -> None:
    # Budget 512, 32 of it decodes: eight pieces of 480 and one of 256. The first: 512 new tokens, 480 x 481 / 2 + 32,800
    # = 148,240 pairs, 32 emit: 7.1468 + 0.0777 + 0.0336 TFLOP at 989.4: 7.34 ms. Each further one has 480 x 480 + 32
    # pairs more: + 0.1221 ms, 8.19 ms for the eighth. The ninth reads more than it computes: 15,009,316,864 B and
    # 131,072 B for each of 4,096 + 32 x 1033 tokens of KV: 5.93 ms against 4.65 ms.
    # Together 8 x 7.3359 + 28 x 0.1221 + 5.9340 = 68.04 ms. (Were the KV written also read again, the ninth would take
    # 0.01 ms more, and all of them 68.05.)
    steps_ms, records = long_prompt(chunked(512))
    iterations = records.iterations
    assert iterations.prefill_tokens[1009:1019].tolist() == [480] * 8 + [256, 0]
    assert iterations.decode_sequences[1009:1019].tolist() == [32] * 9 + [33]
    expected_ms = [step_ms(480, 480 * i, 1024 + i) for i in range(8)] + [step_ms(256, 3840, 1032, emits=True)]
    assert steps_ms[:9] == pytest.approx(expected_ms, rel=1e-9)
    assert steps_ms[:9] == pytest.approx([7.3359 + 0.1221 * i for i in range(8)] + [5.9340], abs=3e-4)
    assert steps_ms[:9].max() < 8.2
    assert steps_ms[:9].sum() == pytest.approx(68.04, abs=0.005)
    assert 1e3 * ttft_s(records)[-1] == pytest.approx(steps_ms[:9].sum(), rel=1e-9)
    # Against one iteration: the longest gap is 7.7 times shorter, the prompt takes 8.5 % longer.
    whole_ms = step_ms(4096, 0, 1024, emits=True)
    assert 1e3 * itl_max_s(records)[:32] == pytest.approx(np.full(32, steps_ms[7]), rel=1e-9)
    assert whole_ms / steps_ms[7] == pytest.approx(7.66, abs=0.005)
    assert steps_ms[:9].sum() / whole_ms == pytest.approx(1.0845, abs=0.0005)


def test_long_prompt_first() -> None:
    # Alone the prompt takes 57.1746 + 4.3991 + 0.0011 TFLOP at 989.4: 62.23 ms. Then 33 decodes: 15,009,316,864 B and
    # 131,072 B for each of 32 x 1025 + 4097 tokens: 5.92 ms. The 32 wait for both.
    steps_ms, records = long_prompt("first")
    assert records.iterations.decode_sequences[1009:1011].tolist() == [0, 33]
    assert steps_ms[0] == pytest.approx(61.5748e12 / 989.4e12 * 1e3, rel=1e-5)
    decode_ms = 1e3 * (15_009_316_864 + 131_072 * (32 * 1025 + 4097)) / 3.35e12
    assert steps_ms[1] == pytest.approx(decode_ms, rel=1e-9)
    longest_ms = [steps_ms[0] + decode_ms] * 32 + [decode_ms]
    assert 1e3 * itl_max_s(records) == pytest.approx(np.array(longest_ms), rel=1e-9)


# Whatever comes.


@st.composite
def in_pieces(draw: st.DrawFn) -> dict[str, Any]:
    """A system with a budget that prompts of 1 to 20 tokens fill."""
    system = draw(systems(linear_costs()))
    system.update(engine="continuous", prefill=chunked(system["max_batch_size"] + draw(st.integers(0, 15))))
    return system


@PLAIN
@given(requests(ties), in_pieces())
def test_budget(rows: list[Row], system: dict[str, Any]) -> None:
    """Never more than the budget; no less while a prompt is unfinished; and one such prompt at a time."""
    records = serve(rows, **system)
    iterations, requests = records.iterations, records.requests
    tokens = iterations.prefill_tokens + iterations.decode_sequences
    budget = system["prefill"]["budget_tokens"]
    assert tokens.max(initial=0) <= budget
    begun, first = (
        column[requests.finished] for column in (requests.admitted_iteration, requests.first_token_iteration)
    )
    cut = np.zeros(len(iterations), dtype=np.int64)
    for start, stop in zip(begun, first, strict=True):
        cut[start:stop] += 1
    assert cut.max(initial=0) <= 1
    assert np.all(tokens[cut == 1] == budget)
    # What has begun goes on before anything else begins: first tokens come in the order of admission.
    in_order = np.lexsort((first, begun))
    assert np.all(np.diff(first[in_order]) >= 0)


@PLAIN
@given(requests(ties), in_pieces())
def test_a_budget_never_exceeded_is_no_budget(rows: list[Row], system: dict[str, Any]) -> None:
    mixed = serve(rows, **{**system, "prefill": "mixed"})
    tokens = (mixed.iterations.prefill_tokens + mixed.iterations.decode_sequences).max(initial=0)
    ample = max(int(tokens), system["max_batch_size"])
    # A head for which no budget is left is not tried, so that memory has no occasion to refuse it.
    assert_identical(serve(rows, **{**system, "prefill": chunked(ample)}), mixed, but=("refused",))
    # One token less cuts the fullest iteration.
    assume(tokens > system["max_batch_size"])
    tight = serve(rows, **{**system, "prefill": chunked(ample - 1)}).iterations
    assert tight.prefill_tokens.tolist() != mixed.iterations.prefill_tokens.tolist()


@PLAIN
@given(requests(ties), systems(linear_costs()))
def test_prompts_first_never_share(rows: list[Row], system: dict[str, Any]) -> None:
    system.update(engine="continuous", prefill="first")
    iterations = serve(rows, **system).iterations
    assert not np.any((iterations.prefill_tokens > 0) & (iterations.decode_sequences > 0))


# A placement of the user's own may leave prompts nothing while sequences decode.


@BOTH
def test_a_prompt_that_stands_still_keeps_its_memory(fast_forward: bool) -> None:
    # All of it beside no decode, 2 tokens beside one, nothing beside two. r0 has 1 prompt and 5 output tokens; at 1 come
    # r1 with 3 and 4, r2 with 9 and 2. A second a step.
    #
    #   iteration   r0        r1         r2         KV stored after it
    #   0           prompt 1                        1
    #   1           decode    prompt 2   .          2 + 2
    #   2           decode    prompt 1   prompt 1   3 + 3 + 1
    #   3           decode    decode     stands     4 + 4 + 1
    #   4           decode    decode     stands     5 + 5 + 1
    #   5                     decode     prompt 2   6 + 3
    #   6                                prompt 6   9
    #   7                                decode     10
    rows = [(0.0, 1, 5), (1.0, 3, 4), (1.0, 9, 2)]
    records = orca(rows, {"kind": TABLE, "budgets": [None, 2, 0]}, fast_forward)
    assert records.iterations.prefill_tokens.tolist() == [1, 2, 2, 0, 0, 2, 6, 0]
    assert records.iterations.kv_stored_tokens.tolist() == [1, 4, 7, 9, 11, 9, 9, 10]


@BOTH
def test_overdue_while_there_is_no_budget(fast_forward: bool) -> None:
    # Nothing beside two decodes. r2 comes at 1 and is overdue at 4, but r0 and r1 decode till r1 leaves at 30.
    rows = [(0.0, 1, 40), (0.0, 1, 30), (1.0, 3, 4)]
    order = {"kind": "sjf", "aging": {"max_wait_s": 3.0}}
    records = orca(rows, {"kind": TABLE, "budgets": [None, None, 0]}, fast_forward, order=order)
    assert records.finish_s.tolist() == [40, 30, 34]


@PLAIN
@given(
    requests(ties),
    systems(linear_costs()),
    st.lists(st.sampled_from((0, 0, 1, 5, None)), max_size=5),
    st.sampled_from((1, 7, None)),
    st.booleans(),
)
def test_any_table_of_budgets(
    rows: list[Row], system: dict[str, Any], budgets: list[int | None], alone: int | None, pauses_decodes: bool
) -> None:
    prefill = {"kind": TABLE, "budgets": [alone, *budgets], "pauses_decodes": pauses_decodes}
    check(rows, {**system, "engine": "continuous", "prefill": prefill})
