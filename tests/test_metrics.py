"""Metrics: a tiny run by hand, percentiles against NumPy, and gaps between tokens against the reference engine."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve import metrics
from simserve.metrics import (
    e2e_s,
    iteration_table,
    itl_max_s,
    request_table,
    run_metrics,
    slo_met,
    steady_throughput_tok_per_s,
    token_gaps,
    tpot_s,
    ttft_s,
    weighted_percentiles,
)
from simserve.records import NOT_YET, Records
from simserve.scenario.serving import SLO
from simserve.simulation import run
from simserve.workload import Streams
from tests.support import TABLE, Row, assert_same_gaps_as_reference, chat, scenario, serve, serve_plainly

# Percentiles of values with counts.

pairs = st.tuples(st.floats(0, 1e3) | st.sampled_from((0.0, 1.0, 2.0)), st.integers(1, 40))


@settings(deadline=None)
@given(st.lists(pairs, min_size=1, max_size=30), st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_weighted_percentiles_are_those_of_the_repeated_list(
    weighted: list[tuple[float, int]], percents: list[float]
) -> None:
    values, counts = (np.array(column) for column in zip(*weighted, strict=True))
    percents = [0.0, 50.0, 90.0, 99.0, 100.0, *percents]
    expected = np.percentile(np.repeat(values, counts), percents)
    np.testing.assert_allclose(weighted_percentiles(values, counts, percents), expected, rtol=1e-9, atol=1e-9)


def test_weighted_percentiles_by_hand() -> None:
    # The list 1, 1, 1, 5: positions 0, 1.5, 2.7 and 3 of 0..3; 2.7 lies 0.7 of the way from 1 to 5.
    found = weighted_percentiles(np.array([5.0, 1.0]), np.array([1, 3]), [0, 50, 90, 100])
    assert found == pytest.approx([1, 1, 1 + 0.7 * 4, 5])


# A tiny run. 1 s for every iteration and 1 s for every prompt token; two seats; 100 tokens of memory, requests of up
# to 10.
#
#   r0 comes at 0, 3 prompt and 3 output tokens; r1 at 0, 2 and 1; r2 at 1, 4 and 2; r3 at 13, 9 and 9, too long;
#   r4 at 20, 1 and 3.
#
#   iteration   time     runs                    stored after it   reserved
#   0            0-6     prefill r0 and r1       3 + 2             6 + 3
#   1            6-11    prefill r2, decode r0   4 + 4             6 + 6
#   2           11-12    decode r0, r2           5 + 5             6 + 6
#   3           20-22    prefill r4              1                 4
#   4           22-23    decode r4               2                 4
#   5           23-24    decode r4               3                 4

ROWS = [(0.0, 3, 3), (0.0, 2, 1), (1.0, 4, 2), (13.0, 9, 9), (20.0, 1, 3)]
BOUNDS = SLO(ttft_s=6.0, tpot_s=2.0)


@pytest.fixture
def tiny() -> Records:
    return serve(
        ROWS,
        kv_tokens=100,
        engine="continuous",
        max_batch_size=2,
        memory={"kind": "reservation", "reserve": "oracle", "max_tokens": 10},
        cost={"kind": "linear", "step_s": 1.0, "prefill_token_s": 1.0},
    )


def test_latencies(tiny: Records) -> None:
    nan = np.nan
    np.testing.assert_array_equal(ttft_s(tiny), [6, 6, 10, nan, 2])
    np.testing.assert_array_equal(tpot_s(tiny), [(12 - 6) / 2, nan, 1, nan, 1])
    np.testing.assert_array_equal(e2e_s(tiny), [12, 6, 11, nan, 4])
    np.testing.assert_array_equal(itl_max_s(tiny), [5, nan, 1, nan, 1])
    gaps_s, counts = token_gaps(tiny)
    assert sorted(np.repeat(gaps_s, counts).tolist()) == [1, 1, 1, 1, 5]  # r0 5 and 1, r2 1, r4 1 and 1


def test_slo(tiny: Records) -> None:
    # r0 decodes too slowly, r2 starts too late, r3 is rejected; r1 has one token and no TPOT to miss.
    assert slo_met(tiny, BOUNDS).tolist() == [False, True, False, False, True]
    assert slo_met(tiny, SLO(ttft_s=6.0)).tolist() == [True, True, False, False, True]
    assert slo_met(tiny, SLO(tpot_s=2.0)).tolist() == [False, True, True, False, True]
    assert slo_met(tiny, SLO(ttft_s=5.999, tpot_s=2.0)).tolist() == [False, False, False, False, True]


def test_run_metrics(tiny: Records) -> None:
    expected = {
        "requests": 5,
        "finished": 4,
        "rejected": 1,
        "unfinished": 0,
        "duration_s": 24,
        "output_tokens": 3 + 1 + 2 + 3,
        "throughput_tok_per_s": 9 / 24,
        "steady_throughput_tok_per_s": (3 + 1 + 2 + 1) / 22,
        "request_throughput_per_s": 4 / 24,
        "slo_attainment": 2 / 5,  # of five offered
        "ttft_mean_s": 24 / 4,
        "ttft_p50_s": 6,
        "ttft_p90_s": 6 + 0.7 * 4,  # 2, 6, 6, 10 at position 2.7
        "ttft_p99_s": 6 + 0.97 * 4,
        "ttft_max_s": 10,
        "tpot_mean_s": 5 / 3,
        "tpot_p50_s": 1,
        "tpot_p90_s": 1 + 0.8 * 2,  # 1, 1, 3 at position 1.8
        "tpot_p99_s": 1 + 0.98 * 2,
        "tpot_max_s": 3,
        "itl_mean_s": 9 / 5,
        "itl_p50_s": 1,
        "itl_p90_s": 1 + 0.6 * 4,  # 1, 1, 1, 1, 5 at position 3.6
        "itl_p99_s": 1 + 0.96 * 4,
        "itl_max_s": 5,
        "e2e_mean_s": 33 / 4,
        "e2e_p50_s": 8.5,  # 4, 6, 11, 12
        "e2e_p90_s": 11 + 0.7,
        "e2e_p99_s": 11 + 0.97,
        "e2e_max_s": 12,
        "iterations": 6,
        "busy_s": 6 + 5 + 1 + 2 + 1 + 1,
        "utilization": 16 / 24,
        "batch_mean": (2 * 6 + 2 * 5 + 2 * 1 + 1 * 4) / 16,
        "running_max": 2,
        "kv_reserved_mean": (9 * 6 + 12 * 5 + 12 * 1 + 4 * 4) / (16 * 100),
        "kv_stored_mean": (5 * 6 + 8 * 5 + 10 * 1 + 1 * 2 + 2 * 1 + 3 * 1) / (16 * 100),
        "preemptions": 0,
    }
    found = run_metrics(tiny, BOUNDS, 100)
    assert found == pytest.approx(expected)
    assert tuple(found) == tuple(expected) == metrics.COLUMNS


def test_unfinished_requests_are_counted_and_miss(tiny: Records) -> None:
    """As if the run had been broken off before r4, which had met the bounds, had its last token."""
    finish = tiny.requests.finish_iteration.copy()
    finish[4] = NOT_YET
    broken_off = replace(tiny, requests=replace(tiny.requests, finish_iteration=finish))
    assert slo_met(broken_off, BOUNDS).tolist() == [False, True, False, False, False]
    found = run_metrics(broken_off, BOUNDS, 100)
    assert (found["requests"], found["finished"], found["rejected"], found["unfinished"]) == (5, 3, 1, 1)
    assert found["slo_attainment"] == 1 / 5
    assert found["output_tokens"] == 6
    assert np.isnan(e2e_s(broken_off)[4])
    assert np.isnan(itl_max_s(broken_off)[4])
    assert request_table(broken_off, BOUNDS)["status"][4] == "unfinished"


def test_without_an_slo_there_is_no_attainment(tiny: Records) -> None:
    assert np.isnan(run_metrics(tiny, None, 100)["slo_attainment"])


def test_request_table(tiny: Records) -> None:
    table = request_table(tiny, BOUNDS)
    assert table["status"].tolist() == ["finished", "finished", "finished", "rejected", "finished"]
    assert table["slo_met"].tolist() == [False, True, False, False, True]
    np.testing.assert_array_equal(table["admitted_s"], [0, 0, 6, np.nan, 20])
    np.testing.assert_array_equal(table["first_token_s"], [6, 6, 11, np.nan, 22])
    np.testing.assert_array_equal(table["finish_s"], [12, 6, 12, np.nan, 24])
    assert table["arrival_s"].tolist() == [0, 0, 1, 13, 20]


def test_iteration_table(tiny: Records) -> None:
    table = iteration_table(tiny)
    rows = {
        "iteration": [0, 1, 2, 3, 4, 5],
        "start_s": [0, 6, 11, 20, 22, 23],
        "end_s": [6, 11, 12, 22, 23, 24],
        "prefill_tokens": [5, 4, 0, 1, 0, 0],
        "decode_sequences": [0, 1, 2, 0, 1, 1],
        "running": [2, 2, 2, 1, 1, 1],
        "waiting": [0, 0, 0, 0, 0, 0],
        "kv_reserved_tokens": [9, 12, 12, 4, 4, 4],
        "kv_stored_tokens": [5, 8, 10, 1, 2, 3],
    }
    assert table.to_dict(orient="list") == rows


def test_waiting() -> None:
    # One seat, 3 s for each of the first three. At 0 one of two waits; at 1 and 3 one more comes; at 3, 6 and 9 one is
    # admitted.
    system = {
        "engine": "continuous",
        "max_batch_size": 1,
        "memory": "unlimited",
        "cost": {"kind": "linear", "step_s": 1.0},
    }
    records = serve([(0.0, 1, 3), (0.0, 1, 3), (1.0, 1, 3), (3.0, 1, 1)], **system)
    # Start at:                           0  1  2  3  4  5  6  7  8  9
    assert records.waiting.tolist() == [1, 2, 2, 2, 2, 2, 1, 1, 1, 0]


def test_steady_throughput_stops_at_the_last_first_token() -> None:
    # Both are admitted at 0 and have their first token at 1 s; then one drains for 9 s. 2 tokens in 1 s, overall 11 in
    # 10 s.
    system = {
        "engine": "continuous",
        "max_batch_size": 2,
        "memory": "unlimited",
        "cost": {"kind": "linear", "step_s": 1.0},
    }
    records = serve([(0.0, 1, 10), (0.0, 1, 1)], **system)
    assert steady_throughput_tok_per_s(records) == 2.0
    assert run_metrics(records, None, 1)["throughput_tok_per_s"] == 1.1


def test_static_batch_itl_counts_no_tokens_of_finished_seats() -> None:
    system = {"engine": "request_level", "max_batch_size": 2, "cost": {"kind": "linear", "step_s": 1.0}}
    gaps_s, counts = token_gaps(serve([(0.0, 1, 2), (0.0, 1, 4)], **system))
    assert np.repeat(gaps_s, counts).tolist() == [1.0] * 4  # one gap of the first and three of the second


# Against the reference engine, which keeps every token's time.


def assert_metrics_of_reference(requests: Any, kv_tokens: int | None, **system: Any) -> None:
    records = serve(requests, kv_tokens, **system)
    jobs, *_ = serve_plainly(requests, kv_tokens, **system)
    assert_same_gaps_as_reference(records, jobs)
    finished = [job for job in jobs if job.token_s]
    if finished:
        last_s = max(job.token_s[0] for job in finished)
        tokens = sum(1 for job in finished for token_s in job.token_s if token_s <= last_s)
        assert steady_throughput_tok_per_s(records) == pytest.approx(tokens / last_s, rel=1e-9)
        assert run_metrics(records, None, 1)["duration_s"] == pytest.approx(max(job.leave_s for job in finished))


rows = st.lists(
    st.tuples(st.integers(0, 12).map(float), st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=15
)
placed = st.sampled_from(
    (
        {"engine": "request_level"},
        {"engine": "continuous"},
        {"engine": "continuous", "prefill": "first"},
        {"engine": "continuous", "prefill": "first", "order": "sjf"},
        {"engine": "continuous", "prefill": {"kind": "chunked", "budget_tokens": 5}},
        {"engine": "continuous", "prefill": {"kind": "chunked", "budget_tokens": 6}, "order": "ljf"},
        {"engine": "continuous", "prefill": {"kind": TABLE, "budgets": [3, 2, 1], "pauses_decodes": True}},
    )
)


@settings(deadline=None, max_examples=200)
@given(rows.map(sorted), placed, st.integers(1, 5), st.integers(10, 60))
def test_gaps_between_tokens(requests: list[Row], system: dict[str, Any], max_batch_size: int, kv_tokens: int) -> None:
    cost = {"kind": "linear", "step_s": 1.0, "prefill_token_s": 1.0, "decode_sequence_s": 2.0, "context_token_s": 1.0}
    memory = {"kind": "reservation", "reserve": "oracle"}
    assert_metrics_of_reference(requests, kv_tokens, **system, max_batch_size=max_batch_size, memory=memory, cost=cost)


@pytest.mark.parametrize(
    "system",
    [
        {"engine": "continuous"},
        {"engine": "continuous", "prefill": "first"},
        {"engine": "continuous", "prefill": {"kind": "chunked", "budget_tokens": 256}, "order": "sjf"},
        {"engine": "request_level"},
    ],
)
def test_gaps_between_tokens_of_a_chat(system: dict[str, Any]) -> None:
    prompts, outputs = ({"kind": "lognormal", "mean": mean, "sigma": 0.8, "max": 4000} for mean in (512, 80))
    whole = scenario({"engine": "continuous"}, workload=chat(200, 20.0, prompts, outputs))
    requests = whole.workload.draw(Streams(1))
    assert_metrics_of_reference(requests, None, **system, max_batch_size=24, memory={"kind": "unlimited"})


def test_itl_is_end_to_end_less_ttft() -> None:
    """E2E = TTFT + the sum of a request's gaps, and TPOT is their mean."""
    outputs = {"kind": "uniform", "low": 1, "high": 60}
    records = run(scenario({"engine": "continuous"}, workload=chat(200, 10.0, 300, outputs)), "a")
    gaps_s, counts = token_gaps(records)
    np.testing.assert_allclose((e2e_s(records) - ttft_s(records)).sum(), gaps_s @ counts, rtol=1e-9)
    gaps = records.workload.output_tokens - 1
    assert counts.sum() == gaps.sum()
    several = gaps > 0
    np.testing.assert_allclose(
        (tpot_s(records) * gaps)[several], (e2e_s(records) - ttft_s(records))[several], rtol=1e-9
    )
    assert np.isnan(tpot_s(records)[~several]).all()
