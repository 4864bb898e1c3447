"""The engines: against the plain reference engine on random requests, and against known faults worked out by hand."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simserve.metrics import e2e_s, run_metrics, slo_met, tpot_s, ttft_s
from simserve.records import NOT_YET, Records
from simserve.scenario.serving import SLO
from simserve.simulation import run
from simserve.workload import Streams
from tests import reference_engine as reference
from tests.support import (
    TABLE,
    Row,
    assert_identical,
    assert_same_as_reference,
    assert_same_gaps_as_reference,
    chat,
    scenario,
    serve,
    serve_plainly,
    workload,
)

UNLIMITED = {"kind": "unlimited"}
STEP = {"kind": "linear", "step_s": 1.0}
"""Every iteration takes one second."""
RESERVES = ("max", "pow2", "oracle", "request")
PLAIN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Random requests through both engines.


def whole_seconds(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(float)


@st.composite
def orders(
    draw: st.DrawFn, rates: tuple[float, ...] = (0.0, 0.5, 2.0), waits_s: tuple[float, ...] = (1.0, 5.0, 7.5, 30.0)
) -> Any:
    """Any order; `rates` and `waits_s` are those that aging may have."""
    kind = draw(st.sampled_from(("fcfs", "sjf", "sjf", "sjf", "ljf", "priority", "edf")))
    if kind == "fcfs":
        return draw(st.sampled_from(("fcfs", *({"kind": "fcfs", "skip_ahead": most} for most in (1, 2, 5)))))
    if kind not in ("sjf", "ljf"):
        return kind
    order = {"kind": kind, "predictor": draw(st.sampled_from(PREDICTORS))}
    if kind == "sjf":
        tokens_per_s, max_wait_s = draw(st.sampled_from(rates)), draw(st.none() | st.sampled_from(waits_s))
        if tokens_per_s or max_wait_s:
            order["aging"] = {"tokens_per_s": tokens_per_s, "max_wait_s": max_wait_s}
    return order


def has_longest_wait(order: Any) -> bool:
    return not isinstance(order, str) and order.get("aging", {}).get("max_wait_s") is not None


PREDICTORS = (
    "oracle",
    {"kind": "constant", "tokens": 7},
    {"kind": "bucketed", "edges": [3, 10]},
    {"kind": "lognormal_noise", "sigma": 1.0},
)


any_order = orders()


@st.composite
def placements(draw: st.DrawFn, max_batch_size: int) -> Any:
    """Any placement; budgets that prompts of 1 to 20 tokens fill, a user's own among them."""
    kind = draw(st.sampled_from(("mixed", "first", "chunked", "chunked", TABLE)))
    if kind == "chunked":
        return {"kind": kind, "budget_tokens": max_batch_size + draw(st.integers(0, 25))}
    if kind == TABLE:
        budgets = draw(st.lists(st.none() | st.integers(1, 12), min_size=1, max_size=4))
        return {"kind": kind, "budgets": budgets, "pauses_decodes": draw(st.booleans())}
    return kind


@st.composite
def systems(
    draw: st.DrawFn, costs: st.SearchStrategy[dict[str, Any]], order: st.SearchStrategy[Any] = any_order
) -> dict[str, Any]:
    """A system, and `kv_tokens` with it: capacities and limits from far too small to ample for the requests below."""
    reserve = draw(st.sampled_from((*RESERVES, "unlimited")))
    memory = UNLIMITED
    if reserve != "unlimited":
        limits = st.integers(2, 60)
        limit = draw(limits if reserve == "max" else st.none() | limits)
        memory = {"kind": "reservation", "reserve": reserve, "max_tokens": limit}
    system = {
        "engine": draw(st.sampled_from(("continuous", "continuous", "request_level"))),
        "max_batch_size": draw(st.integers(1, 8)),
        "order": draw(order),
        "memory": memory,
        "cost": draw(costs),
        "kv_tokens": draw(st.integers(1, 150)),
    }
    if system["engine"] == "continuous":
        system["prefill"] = draw(placements(system["max_batch_size"]))
    return system


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
urgencies = st.tuples(st.integers(0, 2), st.sampled_from((1.0, 5.0, 20.0, 60.0, np.inf)))
"""Priority, and seconds from arrival to deadline."""


