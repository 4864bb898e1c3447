"""Clients: who sends a request, how long it is, how urgent, and what the orders make of that."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from simserve.metrics import request_table
from simserve.records import Records
from simserve.simulation import run
from simserve.workload import Streams, Workload
from tests.support import Row, chat, scenario, serve

LENGTHS = {"kind": "uniform", "low": 10, "high": 99}
SHORT = {"kind": "uniform", "low": 1, "high": 9}
LONG = {"kind": "uniform", "low": 1000, "high": 9999}
FIELDS = ("prompt_tokens", "output_tokens")


def workload_of(clients: dict[str, Any], num_requests: int = 3000, **fields: Any) -> dict[str, Any]:
    return {**chat(num_requests, 5.0, LENGTHS, LENGTHS), "clients": clients, **fields}


def draw(clients: dict[str, Any], seed: int = 1, **fields: Any) -> Workload:
    whole = scenario({"engine": "continuous"}, workload=workload_of(clients, **fields))
    return whole.workload.draw(Streams(seed))


def of(workload: Workload, name: str) -> np.ndarray:
    """Return which requests the client sent."""
    return workload.client == workload.client_names.index(name)


# Shares.


@pytest.mark.parametrize("shares", [(1.0, 1.0), (3.0, 1.0, 0.5), (0.001, 0.0005), (1e-3, 1.0, 1e3)])
@pytest.mark.parametrize("seed", [1, 2])
def test_shares(shares: tuple[float, ...], seed: int) -> None:
    """How many requests each client sends is binomial, with its part of all shares."""
    size = 20_000
    drawn = draw({f"c{i}": {"share": share} for i, share in enumerate(shares)}, seed, num_requests=size)
    counts = np.bincount(drawn.client, minlength=len(shares))
    assert counts.sum() == size
    for count, share in zip(counts, shares, strict=True):
        low, high = stats.binom.interval(0.999, size, share / sum(shares))
        assert low <= count <= high


def test_who_is_next_does_not_depend_on_who_was_before() -> None:
    # Of 20,000 pairs of neighbours a quarter are both of the first client, give or take 4 x sqrt(20,000 x 1/4 x 3/4).
    first = of(draw({"a": {}, "b": {}}, num_requests=20_001), "a")
    both = (first[:-1] & first[1:]).sum()
    assert abs(both - 5000) < 4 * np.sqrt(20_000 * 3 / 16)


def test_without_clients_there_is_one() -> None:
    whole = scenario({"engine": "continuous"}, workload=chat(50, 5.0, LENGTHS, LENGTHS))
    plain = whole.workload.draw(Streams(1))
    assert plain.client_names == ("default",)
    assert not plain.client.any()
    assert {(request.client, request.priority, request.deadline_s) for request in plain} == {(0, 0, np.inf)}
    named = draw({"only": {}}, num_requests=50)
    for column in ("arrival_s", *FIELDS):
        assert np.array_equal(getattr(named, column), getattr(plain, column))


# Priorities and deadlines.


def test_each_request_has_the_priority_and_deadline_of_its_client() -> None:
    clients = {
        "chat": {"deadline_s": 2.5},
        "bulk": {"share": 2.0, "priority": 7},
        "urgent": {"share": 0.5, "priority": -1, "deadline_s": 0.25},
    }
    priority, patience_s = (0, 7, -1), (2.5, np.inf, 0.25)
    drawn = draw(clients, num_requests=300)
    assert drawn.client_names == ("chat", "bulk", "urgent")
    assert set(drawn.client.tolist()) == {0, 1, 2}
    for request in drawn:
        assert request.priority == priority[request.client]
        assert request.deadline_s == request.arrival_s + patience_s[request.client]


# Lengths of their own.


def test_own_lengths() -> None:
    drawn = draw({"a": {}, "b": {"prompt_tokens": SHORT}, "c": {"output_tokens": LONG, "prompt_tokens": LONG}})
    low_high = {
        ("a", "prompt_tokens"): (10, 99),
        ("a", "output_tokens"): (10, 99),
        ("b", "prompt_tokens"): (1, 9),
        ("b", "output_tokens"): (10, 99),
        ("c", "prompt_tokens"): (1000, 9999),
        ("c", "output_tokens"): (1000, 9999),
    }
    for (name, field), (low, high) in low_high.items():
        lengths = getattr(drawn, field)[of(drawn, name)]
        # About 1,000 draws of each: the mean lies within 4 standard errors, and no draw outside.
        assert low <= lengths.min()
        assert lengths.max() <= high
        assert abs(lengths.mean() - (low + high) / 2) < 4 * (high - low + 1) / np.sqrt(12 * len(lengths))


def test_the_draws_of_one_client_do_not_hang_on_those_of_another() -> None:
    clients = {"a": {}, "b": {"prompt_tokens": SHORT, "output_tokens": SHORT}, "c": {"output_tokens": LONG}}
    before = draw(clients)
    after = draw({**clients, "c": {"output_tokens": SHORT, "prompt_tokens": LONG}})
    assert np.array_equal(before.arrival_s, after.arrival_s)
    assert np.array_equal(before.client, after.client)
    for name, same in (("a", True), ("b", True), ("c", False)):
        sent = of(before, name)
        for field in FIELDS:
            assert np.array_equal(getattr(before, field)[sent], getattr(after, field)[sent]) == same


def test_own_lengths_are_not_those_of_the_workload_or_of_another_client() -> None:
    """Three clients with the same distribution, on streams of their own: no two of them draw the same lengths."""
    own = {"prompt_tokens": LENGTHS, "output_tokens": LENGTHS}
    drawn = [draw({"a": {"share": 1e9, **lengths}, "b": {"share": 1e-9}}) for lengths in ({}, own)]
    drawn.append(draw({"z": {"share": 1e9, **own}, "b": {"share": 1e-9}}))
    columns = [getattr(workload, field) for workload in drawn for field in FIELDS]
    assert not any(workload.client.any() for workload in drawn)
    # 3,000 pairs of independent draws agree in one of 90: 33.
    for i, one in enumerate(columns):
        for other in columns[:i]:
            assert (one == other).sum() < 33 + 5 * np.sqrt(33)


def test_lengths_of_the_workload_leave_a_client_with_its_own_alone() -> None:
    clients = {"a": {}, "b": {"prompt_tokens": SHORT}}
    before, after = draw(clients), draw(clients, prompt_tokens=LONG)
    b = of(before, "b")
    assert np.array_equal(before.prompt_tokens[b], after.prompt_tokens[b])
    assert not np.any(before.prompt_tokens[~b] == after.prompt_tokens[~b])


def test_shares_decide_who_sends_and_not_how_long() -> None:
    clients = {"a": {"output_tokens": SHORT}, "b": {"output_tokens": LONG}}
    even, uneven = draw(clients), draw({**clients, "a": {"share": 9.0, "output_tokens": SHORT}})
    assert np.array_equal(even.arrival_s, uneven.arrival_s)
    assert np.array_equal(even.prompt_tokens, uneven.prompt_tokens)
    kept = even.client == uneven.client
    assert 0.5 < kept.mean() < 0.7  # a's half of the draws, and the tenth that is b's in both
    assert np.array_equal(even.output_tokens[kept], uneven.output_tokens[kept])


def test_fewer_requests_are_a_prefix_of_more() -> None:
    clients = {"a": {}, "b": {"share": 2.0, "output_tokens": SHORT, "priority": 3, "deadline_s": 1.5}}
    few, many = draw(clients, num_requests=100), draw(clients)
    for column in ("arrival_s", *FIELDS, "max_tokens", "client", "priority", "deadline_s"):
        assert np.array_equal(getattr(few, column), getattr(many, column)[:100])


def test_limits_hold_for_own_lengths_too() -> None:
    drawn = draw({"a": {"output_tokens": LONG}, "b": {}}, max_output_tokens=50, max_total_tokens=120)
    free = draw({"a": {"output_tokens": LONG}, "b": {}})
    expected = np.clip(120 - free.prompt_tokens, 1, np.minimum(free.output_tokens, 50))
    assert np.array_equal(drawn.output_tokens, expected)
    assert drawn.output_tokens[of(drawn, "a")].max() == 50


# In a run.


def test_names_in_the_table_of_requests() -> None:
    clients = {"web": {"output_tokens": 3}, "batch": {"output_tokens": 5}, "nobody": {"share": 1e-9}}
    whole = scenario({"engine": "continuous"}, workload=workload_of(clients, 200))
    table = request_table(run(whole, "a"), None)
    assert set(table["client"]) == {"web", "batch"}
    assert np.array_equal(table["client"] == "web", table["output_tokens"] == 3)
    assert np.array_equal(table["client"] == "batch", table["output_tokens"] == 5)


def one_seat(rows: list[Row], order: Any) -> Records:
    """One request at a time, a second for each token of output."""
    cost = {"kind": "linear", "step_s": 1.0}
    return serve(rows, engine="continuous", max_batch_size=1, order=order, cost=cost)


def test_priority_by_hand() -> None:
    # The first, least urgent, runs from 0 to 6: nobody interrupts it. Then the priorities -1 (for 3 s), 0 (1 s), 0
    # (1 s, came later) and 5.
    rows = [
        (0.0, 1, 6, 7, 5, np.inf),
        (1.0, 1, 2, 3, 5, np.inf),
        (2.0, 1, 1, 2, 0, np.inf),
        (3.0, 1, 3, 4, -1, np.inf),
        (3.0, 1, 1, 2, 0, np.inf),
    ]
    assert one_seat(rows, "priority").admitted_s.tolist() == [0, 11, 9, 6, 10]
    assert one_seat(rows, "fcfs").admitted_s.tolist() == [0, 6, 8, 9, 12]


def test_edf_by_hand() -> None:
    # Deadlines at 21, 5, never, 14 and 14. At 6 the one at 5 has passed, and it still goes first; then the two at 14 by
    # arrival, whichever of them had less time; then 21, then never.
    rows = [
        (0.0, 1, 6, 7, 0, np.inf),
        (1.0, 1, 2, 3, 0, 1.0 + 20.0),
        (2.0, 1, 3, 4, 0, 2.0 + 3.0),
        (3.0, 1, 1, 2, 0, np.inf),
        (4.0, 1, 4, 5, 0, 4.0 + 10.0),
        (5.0, 1, 1, 2, 0, 5.0 + 9.0),
    ]
    # 6 + 3 = 9, 9 + 4 = 13, 13 + 1 = 14, 14 + 2 = 16.
    assert one_seat(rows, "edf").admitted_s.tolist() == [0, 14, 6, 16, 9, 13]


@pytest.mark.parametrize(
    ("aging", "admitted_s"),
    [
        # At 10 the three others have waited 9, 6 and 1 s, and are 8, 6 and 5 tokens long. Shortest first: 5, 6, 8.
        (None, [0, 21, 15, 10]),
        # Half a token a second: 8 - 4.5, 6 - 3, 5 - 0.5. At 16 the other two have aged by the same.
        ({"tokens_per_s": 0.5}, [0, 16, 10, 24]),
        # A token a second: -1, 0, 4.
        ({"tokens_per_s": 1.0}, [0, 10, 18, 24]),
        # At 10 nobody has waited 12 s; at 15 the first has, 14 s, and goes before the second, with 11 s.
        ({"max_wait_s": 12.0}, [0, 15, 23, 10]),
        # At 15 both have waited 11 s: by arrival. At 14 s only the first, exactly.
        ({"max_wait_s": 11.0}, [0, 15, 23, 10]),
        ({"max_wait_s": 14.0}, [0, 15, 23, 10]),
        ({"max_wait_s": 14.5}, [0, 21, 15, 10]),
        # At 10 the first is overdue, with 9 s; at 18 both others are, with 14 and 9 s: by arrival.
        ({"max_wait_s": 9.0}, [0, 10, 18, 24]),
        # Half a token a second and 15 s: 6, then at 16 the first is overdue with exactly 15 s.
        ({"tokens_per_s": 0.5, "max_wait_s": 15.0}, [0, 16, 10, 24]),
    ],
)
def test_sjf_with_aging_by_hand(aging: dict[str, float] | None, admitted_s: list[float]) -> None:
    rows = [(0.0, 1, 10), (1.0, 1, 8), (4.0, 1, 6), (9.0, 1, 5)]
    order = {"kind": "sjf"} if aging is None else {"kind": "sjf", "aging": aging}
    assert one_seat(rows, order).admitted_s.tolist() == admitted_s


@pytest.mark.parametrize("engine", ["continuous", "request_level"])
def test_clients_of_a_scenario_are_served_by_priority_and_by_deadline(engine: str) -> None:
    # All come within microseconds; the first is served at once, and everyone else is there when it leaves.
    clients = {
        "chat": {"deadline_s": 3.0, "priority": 1},
        "bulk": {"deadline_s": 9.0},
        "urgent": {"deadline_s": 0.25, "priority": -1, "output_tokens": 1},
        "idle": {"priority": 5},
    }
    spec = workload_of(clients, 80, arrivals={"kind": "poisson", "rate_per_s": 1e7}, output_tokens=2)
    priority, patience_s = np.array([1, 0, -1, 5]), np.array([3.0, 9.0, 0.25, np.inf])
    for order in ("priority", "edf"):
        system = {"engine": engine, "max_batch_size": 1, "order": order, "cost": {"kind": "linear", "step_s": 1.0}}
        records = run(scenario(system, workload=spec), "a")
        client, arrival_s = records.workload.client, records.workload.arrival_s
        assert set(client.tolist()) == {0, 1, 2, 3}
        key = priority[client] if order == "priority" else (arrival_s + patience_s[client])
        expected = [0, *sorted(range(1, 80), key=lambda i, key=key: (key[i], i))]
        assert np.argsort(records.requests.admitted_iteration).tolist() == expected
