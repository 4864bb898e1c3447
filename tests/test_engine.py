"""The engines: against the plain reference engine on random requests, and against known faults worked out by hand."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simserve.metrics import e2e_s, run_metrics, slo_met, tpot_s, ttft_s
from simserve.records import Records
from simserve.scenario.schema import SLO
from simserve.simulation import run
from simserve.workload import Streams
from tests import reference_engine as reference
from tests.support import assert_identical, assert_same_as_reference, chat, scenario, serve, serve_plainly, workload

UNLIMITED = {"kind": "unlimited"}
STEP = {"kind": "linear", "step_s": 1.0}
"""Every iteration takes one second."""
RESERVES = ("max", "pow2", "oracle", "request")
PLAIN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Random requests through both engines.


def whole_seconds(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(float)


@st.composite
def systems(draw: st.DrawFn, costs: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """A system, and `kv_tokens` with it: capacities and limits from far too small to ample for the requests below."""
    reserve = draw(st.sampled_from((*RESERVES, "unlimited")))
    memory = UNLIMITED
    if reserve != "unlimited":
        limits = st.integers(2, 60)
        limit = draw(limits if reserve == "max" else st.none() | limits)
        memory = {"kind": "reservation", "reserve": reserve, "max_tokens": limit}
    return {
        "engine": draw(st.sampled_from(("continuous", "request_level"))),
        "max_batch_size": draw(st.integers(1, 8)),
        "memory": memory,
        "cost": draw(costs),
        "kv_tokens": draw(st.integers(1, 150)),
    }


@st.composite
def linear_costs(draw: st.DrawFn) -> dict[str, Any]:
    """Whole seconds, so that sums are exact and arrivals in whole seconds fall on ends of iterations."""
    step, sequence = draw(st.sampled_from(((1, 0), (0, 1), (2, 0), (1, 2), (3, 1))))
    return {
        "kind": "linear",
        "step_s": float(step),
        "decode_sequence_s": float(sequence),
        "prefill_token_s": draw(whole_seconds(0, 2)),
        "context_token_s": draw(whole_seconds(0, 1)),
    }


lengths = st.tuples(st.integers(1, 20), st.integers(1, 12) | st.integers(1, 40) | st.just(90), st.integers(0, 15))


@st.composite
def requests(draw: st.DrawFn, gaps_s: st.SearchStrategy[float], most: int = 40) -> list[tuple[float, int, int, int]]:
    rows = draw(st.lists(st.tuples(gaps_s, lengths), min_size=1, max_size=most))
    arrivals = np.cumsum([gap for gap, _ in rows]).tolist()
    return [(at, prompt, out, prompt + out + more) for at, (_, (prompt, out, more)) in zip(arrivals, rows, strict=True)]


def check(rows: list[tuple[float, int, int, int]], system: dict[str, Any]) -> None:
    fast = serve(rows, **system)
    assert_same_as_reference(fast, *serve_plainly(rows, **system))
    assert_identical(fast, serve(rows, **system, fast_forward=False))


ties = st.sampled_from((0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 30.0))


@settings(PLAIN, max_examples=400)
@given(requests(ties), systems(linear_costs()))
def test_arrivals_at_ends_of_iterations(rows: list[tuple[float, int, int, int]], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=150)
@given(requests(st.just(0.0) | st.floats(0, 0.05)), systems(st.just({"kind": "roofline"})))
def test_random_arrivals_on_the_roofline(rows: list[tuple[float, int, int, int]], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=100)
@given(
    requests(st.floats(0, 0.2), most=10),
    systems(st.just({"kind": "roofline"})),
    st.lists(st.tuples(st.integers(0, 500), lengths), min_size=1, max_size=4),
)
def test_arrivals_at_ends_of_roofline_iterations(
    rows: list[tuple[float, int, int, int]], system: dict[str, Any], extra: list[tuple[int, tuple[int, int, int]]]
) -> None:
    """Extra requests arrive exactly at an end, no round number, of the run so far, and leave that end as it is."""
    for number, (prompt, output, more) in extra:
        _, iterations = serve_plainly(rows, **system)
        later = [iteration.end_s for iteration in iterations if iteration.end_s >= rows[-1][0]]
        if later:
            rows = [*rows, (later[number % len(later)], prompt, output, prompt + output + more)]
    check(rows, system)


@settings(PLAIN, max_examples=60)
@given(requests(ties), systems(linear_costs()))
def test_invariants_of_admission(rows: list[tuple[float, int, int, int]], system: dict[str, Any]) -> None:
    """First come, first served by iterations: of two unfinished requests the earlier has run at least as many."""
    records = serve(rows, **system)
    iterations = records.iterations
    admitted = records.requests.admitted_iteration[records.requests.finished]
    assert np.all(np.diff(admitted) >= 0)
    assert iterations.running.max(initial=0) <= system["max_batch_size"]
    assert np.all(records.waiting >= 0)
    if system["memory"] != UNLIMITED:
        assert iterations.kv_reserved_tokens.max(initial=0) <= system["kv_tokens"]
        assert (
            np.all(iterations.kv_stored_tokens <= iterations.kv_reserved_tokens) or system["engine"] == "request_level"
        )


CHAT = {"kind": "lognormal", "mean": 300, "sigma": 0.8, "max": 4096}
PROMPT = {"kind": "lognormal", "mean": 512, "sigma": 0.8, "max": 8000}


def memory_of(reserve: str) -> dict[str, Any]:
    if reserve == "unlimited":
        return UNLIMITED
    return {"kind": "reservation", "reserve": reserve, "max_tokens": 8192}


def check_chat(workload_spec: dict[str, Any], seed: int, kv_tokens: int | None = None, **system: Any) -> Records:
    whole = scenario(system, kv_tokens, workload=workload_spec, seed=seed)
    records = run(whole, "a")
    assert_same_as_reference(records, *serve_plainly(whole.workload.draw(Streams(seed)), kv_tokens, **system))
    assert_identical(records, run(whole, "a", fast_forward=False))
    return records


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("reserve", [*RESERVES, "unlimited"])
@pytest.mark.parametrize(
    ("engine", "max_batch_size", "output_mean"), [("continuous", 96, 300), ("request_level", 32, 60)]
)
def test_chat(engine: str, max_batch_size: int, output_mean: int, reserve: str, seed: int) -> None:
    """300 requests, faster than they can be served: a queue for memory where it is reserved, else for seats."""
    spec = chat(300, 40.0, PROMPT, {**CHAT, "mean": output_mean}, max_output_tokens=2048)
    kv_tokens = 60_000 if engine == "continuous" else 16_000
    system = {"engine": engine, "max_batch_size": max_batch_size, "memory": memory_of(reserve)}
    records = check_chat(spec, seed, kv_tokens, **system)
    assert records.waiting.max() > 0
    if engine == "continuous":
        waits_beside_free_seats = (records.waiting > 0) & (records.iterations.running < max_batch_size)
        assert waits_beside_free_seats.any() == (reserve != "unlimited")


@pytest.mark.parametrize("engine", ["continuous", "request_level"])
@pytest.mark.parametrize("rate_per_s", [0.02, 0.2])
def test_long_outputs_at_low_load(engine: str, rate_per_s: float) -> None:
    """Hundreds and thousands of decodes between arrivals: stretches computed as arrays."""
    outputs = {"kind": "uniform", "low": 1000, "high": 5000}
    check_chat(chat(25, rate_per_s, PROMPT, outputs), 1, engine=engine, max_batch_size=16, memory=UNLIMITED)


@pytest.mark.parametrize("arrival_s", [4095.0, 4096.0, 4096.5, 4097.0, 8192.0, 8193.0])
def test_arrival_beyond_the_longest_stretch(arrival_s: float) -> None:
    # Alone, the first request decodes on and on in steps of 1 s; the second is prefilled in the first iteration that
    # starts at or after its arrival, and ends one second later.
    rows = [(0.0, 1, 10_000), (arrival_s, 1, 1)]
    system = {"engine": "continuous", "max_batch_size": 2, "memory": UNLIMITED, "cost": STEP}
    records = serve(rows, **system)
    assert records.first_token_s.tolist() == [1.0, np.ceil(arrival_s) + 1]
    assert records.finish_s[0] == 10_000.0
    assert_identical(records, serve(rows, **system, fast_forward=False))


def test_run_and_simulate_are_the_same() -> None:
    spec = chat(50, 10.0, PROMPT, CHAT)
    system = {"engine": "continuous", "max_batch_size": 16}
    whole = scenario(system, workload=spec, seed=3)
    records = run(whole, "a", replication=2)
    assert_identical(records, serve(whole.workload.draw(Streams(3, 2)), **system))
    assert records.finish_s.tobytes() != run(whole, "a", replication=1).finish_s.tobytes()


def test_batch_of_one_is_the_same_in_both_engines() -> None:
    whole = scenario({"engine": "request_level", "max_batch_size": 1}, workload=chat(200, 2.0, PROMPT, CHAT))
    requests = whole.workload.draw(Streams(1))
    static = serve(requests, engine="request_level", max_batch_size=1)
    for memory in (UNLIMITED, {"kind": "reservation", "reserve": "oracle"}):
        orca = serve(requests, engine="continuous", max_batch_size=1, memory=memory)
        for name in ("admitted_s", "first_token_s", "finish_s"):
            assert getattr(orca, name).tobytes() == getattr(static, name).tobytes()


# Known faults, by hand. Without another word every iteration takes one second, and memory is no limit.


def engine(rows: list[Any], max_batch_size: int = 1, kind: str = "continuous", **system: Any) -> Any:
    return serve(
        rows, **{"engine": kind, "max_batch_size": max_batch_size, "memory": UNLIMITED, "cost": STEP, **system}
    )


@pytest.mark.parametrize("kind", ["continuous", "request_level"])
@pytest.mark.parametrize("fast_forward", [True, False])
def test_one_request(kind: str, fast_forward: bool) -> None:
    # Arrives at 2; prefill of 5 tokens takes p = 5 x 1 = 5 s, every decode d = 2 s. Four tokens: at 7, 9, 11, 13.
    cost = {"kind": "linear", "prefill_token_s": 1.0, "decode_sequence_s": 2.0}
    records = engine([(2.0, 5, 4)], kind=kind, cost=cost, fast_forward=fast_forward)
    assert ttft_s(records).tolist() == [5.0]
    assert e2e_s(records).tolist() == [5.0 + 3 * 2.0]
    assert tpot_s(records).tolist() == [2.0]
    assert records.iterations.end_s.tolist() == [7.0, 9.0, 11.0, 13.0]
    assert records.iterations.decode_sequences.tolist() == [0, 1, 1, 1]  # the prefill emits the first: 3 decodes, not 4
    assert records.iterations.prefill_tokens.tolist() == [5, 0, 0, 0]
    assert records.iterations.kv_stored_tokens.tolist() == [5, 6, 7, 8]  # the last token's KV is never written


@pytest.mark.parametrize("kind", ["continuous", "request_level"])
def test_one_token_has_no_tpot_and_meets_it(kind: str) -> None:
    records = engine([(0.0, 5, 1)], kind=kind)
    assert np.isnan(tpot_s(records)).tolist() == [True]
    assert len(records.iterations) == 1
    assert slo_met(records, SLO(ttft_s=1.0, tpot_s=1e-9)).tolist() == [True]
    assert slo_met(records, SLO(ttft_s=0.9)).tolist() == [False]
    metrics = run_metrics(records, SLO(tpot_s=1e-9), 100)
    assert np.isnan(metrics["tpot_mean_s"])
    assert np.isnan(metrics["itl_p99_s"])
    assert metrics["slo_attainment"] == 1.0


@pytest.mark.parametrize("kind", ["continuous", "request_level"])
def test_next_one_starts_without_a_later_arrival(kind: str) -> None:
    # s = 3 iterations of 1 s each: the second starts at s and ends at 2 s.
    records = engine([(0.0, 1, 3), (0.0, 1, 3)], kind=kind)
    assert records.admitted_s.tolist() == [0.0, 3.0]
    assert records.finish_s.tolist() == [3.0, 6.0]


@pytest.mark.parametrize("kind", ["continuous", "request_level"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_too_big_for_the_memory(kind: str, place: int) -> None:
    # 11 tokens where 10 fit: rejected, first, in the middle or last; the others finish.
    rows = [(0.0, 2, 2)] * 3
    rows.insert(place, (0.0, 6, 5))
    records = engine(rows, kind=kind, kv_tokens=10, memory={"kind": "reservation", "reserve": "oracle"})
    assert set(records.rejections) == {place}
    assert "11" in records.rejections[place]
    assert "10" in records.rejections[place]
    metrics = run_metrics(records, None, 10)
    assert (metrics["requests"], metrics["finished"], metrics["rejected"], metrics["unfinished"]) == (4, 3, 1, 0)
    assert np.isnan(records.finish_s[place])
    assert np.isnan(records.admitted_s[place])
    # One at a time, 2 iterations each.
    assert np.delete(records.finish_s, place).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("kind", ["continuous", "request_level"])
def test_all_rejected(kind: str) -> None:
    records = engine([(0.0, 6, 5), (1.0, 7, 7)], kind=kind, kv_tokens=10, memory={"kind": "reservation"})
    metrics = run_metrics(records, SLO(ttft_s=1.0), 10)
    assert (metrics["finished"], metrics["rejected"], metrics["iterations"]) == (0, 2, 0)
    assert metrics["slo_attainment"] == 0.0


def test_attainment_counts_the_rejected() -> None:
    # 10 offered at time 0, 6 of them too long; the 4 others, one at a time, have their token at 1, 2, 3, 4 s: 2 of them
    # within 2 s.
    rows = [(0.0, 5, 6) if i % 5 in (0, 2, 3) else (0.0, 1, 1) for i in range(10)]
    memory = {"kind": "reservation", "reserve": "oracle", "max_tokens": 10}
    records = engine(rows, memory=memory, kv_tokens=1000)
    metrics = run_metrics(records, SLO(ttft_s=2.0), 1000)
    assert (metrics["finished"], metrics["rejected"]) == (4, 6)
    assert metrics["slo_attainment"] == 0.2


# The lecture's chart: six requests, three seats. P prefill, D decode, . waiting, - a seat that is paid for and empty.

CHART = [(0.0, 4, 6), (0.0, 4, 3), (1.0, 4, 9), (2.0, 4, 2), (3.0, 4, 5), (6.0, 4, 3)]
CONTINUOUS = """\
PDDDDD
PDD
 PDDDDDDDD
  .PD
   ..PDDDD
      PDD
