"""Paged memory under pressure: against the plain reference engine on random requests, and by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.metrics import (
    e2e_s,
    itl_max_s,
    preemption_table,
    request_table,
    run_metrics,
    token_gaps,
    ttft_s,
)
from simserve.records import Records
from tests import reference_engine as reference
from tests.support import KV_BYTES_PER_TOKEN, Row, assert_identical, serve
from tests.test_engine import PLAIN, STEP, any_order, check, linear_costs, placements, requests, ties


def chunked(budget_tokens: int) -> dict[str, Any]:
    return {"kind": "chunked", "budget_tokens": budget_tokens}


@st.composite
def preemptions(draw: st.DrawFn, token_s: float = 1.0) -> Any:
    """Recompute, or swap to a host with room for some of the requests below."""
    if draw(st.booleans()):
        return "recompute"
    return {
        "kind": "swap",
        "host_bytes": float(KV_BYTES_PER_TOKEN * draw(st.sampled_from((1, 20, 60, 1000)))),
        "link_bytes_per_s": KV_BYTES_PER_TOKEN / (token_s * draw(st.sampled_from((0.5, 1.0, 2.0)))),
        "overlapped": draw(st.booleans()),
    }


@st.composite
def paged_systems(
    draw: st.DrawFn, costs: st.SearchStrategy[dict[str, Any]], order: st.SearchStrategy[Any] = any_order
) -> dict[str, Any]:
    """A system, and `kv_tokens` with it: capacities from far too small to ample for requests of 2 to 110 tokens."""
    seats = draw(st.integers(1, 8))
    return {
        "engine": "continuous",
        "max_batch_size": seats,
        "order": draw(order),
        "memory": {
            "kind": "paged",
            "block_tokens": draw(st.sampled_from((1, 2, 3, 4, 16))),
            "watermark": draw(st.sampled_from((0.0, 0.0, 0.01, 0.05, 0.3))),
        },
        "preemption": draw(preemptions()),
        "prefill": draw(placements(seats)),
        "cost": draw(costs),
        "kv_tokens": draw(st.integers(16, 150)),
    }


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Row], dict[str, Any]]:
    """More requests at once than memory holds when they have grown, and a system with room for any one of them."""
    outputs = st.integers(1, 40)
    many = draw(st.lists(st.tuples(st.sampled_from((0.0, 0.0, 0.0, 3.0)), st.integers(1, 20), outputs), min_size=4))
    arrivals = np.cumsum([gap for gap, *_ in many]).tolist()
    rows: list[Row] = [(at, prompt, output) for at, (_, prompt, output) in zip(arrivals, many, strict=True)]
    system = draw(paged_systems(linear_costs()))
    block = system["memory"]["block_tokens"]
    room = draw(st.integers(0, 60)) + max(prompt + output for _, prompt, output in rows) + block
    seats = draw(st.integers(3, 8))
    system |= {"max_batch_size": seats, "prefill": draw(placements(seats)), "kv_tokens": room}
    system["memory"] |= {"watermark": draw(st.sampled_from((0.0, 0.0, 0.02)))}
    return rows, system


@settings(PLAIN, max_examples=200)
@given(crowds())
def test_crowds_are_served_as_by_the_reference(crowd: tuple[list[Row], dict[str, Any]]) -> None:
    check(*crowd)


@settings(PLAIN, max_examples=200)
@given(requests(ties), paged_systems(linear_costs()))
def test_same_as_the_reference(rows: list[Row], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=200)
@given(requests(st.just(0.0) | st.floats(0, 0.05)), paged_systems(st.just({"kind": "roofline"})))
def test_same_as_the_reference_on_the_roofline(rows: list[Row], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=200)
@given(crowds())
def test_no_livelock(crowd: tuple[list[Row], dict[str, Any]]) -> None:
    """Everyone ends; who is preempted leaves an earlier arrival running, and comes back before any newcomer."""
    rows, system = crowd
    records = serve(rows, **system)
    requests = records.requests
    assert np.all(requests.finished | requests.rejected)
    stays = residences(records)
    for request, left in zip(records.preemptions.request, records.preemptions.iteration, strict=True):
        assert any(i < request and begin < left < end for i, begin, end in stays)
        back = min(begin for i, begin, _ in stays if i == request and begin > left)
        assert not np.any((requests.admitted_iteration >= left) & (requests.admitted_iteration < back))


def residences(records: Records) -> list[tuple[int, int, int]]:
    """Return (request, first iteration, iteration after the last) of each stay on the GPU."""
    requests, out, back = records.requests, records.preemptions, records.readmissions
    stays = []
    for i in np.flatnonzero(requests.finished):
        begins = [requests.admitted_iteration[i], *back.iteration[back.request == i]]
        ends = [*out.iteration[out.request == i], requests.finish_iteration[i] + 1]
        stays += [(i, begin, end) for begin, end in zip(begins, ends, strict=True)]
    return stays


# By hand. A second a step, blocks of one token.


def orca(rows: list[Row], kv_tokens: int, fast_forward: bool = True, watermark: float = 0.0, **system: Any) -> Records:
    usual = {"engine": "continuous", "max_batch_size": 8, "cost": STEP}
    memory = {"kind": "paged", "block_tokens": 1, "watermark": watermark}
    return serve(rows, kv_tokens, fast_forward, **{**usual, "memory": memory, **system})


def swap(token_s: float, host_tokens: int = 100, overlapped: bool = False) -> dict[str, Any]:
    return {
        "kind": "swap",
        "host_bytes": float(host_tokens * KV_BYTES_PER_TOKEN),
        "link_bytes_per_s": KV_BYTES_PER_TOKEN / token_s,
        "overlapped": overlapped,
    }


BOTH = pytest.mark.parametrize("fast_forward", [True, False])

# Two requests at 0, of 2 prompt and 4 output tokens each. At its end each has 2 + 4 - 1 = 5 tokens of KV; memory has 8.
#
#   iteration   r0          r1          KV after it
#   0           prompt 2    prompt 2    2 + 2
#   1           decode      decode      3 + 3
#   2           decode      decode      4 + 4
#   3           decode      preempted   5             two more would be 10
#   4                       prompt 5    5             2 + 3 tokens, out of which comes the fourth
TWO = [(0.0, 2, 4), (0.0, 2, 4)]


@BOTH
def test_recompute_by_hand(fast_forward: bool) -> None:
    records = orca(TWO, 8, fast_forward)
    iterations = records.iterations
    assert iterations.end_s.tolist() == [1, 2, 3, 4, 5]
    assert iterations.prefill_tokens.tolist() == [4, 0, 0, 0, 5]
    assert iterations.decode_sequences.tolist() == [0, 2, 2, 1, 0]
    assert iterations.running.tolist() == [2, 2, 2, 1, 1]
    assert records.waiting.tolist() == [0, 0, 0, 1, 0]
    assert iterations.kv_reserved_tokens.tolist() == iterations.kv_stored_tokens.tolist() == [4, 6, 8, 5, 5]
    # 8 tokens, each once: at 1, 2, 3, 4 and at 1, 2, 3, 5. The first is not rewritten, and one gap is long.
    assert ttft_s(records).tolist() == [1, 1]
    assert e2e_s(records).tolist() == [4, 5]
    gaps_s, counts = token_gaps(records)
    assert sorted(np.repeat(gaps_s, counts).tolist()) == [1, 1, 1, 1, 1, 2]
    assert itl_max_s(records).tolist() == [1, 2]
    assert preemption_table(records).to_dict("records") == [
        {"request_id": 1, "iteration": 3, "time_s": 3.0, "kind": "recompute", "tokens": 4, "cost_s": 1.0}
    ]
    assert request_table(records, None)["preemptions"].tolist() == [0, 1]
    metrics = run_metrics(records, None, 8)
    assert metrics["preemptions"] == 1
    assert metrics["output_tokens"] == 8
    # The last first token comes at 1, by which there are two.
    assert metrics["steady_throughput_tok_per_s"] == 2.0


@BOTH
@pytest.mark.parametrize(
    ("overlapped", "ends_s"),
    [
        # A second a token: iteration 3 waits 4 s for r1's KV to go out, iteration 4 another 4 s until it is back.
        (False, [1, 2, 3, 3 + 4 + 1, 8 + 4 + 1]),
        # Or it is out at 7 and back at 11, while r0 ends at 4 and the GPU idles.
        (True, [1, 2, 3, 4, 12]),
    ],
)
def test_swap_by_hand(overlapped: bool, ends_s: list[float], fast_forward: bool) -> None:
    records = orca(TWO, 8, fast_forward, preemption=swap(1.0, overlapped=overlapped))
    assert records.iterations.end_s.tolist() == ends_s
    # Nothing is computed again: r1's fourth token is one new one after the 4 of KV that came back.
    assert records.iterations.prefill_tokens.tolist() == [4, 0, 0, 0, 1]
    assert records.iterations.kv_stored_tokens.tolist() == [4, 6, 8, 5, 5]
    assert records.finish_s.tolist() == ends_s[3:]
    assert itl_max_s(records).tolist() == [ends_s[3] - 3, ends_s[4] - 3]
    (only,) = preemption_table(records).to_dict("records")
    assert (only["kind"], only["tokens"], only["cost_s"]) == ("swap", 4, 8.0)


def test_a_host_that_is_full_drops() -> None:
    assert orca(TWO, 8, preemption=swap(1.0, host_tokens=4)).preemptions.swapped.tolist() == [True]
    full = orca(TWO, 8, preemption=swap(1.0, host_tokens=3))
    assert full.preemptions.swapped.tolist() == [False]
    assert_identical(full, orca(TWO, 8))


@BOTH
def test_preempted_during_its_prompt(fast_forward: bool) -> None:
    # A budget of 4 tokens; r0 has 1 prompt and 6 output tokens, r1 9 and 1; memory of 11.
    #
    #   iteration   r0         r1          KV held    stored
    #   0           prompt 1   prompt 3    1 + 9      1 + 3    the whole prompt has its blocks
    #   1           decode     prompt 3    2 + 9      2 + 6
    #   2           decode     preempted   3          3        3 + 9 are more than 11
    #   3, 4, 5     decode     waits       4, 5, 6             9 beside these and the next are more, too
    #   6           .          prompt 4    9          4        again from the start
    #   7                      prompt 4    9          8
    #   8                      prompt 1    9          9        its first token, at 9
    records = orca([(0.0, 1, 6), (0.0, 9, 1)], 11, fast_forward, max_batch_size=2, prefill=chunked(4))
    assert records.iterations.prefill_tokens.tolist() == [4, 3, 0, 0, 0, 0, 4, 4, 1]
    assert records.iterations.kv_reserved_tokens.tolist() == [10, 11, 3, 4, 5, 6, 9, 9, 9]
    assert records.iterations.kv_stored_tokens.tolist() == [4, 8, 3, 4, 5, 6, 4, 8, 9]
    assert records.preemptions.request.tolist() == [1]
    assert records.preemptions.tokens.tolist() == [6]
    assert records.preemptions.decoding.tolist() == [False]
    assert records.admitted_s.tolist() == [0, 0]
    assert ttft_s(records).tolist() == [1, 9]
    assert np.isnan(itl_max_s(records)).tolist() == [False, True]


@BOTH
def test_nobody_is_admitted_beside_a_preemption(fast_forward: bool) -> None:
    # As above, and r2 of one token comes at 3, as r1 leaves. There is room for it, but it waits for r1, who waits for r0.
    records = orca([*TWO, (3.0, 1, 1)], 8, fast_forward, order="sjf")
    assert records.admitted_s.tolist() == [0, 0, 4]
    assert records.finish_s.tolist() == [4, 5, 5]


def test_the_latest_arrival_goes_whatever_the_order() -> None:
    # Longest first: r2 and r1 are admitted before r0; each may grow to 2 + 6 - 1 or more, in 14. At 2 + 2 + 2 + 3 x 2
    # = 12 the next three do not fit: r2 goes, though it was the first to come in, and r0, who came in last, stays.
    rows = [(0.0, 2, 6), (0.0, 2, 7), (0.0, 2, 8)]
    records = orca(rows, 14, order="ljf")
    assert records.requests.admitted_iteration.tolist() == [0, 0, 0]
    assert records.preemptions.request[0] == 2
    assert 0 not in records.preemptions.request


@pytest.mark.parametrize(("watermark", "admitted_s"), [(0.0, 0), (0.2, 0), (0.21, 2), (0.3, 2)])
def test_watermark(watermark: float, admitted_s: float) -> None:
    # 10 blocks. r0 takes 4 and r1 4: 2 are left, which is a share of 0.2; for more r1 waits until r0 has ended.
    records = orca([(0.0, 4, 2), (0.0, 4, 1)], 10, watermark=watermark)
    assert records.admitted_s.tolist() == [0, admitted_s]


def test_rejected_when_it_could_not_end() -> None:
    # 10 blocks of 4 tokens, 2 of which the watermark keeps free: 32 tokens, and the last one's KV is never written.
    memory = {"kind": "paged", "block_tokens": 4, "watermark": 0.2}
    records = orca([(0.0, 20, 13), (0.0, 20, 14)], 43, memory=memory)
    assert records.requests.rejected.tolist() == [False, True]
    assert records.rejections[1] == "grows to 9 blocks of 4 tokens, more than the 8 below the watermark"


# What a preemption costs: Llama-3-8B on an H100, at 1,024 tokens of KV. Two requests of 1,000 prompt tokens in 128 blocks
# of 16: when both have 1,024, both need a block more.

H100: dict[str, Any] = {"engine": "continuous", "memory": {"kind": "paged", "watermark": 0.0}}
AT_1024 = [(0.0, 1000, 60), (0.0, 1000, 60)]


def at_1024(preemption: Any) -> Records:
    records = serve(AT_1024, 2048, **H100, preemption=preemption)
    assert records.preemptions.tokens.tolist() == [1024]
    return records


def link(bytes_per_s: float) -> dict[str, Any]:
    return {"kind": "swap", "host_bytes": 64e9, "link_bytes_per_s": bytes_per_s}


def test_recompute_against_swap() -> None:
    # 1,024 tokens x 13,958,643,712 + 524,800 pairs x 524,288 = 14.5688 TFLOP at 0.7 x 989.4: 21.04 ms.
    # 1,024 x 131,072 B = 134.2 MB out and in again at 55 GB/s: 4.88 ms.
    (recompute_s,), (swap_s,) = (at_1024(kind).preemptions.cost_s for kind in ("recompute", link(55e9)))
    assert 1e3 * recompute_s == pytest.approx(21.04, abs=0.005)
    assert 1e3 * swap_s == pytest.approx(4.88, abs=0.005)


def test_bandwidth_at_which_swap_is_as_good_as_recompute() -> None:
    # Recompute runs one prompt of 1,025 tokens, the last of which a swapped request computes by itself, after 1,024.
    # So swap wins where 2 x 134.2 MB take less than the difference: 268.4 MB / (21.06 - 6.04 ms) = 17.87 GB/s.
    whole_s, token_s = reference.roofline([reference.Piece(1025, 0)]), reference.roofline([reference.Piece(1, 1024)])
    crossing = 2 * 1024 * KV_BYTES_PER_TOKEN / (whole_s - token_s)
    assert crossing / 1e9 == pytest.approx(17.87, abs=0.01)
    recompute_s = at_1024("recompute").finish_s[1]
    assert at_1024(link(1.01 * crossing)).finish_s[1] < recompute_s < at_1024(link(0.99 * crossing)).finish_s[1]
    assert at_1024(link(crossing)).finish_s[1] == pytest.approx(recompute_s, rel=1e-9)


# Memory that is never short.


@PLAIN
@given(requests(ties), paged_systems(linear_costs()))
def test_ample_pages_are_no_limit(rows: list[Row], system: dict[str, Any]) -> None:
    """The times are those of unlimited memory, to the last digit, where nobody was ever refused."""
    system |= {"kv_tokens": 40 * 110}
    ample = serve(rows, **system)
    if not ample.requests.refused.any():
        unlimited = serve(rows, **{**system, "memory": "unlimited"})
        for name in ("admitted_s", "first_token_s", "finish_s"):
            assert getattr(ample, name).tobytes() == getattr(unlimited, name).tobytes(), name


@pytest.mark.parametrize(("block_tokens", "watermark"), [(16, 0.0), (1, 0.99), (4, 0.999)])
def test_memory_that_holds_nobody_turns_everyone_away(block_tokens: int, watermark: float) -> None:
    # A block of 16 is more than 15 tokens; 0.99 of 15 blocks, and 0.999 of 3, are all of them, rounded up.
    memory = {"kind": "paged", "block_tokens": block_tokens, "watermark": watermark}
    records = orca([(0.0, 1, 1), (1.0, 5, 5)], 15, memory=memory)
    assert records.requests.rejected.all()
    assert not len(records.iterations)