@st.composite
def requests(draw: st.DrawFn, gaps_s: st.SearchStrategy[float], most: int = 40) -> list[Row]:
    rows = draw(st.lists(st.tuples(gaps_s, lengths, urgencies), min_size=1, max_size=most))
    arrivals = np.cumsum([gap for gap, *_ in rows]).tolist()
    return [
        (at, prompt, out, prompt + out + more, priority, at + patience_s)
        for at, (_, (prompt, out, more), (priority, patience_s)) in zip(arrivals, rows, strict=True)
    ]


def check(rows: list[Row], system: dict[str, Any]) -> Records:
    fast = serve(rows, **system)
    jobs, *facts = serve_plainly(rows, **system)
    assert_same_as_reference(fast, jobs, *facts)
    assert_same_gaps_as_reference(fast, jobs)
    assert_identical(fast, serve(rows, **system, fast_forward=False))
    return fast


ties = st.sampled_from((0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 30.0))


@settings(PLAIN, max_examples=600)
@given(requests(ties), systems(linear_costs()))
def test_arrivals_at_ends_of_iterations(rows: list[Row], system: dict[str, Any]) -> None:
    check(rows, system)


# A rate no simple gap is a whole number of tokens of: what is a tie here is one in any way of counting.
roofline_systems = systems(st.just({"kind": "roofline"}), orders(rates=(0.0, 33.7), waits_s=(0.004, 0.03, 0.2)))


@settings(PLAIN, max_examples=200)
@given(requests(st.just(0.0) | st.floats(0, 0.05)), roofline_systems)
def test_random_arrivals_on_the_roofline(rows: list[Row], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=100)
@given(
    requests(st.floats(0, 0.2), most=10),
    roofline_systems,
    st.lists(st.tuples(st.integers(0, 500), lengths), min_size=1, max_size=4),
)
def test_arrivals_at_ends_of_roofline_iterations(
    rows: list[Row], system: dict[str, Any], extra: list[tuple[int, tuple[int, int, int]]]
) -> None:
    """Extra requests arrive exactly at an end, no round number, of the run so far, and leave that end as it is."""
    for number, (prompt, output, more) in extra:
        _, iterations, _ = serve_plainly(rows, **system)
        later = [iteration.end_s for iteration in iterations if iteration.end_s >= rows[-1][0]]
        if later:
            rows = [*rows, (later[number % len(later)], prompt, output, prompt + output + more)]
    check(rows, system)


@settings(PLAIN, max_examples=60)
@given(requests(ties), systems(linear_costs()))
def test_invariants_of_admission(rows: list[Row], system: dict[str, Any]) -> None:
    records = serve(rows, **system)
    iterations = records.iterations
    assert iterations.running.max(initial=0) <= system["max_batch_size"]
    assert np.all(records.waiting >= 0)
    if system["order"] == "fcfs":
        assert np.all(np.diff(records.requests.admitted_iteration[records.requests.finished]) >= 0)
    if system["memory"] != UNLIMITED:
        assert iterations.kv_reserved_tokens.max(initial=0) <= system["kv_tokens"]
        assert (
            np.all(iterations.kv_stored_tokens <= iterations.kv_reserved_tokens) or system["engine"] == "request_level"
        )


@settings(PLAIN, max_examples=100)
@given(requests(ties), systems(linear_costs(), orders(waits_s=(1.0, 5.0, 7.5, 30.0)).filter(has_longest_wait)))
def test_nobody_passes_who_is_overdue(rows: list[Row], system: dict[str, Any]) -> None:
    records = serve(rows, **system)
    admitted = records.requests.admitted_iteration
    overdue_s = records.workload.arrival_s + system["order"]["aging"]["max_wait_s"]
    for i in np.unique(admitted[admitted != NOT_YET]):
        now_s = records.iterations.start_s[i]
        waits_on = np.flatnonzero((overdue_s <= now_s) & (admitted > i))
        goes = np.flatnonzero(admitted == i)
        if len(waits_on):  # then only those go who are overdue as well, and longer
            assert goes.max() < waits_on.min()