"""
STATIC = """\
PDDDDD
PDD---
 .....PDDDDDDDD
  ....PD-------
   ...PDDDD----
      .........PDD
"""


@pytest.mark.parametrize(
    ("kind", "chart", "iterations"), [("continuous", CONTINUOUS, 10), ("request_level", STATIC, 18)]
)
def test_gantt_chart(kind: str, chart: str, iterations: int) -> None:
    records = engine(CHART, 3, kind)
    assert len(records.iterations) == iterations
    assert records.iterations.start_s.tolist() == list(range(iterations))
    cells = [f"{line:{iterations}}" for line in chart.splitlines()]
    assert records.requests.first_token_iteration.tolist() == [line.index("P") for line in cells]
    last = [max(line.rindex(mark) for mark in "PD" if mark in line) for line in cells]
    assert records.requests.finish_iteration.tolist() == last
    columns = ["".join(line[i] for line in cells) for i in range(iterations)]
    assert records.iterations.prefill_tokens.tolist() == [4 * column.count("P") for column in columns]
    assert records.iterations.decode_sequences.tolist() == [column.count("D") + column.count("-") for column in columns]
    assert records.iterations.running.tolist() == [sum(column.count(mark) for mark in "PD-") for column in columns]
    assert records.waiting.tolist() == [column.count(".") for column in columns]


def test_gantt_chart_in_numbers() -> None:
    orca = engine(CHART, 3).requests
    assert orca.first_token_iteration.tolist() == [0, 0, 1, 3, 5, 6]
    assert orca.finish_iteration.tolist() == [5, 2, 9, 4, 9, 8]
    static = engine(CHART, 3, "request_level").requests
    assert static.first_token_iteration.tolist() == [0, 0, 6, 6, 6, 15]
    assert static.finish_iteration.tolist() == [5, 2, 14, 7, 10, 17]


def test_head_of_the_queue_is_never_skipped() -> None:
    # 10 tokens of memory. a holds 6 until 4 s; b needs 8, and c, who needs 2 and would fit at once, waits behind b.
    rows = [(0.0, 2, 4), (1.0, 6, 2), (1.0, 1, 1)]
    records = engine(rows, 8, kv_tokens=10, memory={"kind": "reservation", "reserve": "oracle"})
    assert records.admitted_s.tolist() == [0.0, 4.0, 4.0]


def test_memory_comes_back_at_the_end_of_the_last_iteration() -> None:
    # 10 tokens; a and b hold 5 each; a ends at 2, b at 4, and c (5) enters at 2.
    rows = [(0.0, 3, 2), (0.0, 1, 4), (0.5, 4, 1)]
    records = engine(rows, 8, kv_tokens=10, memory={"kind": "reservation", "reserve": "oracle"})
    assert records.admitted_s.tolist() == [0.0, 0.0, 2.0]
    assert records.iterations.kv_reserved_tokens.tolist() == [10, 10, 10, 5]


def test_static_batch_holds_its_memory_to_the_end() -> None:
    # a (2 tokens out) could give its 5 back at 2, but the coach unloads at 4.
    rows = [(0.0, 3, 2), (0.0, 1, 4), (0.5, 4, 1)]
    records = engine(rows, 8, "request_level", kv_tokens=10, memory={"kind": "reservation", "reserve": "oracle"})
    assert records.admitted_s.tolist() == [0.0, 0.0, 4.0]
    assert records.iterations.kv_reserved_tokens.tolist() == [10, 10, 10, 10, 5]


@pytest.mark.parametrize(
    ("arrival_s", "admitted_s"), [(2.0, 2.0), (np.nextafter(2.0, 3.0), 3.0), (np.nextafter(2.0, 1.0), 2.0)]
)
@pytest.mark.parametrize("fast_forward", [True, False])
def test_arrival_exactly_at_the_end_of_an_iteration(arrival_s: float, admitted_s: float, fast_forward: bool) -> None:
    # Iterations end at 1, 2, 3, ...: who arrives at 2 is admitted at 2, who arrives a moment later at 3.
    records = engine([(0.0, 1, 6), (arrival_s, 1, 1)], 2, fast_forward=fast_forward)
    assert records.admitted_s.tolist() == [0.0, admitted_s]


def test_arrival_exactly_when_the_engine_falls_idle() -> None:
    # Two arrive together at 2, when the only request leaves: one batch of both, not one after the other.
    for kind in ("continuous", "request_level"):
        records = engine([(0.0, 1, 2), (2.0, 1, 3), (2.0, 1, 3)], 2, kind)
        assert records.admitted_s.tolist() == [0.0, 2.0, 2.0]


def test_idle_engine_takes_all_that_arrive_at_one_moment() -> None:
    for kind in ("continuous", "request_level"):
        for arrival_s in (0.0, 7.0):
            records = engine([(arrival_s, 1, 2)] * 3, 8, kind)
            assert records.iterations.running.tolist() == [3, 3]


def test_static_batch_pays_for_finished_seats() -> None:
    # Outputs 1 and 4, prompts 2 and 3. Prefill 1 s a token: 5 s. Then 3 decodes of both seats, though one wants no more
    # tokens: 2 sequences x 10 s and their whole context x 1 s: 20 + 5, 20 + 7, 20 + 9. The request of one token ends
    # with its prefill.
    cost = {"kind": "linear", "prefill_token_s": 1.0, "decode_sequence_s": 10.0, "context_token_s": 1.0}
    static = engine([(0.0, 2, 1), (0.0, 3, 4)], 2, "request_level", cost=cost)
    assert static.iterations.end_s.tolist() == [5.0, 30.0, 57.0, 86.0]
    assert static.finish_s.tolist() == [5.0, 86.0]
    assert static.iterations.decode_sequences.tolist() == [0, 2, 2, 2]
    # Continuous batching pays for one: 10 + 3, 10 + 4, 10 + 5.
    orca = engine([(0.0, 2, 1), (0.0, 3, 4)], 2, cost=cost)
    assert orca.iterations.end_s.tolist() == [5.0, 18.0, 32.0, 47.0]


@pytest.mark.parametrize(
    ("prompt", "flop", "traffic"),
    [
        # 102 new tokens; 100*101/2 + (100 + 1) + (200 + 1) = 5,352 pairs; 3 emit. Reads 300 past tokens, writes 102.
        (100, 102 * 13_958_643_712 + 5_352 * 524_288 + 3 * 1_050_673_152, 16_060_522_496 + 402 * 131_072),
        # 2,002 new tokens; 2000*2001/2 + 302 = 2,001,302 pairs. Here arithmetic takes longer: 41.9 ms against 6.1 ms.
        (2000, 2_002 * 13_958_643_712 + 2_001_302 * 524_288 + 3 * 1_050_673_152, 16_060_522_496 + 2_302 * 131_072),
    ],
)
def test_time_of_a_mixed_iteration(prompt: int, flop: int, traffic: int) -> None:
    # Two prompts, 100 and 200, are prefilled; a third arrives meanwhile and shares its prefill with their first decode.
    records = engine([(0.0, 100, 9), (0.0, 200, 9), (0.001, prompt, 1)], 8, cost={"kind": "roofline"})
    iterations = records.iterations
    assert iterations.decode_sequences[1] == 2
    assert iterations.prefill_tokens[1] == prompt
    expected_s = max(flop / (0.7 * 989.4e12), traffic / (0.8 * 3.35e12))
    assert iterations.end_s[1] - iterations.start_s[1] == pytest.approx(expected_s, rel=1e-12)
    # The step after: two decodes, at context 101 and 201: 16,060,522,496 B + (302 + 2) x 131,072 B at 2.68e12 B/s.
    assert iterations.end_s[2] - iterations.start_s[2] == pytest.approx(16_100_368_384 / 2.68e12, rel=1e-12)


def test_reference_engine_by_hand() -> None:
    """The oracle itself on the lecture's chart: its times are the chart's, by whole seconds."""
    for kind, last in (("continuous", [5, 2, 9, 4, 9, 8]), ("request_level", [5, 2, 14, 7, 10, 17])):
        jobs, _ = serve_plainly(workload(CHART), engine=kind, max_batch_size=3, memory=UNLIMITED, cost=STEP)
        assert [job.token_s[-1] for job in jobs] == [end + 1 for end in last]
        assert all(len(job.token_s) == job.output_tokens for job in jobs)
        assert all(b > a for job in jobs for a, b in pairwise(job.token_s))
    assert reference.roofline([(1, 1024)]) == pytest.approx(0.006, abs=0.0005)
