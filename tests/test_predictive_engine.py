"""Workers, inboxes and ensembles: timelines by hand, a plain reference simulator, and what holds of every run."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.engine import Clock
from simserve.engine.predictive import ArrivalInbox
from simserve.query_records import QueryLog, QueryRecords
from tests.predictions import fixed, line, queries, rows, serve, vote


def answers(records: QueryRecords) -> list[float | None]:
    """Return when each query is answered, None for never."""
    return [None if math.isnan(time_s) else time_s for time_s in records.finish_s.tolist()]


# Batches and same-time arrivals.


def test_batches_are_who_waits_up_to_the_limit() -> None:
    # 1 + 0.5 B. At 0 one alone until 1.5; then three of the four that came, 2.5 long, until 4; then two, until 6.
    records = serve([0.0, 0.1, 0.2, 0.3, 0.4, 3.9], profile=line(1.0, 0.5), controller=fixed(3))
    assert rows(records) == [(0, 1.5, 1), (1.5, 4, 3), (4, 6, 2)]
    assert answers(records) == [1.5, 4, 4, 4, 6, 6]
    assert records.admitted_s.tolist() == [0, 1.5, 1.5, 1.5, 4, 4]


def test_an_arrival_at_the_end_of_a_batch_is_in_the_next() -> None:
    # 0.1 + 0.2 is 0.30000000000000004, and so is the arrival.
    records = serve([0.1, 0.25, 0.1 + 0.2], profile=line(0.2), controller=fixed(2))
    assert [size for _, _, size in rows(records)] == [1, 2]
    assert records.admitted_s[1:].tolist() == [0.1 + 0.2] * 2


def test_an_idle_worker_starts_at_once() -> None:
    assert rows(serve([2.0, 7.0])) == [(2, 3, 1), (7, 8, 1)]


def test_one_query() -> None:
    records = serve([5.0], profile=line(1.0, 0.5), controller=fixed(10))
    assert rows(records) == [(5, 6.5, 1)]


# Delay.


def test_the_delay_counts_from_when_a_query_waits() -> None:
    # Idle since 0, the first at 10: leaves at 12 with the second, and not with the one at 12.5.
    records = serve([10.0, 11.0, 12.5], controller=fixed(5), max_delay_s=2.0)
    assert rows(records) == [(12, 13, 2), (15, 16, 1)]  # the third: idle from 13, waiting since 12.5, 13 + 2


def test_the_delay_counts_from_when_the_worker_is_idle() -> None:
    # Two come while the first batch runs, 2 to 3: at 3 they have waited up to 0.9 s, and wait 2 more.
    records = serve([0.0, 2.1, 2.2], controller=fixed(5), max_delay_s=2.0)
    assert rows(records) == [(2, 3, 1), (5, 6, 2)]


def test_a_full_batch_leaves_early() -> None:
    # Full with the third at 1; two of the next four are left at 2, and leave at 2 + 10 = 12, or full, at 5.
    records = serve([0.0, 0.5, 1.0, 1.5, 1.6, 5.0], controller=fixed(3), max_delay_s=10.0)
    assert rows(records) == [(1, 2, 3), (5, 6, 3)]


def test_an_arrival_at_the_end_of_the_delay_is_taken() -> None:
    assert rows(serve([1.0, 3.0], controller=fixed(5), max_delay_s=2.0)) == [(3, 4, 2)]


def test_a_huge_delay_ends_with_the_last_query() -> None:
    # Nobody comes any more: the worker waits its time all the same, 1e9 s.
    assert rows(serve([0.0, 1.0], controller=fixed(5), max_delay_s=1e9)) == [(1e9, 1e9 + 1, 2)]
    assert rows(serve([0.0, 1.0], controller=fixed(2), max_delay_s=1e9)) == [(1, 2, 2)]


# Replicas.


def test_two_replicas_on_one_queue() -> None:
    # At 0: one each of four (limit 1), until 1 and, at 0.4 the speed, 2.5. The fast one takes the third and the fourth.
    records = serve([0.0] * 4, replicas=[1.0, 0.4])
    assert rows(records, replica=0) == [(0, 1, 1), (1, 2, 1), (2, 3, 1)]
    assert rows(records, replica=1) == [(0, 2.5, 1)]
    assert answers(records) == [1, 2.5, 2, 3]
    assert records.batches[0].replica.tolist() == [0, 1, 0, 0]


def test_an_idle_replica_takes_what_a_busy_one_cannot() -> None:
    # 0 to 1 on the first; the query at 0.5 on the second, until 1.5; at 1.2 the first is idle again.
    records = serve([0.0, 0.5, 1.2], replicas=2)
    assert records.batches[0].replica.tolist() == [0, 1, 0]
    assert answers(records) == [1, 1.5, 2.2]


def test_replicas_delay_each_from_its_own_idleness() -> None:
    # Limit 2, delay 3. Both idle: the query at 0 leaves at 3, on the first, until 13. At 4 and 5 two fill the second.
    # 16: the query at 6 waits for who is idle first: the first at 13, + 3 = 16.
    records = serve([0.0, 4.0, 5.0, 6.0], profile=line(10.0), controller=fixed(2), replicas=2, max_delay_s=3.0)
    assert rows(records) == [(3, 13, 1), (5, 15, 2), (16, 26, 1)]
    assert records.batches[0].replica.tolist() == [0, 1, 0]


# Deadlines.


def test_who_waits_too_long_is_dropped() -> None:
    # Patience 1.5: at 1 the second has waited 1, at 2 the third has waited 2, the fourth 1.5 exactly.
    records = serve([0.0, 0.0, 0.0, 0.5], patience_s=1.5)
    assert answers(records) == [1, 2, None, 3]
    assert records.expired.tolist() == [False, False, True, False]


def test_all_expire() -> None:
    records = serve([0.0, 0.1, 0.2], profile=line(100.0), patience_s=1.0)
    assert records.expired.tolist() == [False, True, True]
    assert len(records.batches[0]) == 1


def test_nobody_expires_behind_a_delay() -> None:
    # The worker would wait until 50, but the first is worth nothing after 1.
    records = serve([0.0, 0.1], controller=fixed(5), patience_s=1.0, max_delay_s=50.0)
    assert rows(records) == [(1, 2, 2)]


def test_the_dead_are_no_company() -> None:
    # Behind a batch of 0 to 4 wait the query of 1, dead since 2, and that of 3.5, which is no full batch of 2: it waits
    # for that of 4.25, and both leave at once.
    records = serve(
        [0.0, 0.0, 1.0, 3.5, 4.25], profile=line(4.0), controller=fixed(2), patience_s=1.0, max_delay_s=10.0
    )
    assert rows(records) == [(0, 4, 2), (4.25, 8.25, 2)]
    assert records.expired.tolist() == [False, False, True, False, False]


def test_a_deadline_in_decimals_is_kept() -> None:
    # 0.1 + 0.1 + 0.1 is more than 0.3 to a computer: the fourth is taken up at its deadline all the same.
    records = serve([0.0] * 5, profile=line(0.1), patience_s=0.3)
    assert records.expired.tolist() == [False, False, False, False, True]


def test_a_batch_is_filled_beyond_the_dropped() -> None:
    # At 10: those of 1 and 2 are past (patience 5), those of 6, 7 and 8 are not: two of them.
    records = serve([0.0, 1.0, 2.0, 6.0, 7.0, 8.0], profile=line(10.0), controller=fixed(2), patience_s=5.0)
    assert rows(records) == [(0, 10, 1), (10, 20, 2)]
    assert answers(records) == [10, None, None, 20, 20, None]


# Cache.

CACHE = {"kind": "clock", "capacity": 10}


def test_a_hit_is_answered_on_arrival() -> None:
    records = serve([0.0, 5.0], keys=[7, 7], cache=CACHE)
    assert answers(records) == [1, 5]
    assert records.cached.tolist() == [False, True]
    assert records.joined.tolist() == [False, False]
    assert math.isnan(records.admitted_s[1])
    assert rows(records) == [(0, 1, 1)]


def test_a_repeat_under_way_joins() -> None:
    # The leader runs from 0 to 1; the others come at 0.3 and, waiting in line behind another key, at 0.6.
    records = serve([0.0, 0.3, 0.5, 0.6], keys=[7, 7, 8, 8], cache=CACHE)
    assert answers(records) == [1, 1, 2, 2]
    assert records.joined.tolist() == [False, True, False, True]
    assert records.admitted_s.tolist() == [0, 0.3, 1, 1]
    assert rows(records) == [(0, 1, 1), (1, 2, 1)]


def test_a_repeat_at_the_end_of_the_batch_has_its_answer_at_once() -> None:
    records = serve([0.0, 1.0], keys=[7, 7], cache=CACHE)
    assert answers(records) == [1, 1]
    assert records.cached.tolist() == [False, True]


def test_what_is_evicted_is_computed_again() -> None:
    # One seat: 8 takes it from 7.
    records = serve([0.0, 2.0, 4.0], keys=[7, 8, 7], cache={"kind": "clock", "capacity": 1})
    assert answers(records) == [1, 3, 5]
    assert not records.cached.any()


def test_what_is_under_way_keeps_its_seat() -> None:
    # One seat, 7's from 0 to 1. 8 is computed without a seat at 1 to 2, and again for 0.7, as 7 is under way still.
    records = serve([0.0, 0.5, 0.7, 0.9], keys=[7, 8, 8, 7], cache={"kind": "clock", "capacity": 1})
    assert answers(records) == [1, 2, 3, 1]
    assert records.joined.tolist() == [False, False, False, True]


def test_a_full_queue_is_of_distinct_keys() -> None:
    records = serve([0.0, 0.1, 0.2, 0.3, 0.4], keys=[1, 2, 3, 2, 3], controller=fixed(2), cache=CACHE, max_delay_s=0.5)
    # Full at 0.1 with 1 and 2; 3 at 0.2, the repeats join. 3 leaves when the worker is idle, 1.1, and has waited 0.5.
    assert rows(records) == [(0.1, 1.1, 2), (1.6, 2.6, 1)]
    assert answers(records) == [1.1, 1.1, 2.6, 1.1, 2.6]


def test_who_joins_keeps_the_leader_alive() -> None:
    # 8 is due at 2.5 (patience 2), but joined at 2: due at 4. The worker is free at 3.
    records = serve([0.0, 0.5, 2.0], keys=[7, 8, 8], profile=line(3.0), patience_s=2.0, cache=CACHE)
    assert answers(records) == [3, 6, 6]
    alone = serve([0.0, 0.5], keys=[7, 8], profile=line(3.0), patience_s=2.0, cache=CACHE)
    assert answers(alone) == [3, None]


def test_who_joins_a_dropped_leader_is_dropped_with_it() -> None:
    # 8 at 0.5, joined at 0.6: due at 2.6. The worker is free at 3. A third at 3.5 is computed by itself.
    records = serve([0.0, 0.5, 0.6, 3.5], keys=[7, 8, 8, 8], profile=line(3.0), patience_s=2.0, cache=CACHE)
    assert answers(records) == [3, None, None, 6.5]
    assert records.expired.tolist() == [False, True, True, False]
    assert records.joined.tolist() == [False] * 4


def test_a_key_that_was_given_up_does_not_fill_the_cache() -> None:
    """Two seats, one of them given up and taken again by the same key: a third key must find its way in."""
    records = serve(
        [0.0, 0.5, 3.5, 3.6, 3.7, 7.0, 20.0],
        keys=[7, 8, 8, 9, 6, 5, 8],
        profile=line(3.0),
        patience_s=2.0,
        cache={"kind": "clock", "capacity": 2},
    )
    # 0-3 for 7; 8 is dropped at 3; 3.5-6.5 for 8; 9 and 6 (due at 5.6, 5.7) are dropped; 7-10 for 5; 8 is cached.
    assert answers(records) == [3, None, 6.5, None, None, 10, 20]
    assert records.cached.tolist() == [False] * 6 + [True]


# Ensembles.


def test_all_votes_are_waited_for() -> None:
    records = vote([0.0, 0.0], {"a": {}, "b": {"profile": line(3.0)}}, selection="majority")
    # a: 0-1, 1-2. b: 0-3, 3-6.
    assert answers(records) == [3, 6]
    assert rows(records, 0) == [(0, 1, 1), (1, 2, 1)]
    assert rows(records, 1) == [(0, 3, 1), (3, 6, 1)]
    assert records.admitted_s.tolist() == [0, 1]


def test_a_deadline_closes_the_vote_and_a_vote_at_the_deadline_counts() -> None:
    models = {name: {"profile": line(seconds)} for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 3.0))}
    records = vote([0.0], models, selection="majority", deadline_s=2.0)
    assert records.ballots is not None
    assert answers(records) == [2]
    assert records.ballots.asked.tolist() == [3]
    assert records.ballots.arrived.tolist() == [2]
    again = vote([5.0], models, selection="majority", deadline_s=2.0)  # everything later: the workers sleep at first
    assert again.ballots is not None
    assert again.ballots.arrived.tolist() == [2]
    early = vote([0.0], models, selection="majority", deadline_s=1.9)
    assert early.ballots is not None
    assert answers(early) == [1.9]
    assert early.ballots.arrived.tolist() == [1]
    late = vote([0.0], models, selection="majority", deadline_s=5.0)
    assert answers(late) == [3]  # all are in: no need to wait


def test_stragglers_run_on_after_the_answer() -> None:
    records = vote([0.0, 1.0], {"a": {"profile": line(5.0)}}, selection="majority", deadline_s=2.0)
    assert rows(records) == [(0, 5, 1), (5, 10, 1)]
    assert answers(records) == [2, 3]
    assert records.ballots is not None
    assert records.ballots.arrived.tolist() == [0, 0]
    assert records.ballots.correct.tolist() == [False, False]  # the default answer
    assert records.ballots.whole_correct.tolist() == [True, True]
    assert records.admitted_s[0] == 0
    assert math.isnan(records.admitted_s[1])  # no batch had it when it was answered


def test_the_vote() -> None:
    # Two labels: who is wrong says 1. Two of weight 1 are wrong, one of weight 3 is right; of weight 2 it is a tie, and
    # the model named first wins.
    wrong, right = {"accuracy": 0.0}, {"accuracy": 1.0}
    for weight, first, expected in ((3, "w", True), (1, "w", False), (2, "w", False), (2, "r", True)):
        models = {"r": right, "v": wrong, "w": wrong} if first == "r" else {"v": wrong, "w": wrong, "r": right}
        selection = {"kind": "majority", "weights": {"r": weight}}
        records = vote([0.0], models, selection=selection, num_labels=2)
        assert records.ballots is not None
        assert records.ballots.correct.tolist() == [expected], (weight, first)
        assert records.ballots.supporters.tolist() == [1 if expected else 2]


def test_answers_drift() -> None:
    models = {"a": {"accuracy": 1.0, "drift": {"at": 0.25, "accuracy": 0.0}}, "b": {"accuracy": 0.5}}
    records = vote([float(i) for i in range(8)], models, selection={"kind": "single", "model": "a"})
    assert records.ballots is not None
    assert records.ballots.correct.tolist() == [True] * 2 + [False] * 6
    assert records.ballots.best_model.tolist() == [0] * 2 + [1] * 6
    assert records.ballots.asked.tolist() == [1] * 8
    assert len(records.batches[1]) == 0


def test_members_batch_and_delay_like_workers() -> None:
    arrivals = [0.0, 0.1, 0.2, 0.3, 0.4, 3.9, 4.0, 9.0, 9.5]
    for fields in (
        {"controller": fixed(3), "profile": line(1.0, 0.5)},
        {"controller": fixed(3), "profile": line(1.0, 0.5), "max_delay_s": 1.0},
        {"controller": fixed(2), "replicas": 2, "max_delay_s": 0.3},
        {"controller": fixed(4), "max_delay_s": 20.0},
    ):
        alone = serve(arrivals, **fields)
        member = vote(arrivals, {"a": fields}, selection="majority")
        assert rows(member) == rows(alone)
        assert answers(member) == answers(alone)


def test_a_member_has_who_arrives_at_the_end_of_a_batch_in_the_next() -> None:
    arrivals = [0.0, 0.5, 1.0]
    assert rows(vote(arrivals, {"a": {"controller": fixed(2)}}, selection="majority")) == [(0, 1, 1), (1, 2, 2)]


def test_exp3_learns_only_from_what_it_asks() -> None:
    models = {"a": {"accuracy": 0.0}, "b": {"accuracy": 1.0}}
    records = vote([10.0 * i for i in range(200)], models, selection={"kind": "exp3", "learning_rate": 0.5})
    assert records.ballots is not None
    assert records.ballots.asked.tolist() == [1] * 200
    assert records.ballots.first_asked[-50:].tolist() == [1] * 50
    assert len(records.batches[0]) + len(records.batches[1]) == 200


# A plain simulator: at every instant at which anything can happen, everyone is asked.


def plainly(
    arrivals: list[float], limit: int, delay_s: float, speeds: list[float], a_s: float, b_s: float
) -> list[tuple[float, float, int, list[int]]]:
    """Return (start, end, replica, queries) of each batch. Who has been idle longest is asked first."""
    idle_s: list[float | None] = [0.0] * len(speeds)
    busy_s = [math.inf] * len(speeds)
    waiting: list[int] = []
    come, batches = 0, []
    while True:
        moments = [time_s for time_s in busy_s if time_s < math.inf]
        moments += arrivals[come : come + 1]
        if waiting:
            head_s = arrivals[waiting[0]]
            moments += [max(since, head_s) + delay_s for since in idle_s if since is not None]
        if not moments:
            return batches
        now_s = min(moments)
        while come < len(arrivals) and arrivals[come] <= now_s:
            waiting.append(come)
            come += 1
        for replica, end_s in enumerate(busy_s):
            if end_s == now_s:
                busy_s[replica], idle_s[replica] = math.inf, now_s
        order = sorted((since, replica) for replica, since in enumerate(idle_s) if since is not None)
        for since, replica in order:
            full = len(waiting) >= limit
            if waiting and (full or now_s >= max(since, arrivals[waiting[0]]) + delay_s):
                taken, waiting = waiting[:limit], waiting[limit:]
                end_s = now_s + (a_s + b_s * len(taken)) * (1.0 / speeds[replica])
                batches.append((now_s, end_s, replica, taken))
                busy_s[replica], idle_s[replica] = end_s, None


def queries_of(records: QueryRecords) -> list[tuple[float, float, list[int]]]:
    """Return start, end and queries of each batch: a batch takes the next in line, and no two start with the same."""
    order = np.argsort(records.admitted_s, kind="stable").tolist()
    found, at = [], 0
    for start_s, end_s, size in rows(records):
        found.append((start_s, end_s, sorted(order[at : at + size])))
        at += size
    return found


COSTS = st.sampled_from([(1.0, 0.0), (0.3, 0.2), (0.0, 1.0)])
SPEEDS = st.lists(st.sampled_from([1.0, 0.5, 2.0, 0.7]), min_size=1, max_size=4)


def compare(
    seed: int, size: int, rate: float, limit: int, delay_s: float, speeds: list[float], costs: tuple[float, float]
) -> None:
    """To the last digit, and where it makes a difference on the same replica."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, size)).tolist()
    expected = plainly(arrivals, limit, delay_s, speeds, *costs)
    records = serve(arrivals, profile=line(*costs), controller=fixed(limit), max_delay_s=delay_s, replicas=speeds)
    assert queries_of(records) == [(start_s, end_s, taken) for start_s, end_s, _, taken in expected]
    if delay_s == 0:
        assert records.batches[0].replica.tolist() == [replica for _, _, replica, _ in expected]


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from([0.3, 1.0, 4.0]), st.integers(1, 6), SPEEDS, COSTS)
def test_as_a_plain_simulator_with_replicas_of_many_speeds(
    seed: int, size: int, rate: float, limit: int, speeds: list[float], costs: tuple[float, float]
) -> None:
    compare(seed, size, rate, limit, 0.0, speeds, costs)