@settings(PLAIN, max_examples=60)
@given(requests(ties), st.lists(any_order, min_size=2, max_size=4), st.sampled_from(("mixed", "first")), linear_costs())
def test_without_a_queue_the_order_is_nothing(
    rows: list[Row], several: list[Any], prefill: str, cost: dict[str, Any]
) -> None:
    system = {"engine": "continuous", "max_batch_size": 1000, "memory": UNLIMITED, "prefill": prefill, "cost": cost}
    in_line = serve(rows, **system)
    assert not in_line.waiting.any()
    for order in several:
        assert_identical(serve(rows, **system, order=order), in_line)


# A head of the queue that memory blocks. Under other orders than first come, first served a newcomer that fits may pass
# it, and time alone may bring another head: both in the middle of decodes that fast-forward takes at one stride.

MEMORY = {"kind": "reservation", "reserve": "oracle"}


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(
    ("order", "d_output", "c_output", "c_admitted_s"),
    [("sjf", 6, 2, 8.0), ("ljf", 4, 7, 8.0), ("priority", 6, 2, 8.0), ("edf", 6, 2, 8.0), ("fcfs", 6, 2, 20.0)],
)
def test_newcomer_passes_a_blocked_head(
    order: str, d_output: int, c_output: int, c_admitted_s: float, fast_forward: bool
) -> None:
    # 30 tokens, a step a second. a holds 2 + 20 until 20 s; b needs 10 + 5 and waits for it. d, who comes at 3.5 and
    # would fit (1 + 6 or 1 + 4), is longer than b (under ljf shorter), less urgent and due later: it waits behind b. c,
    # who comes at 7.5 and fits (1 + 2 or 1 + 7), goes before b: from the next end of an iteration, at 8.
    rows = [
        (0.0, 2, 20, 22, 0, 99.0),
        (1.0, 10, 5, 15, 1, 60.0),
        (3.5, 1, d_output, 7, 2, 70.0),
        (7.5, 1, c_output, 8, 0, 50.0),
    ]
    system = {"engine": "continuous", "max_batch_size": 8, "memory": MEMORY, "cost": STEP, "order": order}
    records = serve(rows, 30, fast_forward, **system)
    assert records.admitted_s.tolist() == [0.0, 20.0, 20.0, c_admitted_s]


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(
    ("max_wait_s", "admitted_s"),
    [
        (8.5, [0.0, 11.0, 20.0, 20.0]),
        (9.0, [0.0, 11.0, 20.0, 20.0]),  # overdue exactly at the end of an iteration
        (9.0 + 2**-49, [0.0, 12.0, 20.0, 20.0]),  # and a moment later
        (15.0, [0.0, 17.0, 20.0, 20.0]),
        (18.5, [0.0, 20.0, 20.0, 20.0]),
        (None, [0.0, 20.0, 20.0, 20.0]),  # without it, n is as short as h but came later
    ],
)
def test_blocked_head_is_passed_by_who_becomes_overdue(
    max_wait_s: float | None, admitted_s: list[float], fast_forward: bool
) -> None:
    # 30 tokens, a step a second. a holds 22 until 20 s. h, the shortest, needs 21 and waits for it, and o, who needs 6,
    # waits behind h; both come at 2. At 2 + max_wait_s o is overdue and goes first, as it came first, and it fits. Then
    # it is h's turn, overdue as well: n, shortest of all who fit, comes at 13 and does not pass h.
    # At 20 h takes 21 and n 2 of the memory that o has left.
    rows = [(0.0, 2, 20), (2.0, 1, 5), (2.0, 20, 1), (13.0, 1, 1)]
    aging = {} if max_wait_s is None else {"aging": {"max_wait_s": max_wait_s}}
    system = {"engine": "continuous", "max_batch_size": 8, "memory": MEMORY, "cost": STEP}
    records = serve(rows, 30, fast_forward, **system, order={"kind": "sjf", **aging})
    assert records.admitted_s.tolist() == admitted_s