@settings(max_examples=200)
@given(
    st.integers(0, 10**6),
    st.integers(1, 60),
    st.sampled_from([0.3, 1.0, 4.0]),
    st.integers(1, 6),
    st.sampled_from([0.3, 1.7, 20.0]),
    st.integers(1, 4),
    COSTS,
)
def test_as_a_plain_simulator_with_a_delay(
    seed: int, size: int, rate: float, limit: int, delay_s: float, replicas: int, costs: tuple[float, float]
) -> None:
    """Replicas alike: which of two that wait for the same query leaves with it is left open."""
    compare(seed, size, rate, limit, delay_s, [1.0] * replicas, costs)


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=40),
    st.integers(1, 5),
    st.sampled_from([0, 1, 2, 5]),
    st.integers(1, 3),
)
def test_as_a_plain_simulator_where_all_fall_together(ticks: list[int], limit: int, delay: int, replicas: int) -> None:
    """Quarter seconds: arrivals, ends of batches and of delays meet all the time. Two replicas that could take the same
    queries at the same instant are alike without a delay, and only then."""
    arrivals, delay_s = [tick / 4 for tick in sorted(ticks)], delay / 4 if replicas == 1 else 0.0
    expected = plainly(arrivals, limit, delay_s, [1.0] * replicas, 0.5, 0.25)
    records = serve(arrivals, profile=line(0.5, 0.25), controller=fixed(limit), max_delay_s=delay_s, replicas=replicas)
    assert queries_of(records) == [(start_s, end_s, taken) for start_s, end_s, _, taken in expected]
    if delay_s == 0:
        member = vote(
            arrivals,
            {"a": {"profile": line(0.5, 0.25), "controller": fixed(limit), "replicas": replicas}},
            selection="majority",
        )
        assert rows(member) == rows(records)


# What holds of every run.

CONTROLLERS = [
    fixed(1),
    fixed(7),
    "aimd",
    {"kind": "aimd", "target": 0.9, "increase": 2},
    {"kind": "quantile", "refit_batches": 5, "window": 20},
    {"kind": "estimator", "samples_per_size": 2},
]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 150),
    rate=st.sampled_from([20.0, 200.0, 2000.0]),
    controller=st.sampled_from(CONTROLLERS),
    delay_s=st.sampled_from([0.0, 0.004, 0.05]),
    replicas=st.sampled_from([1, 2, [1.0, 0.3, 2.0]]),
    cache=st.sampled_from([None, {"kind": "clock", "capacity": 2}, {"kind": "clock", "capacity": 20}]),
    patience_s=st.sampled_from([math.inf, 0.005, 0.03]),
    noise=st.sampled_from(["none", "exponential", {"kind": "normal", "sigma": 0.1}]),
    disturbances=st.sampled_from([[], [{"batches": [3, 6], "per_query": 3, "pause_s": 0.02}]]),
)
def test_invariants(
    seed: int, size: int, rate: float, controller: Any, delay_s: float, replicas: Any, cache: Any, patience_s: float,
    noise: Any, disturbances: Any,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    arrivals = np.round(np.cumsum(rng.exponential(1 / rate, size)), 3)  # milliseconds: some fall together
    keys = rng.integers(0, 12, size).tolist() if cache else None
    records = serve(
        arrivals.tolist(), keys=keys, patience_s=patience_s, slo_s=0.02, seed=seed, controller=controller,
        profile=line(0.003, 0.0005), max_delay_s=delay_s, replicas=replicas, cache=cache, noise=noise,
        disturbances=disturbances,
    )  # fmt: skip
    batches = records.batches[0]

    # Each exactly once: answered or expired; computed, cached or joined.
    assert (records.finished ^ records.expired).all()
    computed = records.finished & ~records.cached & ~records.joined
    assert (computed.astype(int) + records.cached + records.joined + records.expired == 1).all()
    assert batches.size.sum() == computed.sum()

    # Batches of a replica follow each other, and keep the limit.
    for replica in range(records.replicas):
        own = batches.of(replica)
        assert (own.start_s[1:] >= own.end_s[:-1]).all()
    assert ((batches.size >= 1) & (batches.size <= batches.limit)).all()
    assert (batches.run_size >= batches.size).all()

    # First in, first out; nobody is taken up after the deadline, or before arrival.
    taken_s = records.admitted_s[computed]
    assert (np.diff(taken_s) >= 0).all()
    assert (taken_s >= arrivals[computed]).all()
    if cache is None:
        assert (taken_s <= records.queries.deadline_s[computed] * (1 + 1e-12)).all()
    assert (records.finish_s[records.cached] == arrivals[records.cached]).all()
    if cache is not None:  # whoever is not computed has the answer of an earlier query with the same key
        assert keys is not None
        for query in np.flatnonzero(records.cached | records.joined).tolist():
            earlier = [q for q in np.flatnonzero(computed).tolist() if q < query and keys[q] == keys[query]]
            ends = [records.finish_s[q] for q in earlier]
            assert records.finish_s[query] in ends or any(end <= arrivals[query] for end in ends)

    # Without a delay nobody waits while a replica is idle: at the start of a batch of a query that had to wait, all
    # replicas are busy or starting, and were so since it came.
    if delay_s == 0:
        for query in np.flatnonzero(computed).tolist():
            arrived_s, start_s = arrivals[query], records.admitted_s[query]
            if start_s > arrived_s:
                middle_s = (arrived_s + start_s) / 2
                running = (batches.start_s <= middle_s) & (middle_s < batches.end_s)
                assert running.sum() == records.replicas


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 60),
    selection=st.sampled_from(["exp3", "exp4", "majority", {"kind": "single", "model": "b"}]),
    deadline_s=st.sampled_from([None, 0.002, 0.01]),
    delay_s=st.sampled_from([0.0, 0.005]),
)
def test_invariants_of_ensembles(
    seed: int, size: int, selection: Any, deadline_s: float | None, delay_s: float
) -> None:
    arrivals = np.round(np.cumsum(np.random.default_rng(seed).exponential(0.005, size)), 3)
    member = {"controller": fixed(4), "noise": "exponential", "max_delay_s": delay_s, "accuracy": 0.7}
    models = {
        "a": {**member, "profile": line(0.003)},
        "b": {**member, "profile": line(0.001, 0.001), "replicas": 2},
        "c": {**member, "profile": line(0.006)},
    }
    fields: dict[str, Any] = {} if deadline_s is None else {"deadline_s": deadline_s}
    records = vote(arrivals.tolist(), models, seed=seed, selection=selection, **fields)
    ballots = records.ballots
    assert ballots is not None
    assert records.finished.all()
    assert (ballots.arrived <= ballots.asked).all()
    assert (ballots.supporters <= ballots.arrived).all()
    asked = sum(int(batches.size.sum()) for batches in records.batches)
    assert asked == ballots.asked.sum()  # every vote that was asked for is given, if late
    if deadline_s is None:
        assert (ballots.arrived == ballots.asked).all()
        assert ballots.agrees.all()
    else:
        assert (records.finish_s <= arrivals + deadline_s).all()
        short = ballots.arrived < ballots.asked
        assert (records.finish_s[short] == (arrivals + deadline_s)[short]).all()