@pytest.mark.parametrize("end", [0, 5, 77, 200])
@pytest.mark.parametrize("fast_forward", [True, False])
def test_overdue_at_the_end_of_a_roofline_iteration(end: int, fast_forward: bool) -> None:
    """At a time that is no round number, and the floating-point numbers next to it."""
    # All come at 0, so `max_wait_s` is when they are overdue. 1,100 tokens: a, the shortest, takes 100 + 400; h, the
    # next, does not fit beside it (500 + 450), and o (50 + 500) waits behind h until it is overdue: it came before h.
    a, o, h = (0.0, 100, 400), (0.0, 50, 500), (0.0, 500, 450)
    system = {"engine": "continuous", "max_batch_size": 8, "memory": MEMORY}
    overdue_s = float(serve([a], 1100, **system).iterations.end_s[end])
    for max_wait_s, iteration in (
        (np.nextafter(overdue_s, 0.0), end + 1),
        (overdue_s, end + 1),
        (np.nextafter(overdue_s, 9.0), end + 2),
    ):
        order = {"kind": "sjf", "aging": {"max_wait_s": float(max_wait_s)}}
        records = serve([a, o, h], 1100, fast_forward, **system, order=order)
        assert records.requests.admitted_iteration[:2].tolist() == [0, iteration]


def test_overdue_beyond_the_longest_stretch() -> None:
    # The same, with a running for 10,000 s: o is overdue at 2 + 5000.
    rows = [(0.0, 2, 10_000), (2.0, 1, 5), (2.0, 20, 1)]
    order = {"kind": "sjf", "aging": {"max_wait_s": 5000.0}}
    system = {"engine": "continuous", "max_batch_size": 8, "memory": MEMORY, "cost": STEP, "order": order}
    records = serve(rows, 10_010, **system)
    assert records.admitted_s.tolist() == [0.0, 5002.0, 10_000.0]
    assert_identical(records, serve(rows, 10_010, **system, fast_forward=False))


@st.composite
def blocked(draw: st.DrawFn, unit_s: float = 1.0) -> tuple[list[Row], dict[str, Any]]:
    """One or two long requests leave little memory; others come in bursts, small ones that fit and large ones."""
    rows = [(0.0, 2, draw(st.integers(30, 150)), 0, 1, 100 * unit_s) for _ in range(draw(st.integers(1, 2)))]
    spare = draw(st.integers(5, 25))
    kv_tokens = sum(prompt + output for _, prompt, output, *_ in rows) + spare
    small, large = (st.tuples(st.integers(*prompts), st.integers(1, 8)) for prompts in ((1, 3), (spare, spare + 8)))
    now_s = 0.0
    for burst in draw(st.lists(st.lists(small | large, min_size=1, max_size=4), min_size=1, max_size=5)):
        now_s += unit_s * draw(st.sampled_from((0.5, 1.0, 3.0, 10.0, 30.0)))
        for prompt, output in burst:
            deadline_s = now_s + unit_s * draw(st.sampled_from((1.0, 10.0, 50.0)))
            rows.append((now_s, prompt, output, prompt + output, draw(st.integers(0, 2)), deadline_s))
    return rows, {"engine": "continuous", "max_batch_size": 16, "memory": MEMORY, "kv_tokens": kv_tokens}


def orders_that_turn(waits_s: tuple[float, ...]) -> st.SearchStrategy[Any]:
    """Any order, and half of them with a longest wait."""
    return orders(waits_s=waits_s) | st.sampled_from(
        [{"kind": "sjf", "aging": {"max_wait_s": wait_s}} for wait_s in waits_s]
    )


@settings(PLAIN, max_examples=250)
@given(
    blocked(),
    orders_that_turn((2.0, 7.5, 20.0)),
    st.sampled_from(({"step_s": 1.0}, {"decode_sequence_s": 1.0}, {"step_s": 1.0, "prefill_token_s": 1.0})),
    st.sampled_from(("mixed", "mixed", "first", {"kind": "chunked", "budget_tokens": 17})),
)
def test_blocked_heads(
    crowd: tuple[list[Row], dict[str, Any]], order: Any, rates: dict[str, float], prefill: Any
) -> None:
    rows, system = crowd
    check(rows, {**system, "order": order, "cost": {"kind": "linear", **rates}, "prefill": prefill})