def test_an_idle_worker_is_not_woken_for_each_arrival_while_busy() -> None:
    """A busy worker costs one event a batch, not one for each query."""
    clock = Clock()
    inbox = ArrivalInbox(clock, queries([0.0, 0.1, 0.2, 5.0]), QueryLog(4))
    inbox.refresh(1.0)
    assert list(inbox.waiting) == [0, 1, 2]
    assert inbox.take(2, 1.0) == [0, 1]
    assert inbox.head_s() == 0.2
    assert inbox.slack_s(1.0) == math.inf
    # One waits: three wanted need two more, of which only one will come: the time out decides.
    assert len(clock._queue) == 0
    inbox.more(3, 7.0)
    inbox.more(2, 7.0)
    assert sorted(entry[0] for entry in clock._queue) == [5.0, 7.0]
    assert inbox.next_arrival() is not None
    inbox.refresh(5.0)
    assert inbox.next_arrival() is None


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.008])
def test_a_delay_costs_no_throughput_under_overload(delay_s: float) -> None:
    # Twice what batches of 34 can serve, 1700/s: a batch is always full when the worker is free.
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / 3400, 10_000)).tolist()
    records = serve(arrivals, profile=line(0.003, 0.0005), controller=fixed(34), max_delay_s=delay_s)
    assert 10_000 / records.finish_s.max() == pytest.approx(1700, rel=0.01)
    assert (records.batches[0].size[3:-1] == 34).all()