@settings(PLAIN, max_examples=100)
@given(blocked(unit_s=0.006), orders_that_turn((0.01, 0.05, 0.1203)))
def test_blocked_heads_on_the_roofline(crowd: tuple[list[Row], dict[str, Any]], order: Any) -> None:
    rows, system = crowd
    check(rows, {**system, "order": order})


CHAT = {"kind": "lognormal", "mean": 300, "sigma": 0.8, "max": 4096}
PROMPT = {"kind": "lognormal", "mean": 512, "sigma": 0.8, "max": 8000}


def memory_of(reserve: str) -> dict[str, Any]:
    if reserve == "unlimited":
        return UNLIMITED
    return {"kind": "reservation", "reserve": reserve, "max_tokens": 8192}


def check_chat(workload_spec: dict[str, Any], seed: int, kv_tokens: int | None = None, **system: Any) -> Records:
    whole = scenario(system, kv_tokens, workload=workload_spec, seed=seed)
    records = run(whole, "a")
    jobs, *facts = serve_plainly(whole.workload.draw(Streams(seed)), kv_tokens, seed, **system)
    assert_same_as_reference(records, jobs, *facts)
    assert_same_gaps_as_reference(records, jobs)
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


CLIENTS = {
    "batch": {"share": 1, "priority": 2, "prompt_tokens": {"kind": "uniform", "low": 1000, "high": 6000}},
    "chat": {"share": 4, "priority": 1, "deadline_s": 2.0},
    "code": {"share": 2, "deadline_s": 0.5, "output_tokens": {"kind": "uniform", "low": 1, "high": 40}},
}


def admitted_in_mid_stretch(records: Records) -> tuple[int, int]:
    """Count admissions after a decode with which nobody left: of newcomers past others who wait, and by time alone."""
    iterations, arrival_s = records.iterations, records.workload.arrival_s
    newcomers = by_time = 0
    for i in range(1, len(iterations)):
        admitted = records.requests.admitted_iteration == i
        decoded = iterations.prefill_tokens[i - 1] == 0 and iterations.end_s[i - 1] == iterations.start_s[i]
        if admitted.any() and decoded and not (records.requests.finish_iteration == i - 1).any():
            came = (arrival_s > iterations.start_s[i - 1]) & (arrival_s <= iterations.start_s[i])
            newcomers += bool((admitted & came).any() and records.waiting[i - 1] > 0)
            by_time += not (admitted & came).any()
    return newcomers, by_time


@pytest.mark.parametrize(
    ("order", "prefill"),
    [
        ({"kind": "sjf", "aging": {"max_wait_s": 2.0}}, "mixed"),
        ({"kind": "sjf", "predictor": {"kind": "lognormal_noise", "sigma": 0.5}}, "first"),
        ({"kind": "sjf", "aging": {"tokens_per_s": 50.3, "max_wait_s": 3.0}}, "chunked"),
        ("ljf", {"kind": "chunked", "budget_tokens": 300}),
        ("priority", "mixed"),
        ("edf", "first"),
    ],
)
def test_chat_of_several_clients(order: Any, prefill: Any) -> None:
    """A queue for memory, in which heads change in the middle of stretches."""
    spec = {**chat(250, 30.0, PROMPT, {**CHAT, "mean": 100}), "clients": CLIENTS}
    system = {"engine": "continuous", "max_batch_size": 64, "memory": memory_of("oracle")}
    runs = [check_chat(spec, seed, 20_000, **system, order=order, prefill=prefill) for seed in (1, 2, 3)]
    newcomers, by_time = map(sum, zip(*map(admitted_in_mid_stretch, runs), strict=True))
    assert newcomers >= 10
    assert by_time > 0 or not has_longest_wait(order)


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
        jobs, *_ = serve_plainly(workload(CHART), engine=kind, max_batch_size=3, memory=UNLIMITED, cost=STEP)
        assert [job.token_s[-1] for job in jobs] == [end + 1 for end in last]
        assert all(len(job.token_s) == job.output_tokens for job in jobs)
        assert all(b > a for job in jobs for a, b in pairwise(job.token_s))
    assert reference.roofline([reference.Piece(1, 1024)]) == pytest.approx(0.006, abs=0.0005)
