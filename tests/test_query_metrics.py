"""From records of prediction serving to numbers, by hand."""

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simserve import metrics
from simserve.query_metrics import (
    BATCH_COLUMNS,
    DIAGNOSTICS,
    LEARNING_COLUMNS,
    batch_table,
    diagnostics,
    late,
    learning_table,
    regrets,
    request_table,
    run_metrics,
    slo_met,
)
from simserve.query_records import Ballots, QueryRecords
from tests.predictions import fixed, line, serve, vote

CACHE = {"kind": "clock", "capacity": 10}


def all_dropped() -> QueryRecords:
    """Return a run in which the only query was dropped."""
    served = serve([0.0])
    never = np.full(1, np.nan)
    return replace(
        served, finish_s=never, admitted_s=never, expired=np.ones(1, dtype=np.bool_), batches=(served.batches[0].of(9),)
    )


def test_run_metrics_by_hand() -> None:
    # 1 + 0.5 B, limit 3: 0-1.5 with one, 1.5-4 with three, 4-6 with two.
    records = serve([0.0, 0.1, 0.2, 0.3, 0.4, 3.9], profile=line(1.0, 0.5), controller=fixed(3))
    found = run_metrics(records, 3.0)
    latencies = [1.5, 3.9, 3.8, 3.7, 5.6, 2.1]
    assert list(found) == list(metrics.COLUMNS)
    assert found["requests"] == found["finished"] == found["output_tokens"] == 6
    assert found["rejected"] == found["unfinished"] == found["preemptions"] == 0
    assert found["duration_s"] == 6
    assert found["request_throughput_per_s"] == found["throughput_tok_per_s"] == 1
    assert found["slo_attainment"] == pytest.approx(2 / 6)
    assert found["e2e_mean_s"] == found["ttft_mean_s"] == pytest.approx(np.mean(latencies))
    assert found["e2e_p50_s"] == pytest.approx(np.percentile(latencies, 50))
    assert found["e2e_p99_s"] == pytest.approx(np.percentile(latencies, 99))
    assert found["e2e_max_s"] == pytest.approx(5.6)
    assert found["iterations"] == 3
    assert found["busy_s"] == 6
    assert found["utilization"] == 1
    assert found["batch_mean"] == pytest.approx((1 * 1.5 + 3 * 2.5 + 2 * 2) / 6)  # over time
    assert found["running_max"] == 3
    for name in ("tpot_mean_s", "itl_p99_s", "steady_throughput_tok_per_s", "kv_reserved_mean", "kv_stored_mean"):
        assert math.isnan(found[name])
    assert math.isnan(run_metrics(records, None)["slo_attainment"])


def test_utilization_is_of_all_replicas() -> None:
    # 0-1 and 0-1 of two replicas, then 1-2 of one: 3 of 4.
    assert run_metrics(serve([0.0] * 3, replicas=2), None)["utilization"] == pytest.approx(0.75)


def test_dropped_queries_miss_and_have_no_latency() -> None:
    found = run_metrics(serve([0.0, 0.1, 0.2, 0.3], profile=line(10.0), patience_s=1.0), 20.0)
    assert (found["finished"], found["rejected"]) == (1, 3)
    assert found["slo_attainment"] == 0.25
    assert found["e2e_max_s"] == 10
    nothing = run_metrics(all_dropped(), 20.0)
    assert (nothing["finished"], nothing["rejected"], nothing["duration_s"], nothing["iterations"]) == (0, 1, 0, 0)
    assert math.isnan(nothing["utilization"])
    assert math.isnan(nothing["e2e_mean_s"])
    assert nothing["slo_attainment"] == 0


def test_a_hit_takes_no_time() -> None:
    records = serve([0.0, 0.5, 2.0, 3.0], keys=[1, 1, 1, 2], cache=CACHE)
    found = run_metrics(records, 0.5)
    # 1, 0.5 (joined), 0 (cached), 1.
    assert found["e2e_mean_s"] == pytest.approx(2.5 / 4)
    assert found["slo_attainment"] == 0.5
    shares = diagnostics(records, None, 0)
    assert (shares["cached_share"], shares["joined_share"], shares["expired_share"]) == (0.25, 0.25, 0)


def test_expired_share_counts_who_had_joined() -> None:
    records = serve([0.0, 0.5, 0.6, 3.5], keys=[7, 8, 8, 8], profile=line(3.0), patience_s=2.0, cache=CACHE)
    shares = diagnostics(records, None, 0)
    assert (shares["cached_share"], shares["joined_share"], shares["expired_share"]) == (0, 0, 0.5)


@pytest.mark.parametrize("start_s", [0.0, 0.1, 77.7, 3_333.3, 123_456.789])
def test_a_latency_that_equals_the_slo_is_within_at_any_time_of_day(start_s: float) -> None:
    """The clock is rounded: at 1e5 s its readings are 1.5e-11 s apart, a billionth of the SLO."""
    arrivals = [start_s + 0.1 * i for i in range(200)]
    whole = serve(arrivals, profile=line(0.003, 0.017))
    assert slo_met(whole, 0.020).all()
    assert not slo_met(whole, 0.019999).any()
    voted = vote(arrivals, {"a": {"profile": line(0.050)}}, selection="majority", deadline_s=0.020)
    assert slo_met(voted, 0.020).all()
    assert not slo_met(voted, 0.019999).any()


def test_late_is_by_service_time() -> None:
    # 34 take exactly 20 ms, 35 take 20.5; waiting does not count.
    records = serve([0.0] * 200, profile=line(0.003, 0.0005), controller={"kind": "aimd", "initial": 34}, slo_s=0.02)
    batches = records.batches[0]
    assert batches.size.tolist() == [34, 35, 31, 32, 33, 34, 1]
    assert late(batches, 0.020).tolist() == [False, True, False, False, False, False, False]
    table = batch_table(records, 0.020)
    assert list(table.columns) == list(BATCH_COLUMNS)
    assert table["late"].tolist() == late(batches, 0.020).tolist()
    assert table["ceiling"].tolist() == [34] * 7
    assert table["batch"].tolist() == list(range(7))
    assert table["model"].unique().tolist() == ["model"]


def test_ceilings_follow_replica_and_disturbance() -> None:
    # 3 + 0.5 B within 20: 34; per-query cost doubled: 17; at half the speed 14 and 7.
    records = serve(
        [0.0] * 8,
        profile=line(3.0, 0.5),
        replicas=[1.0, 0.5],
        disturbances=[{"batches": [1, 2], "per_query": 2}],
        slo_s=20.0,
    )
    table = batch_table(records, 20.0)
    assert table.query("replica == 0")["ceiling"].tolist()[:3] == [34, 17, 34]
    assert table.query("replica == 1")["ceiling"].tolist()[:2] == [14, 7]


def test_request_table() -> None:
    records = serve([0.0, 0.5, 0.6], profile=line(2.0), patience_s=1.8)
    table = request_table(records, 3.0)
    assert list(table.columns) == list(metrics.REQUEST_COLUMNS)
    assert table["status"].tolist() == ["finished", "finished", "expired"]
    assert table["e2e_s"].tolist()[:2] == [2, 3.5]
    assert table["slo_met"].tolist() == [True, False, False]
    assert table["admitted_s"].tolist()[:2] == [0, 2]
    assert request_table(records, None)["slo_met"].isna().all()


def test_what_a_disturbance_does() -> None:
    # 3 + 0.5 B, doubled per query in batches 6 and 7. AIMD from 34: 34, 35*, 31, 32, 33, 34, 35*, 31*, 27, 28, ...
    # Batch 6: 3 + 35 = 38, late; 31 -> batch 7: 3 + 31, late; 27 from batch 8 on.
    records = serve(
        [0.0] * 420,
        profile=line(0.003, 0.0005),
        controller={"kind": "aimd", "initial": 34},
        disturbances=[{"batches": [6, 8], "per_query": 2}],
        slo_s=0.020,
    )
    batches = records.batches[0]
    assert batches.limit.tolist() == [34, 35, 31, 32, 33, 34, 35, 31, 27, 28, 29, 30, 31, 32]
    assert batches.disturbed.tolist() == [False] * 6 + [True] * 2 + [False] * 6
    found = diagnostics(records, 0.020, 2)
    # Calm: neither disturbed, nor among the first two of the run or after the disturbance: 2-5 and 10-13.
    calm = [31, 32, 33, 34, 29, 30, 31, 32]
    assert found["limit_mean"] == pytest.approx(np.mean(calm))
    assert (found["limit_min"], found["limit_max"]) == (29, 34)
    assert found["late_share"] == 0
    assert found["late_share_disturbed"] == 1
    assert math.isnan(found["adapt_batches"])  # late to the end of it
    # 0.9 x 31.5 = 28.35: 27, 28, 29: after two batches.
    assert found["recover_batches"] == 2
    sizes = batches.size[[2, 3, 4, 5, 10, 11, 12, 13]]
    assert found["batch_throughput_per_s"] == pytest.approx(sizes.sum() / (8 * 0.003 + 0.0005 * sizes.sum()))
    unsettled = diagnostics(records, 0.020, 0)
    assert unsettled["late_share"] == pytest.approx(1 / 12)


def test_adapting_to_a_disturbance() -> None:
    # Batches 1 to 9 at double cost: from 21: 3 + 21 late, 18 late, 16 in time: two batches to adapt.
    records = serve(
        [0.0] * 200,
        profile=line(0.003, 0.0005),
        controller={"kind": "aimd", "initial": 20},
        disturbances=[{"batches": [1, 10], "per_query": 2}],
        slo_s=0.020,
    )
    assert records.batches[0].limit.tolist()[:4] == [20, 21, 18, 16]
    assert diagnostics(records, 0.020, 0)["adapt_batches"] == 2
    assert math.isnan(diagnostics(serve([0.0]), 0.020, 0)["adapt_batches"])


def test_diagnostics_with_nothing_to_say() -> None:
    found = diagnostics(all_dropped(), 1.0, 100)
    assert list(found) == list(DIAGNOSTICS)
    assert found["expired_share"] == 1
    assert found["batches"] == 0
    assert math.isnan(found["late_share"])
    assert math.isnan(found["limit_mean"])


# Ensembles.


def ballots(**columns: Any) -> Ballots:
    """Ten queries of two models, of which the first is better in the first five."""
    size = 10
    usual = {
        "correct": [1, 1, 0, 1, 0, 1, 1, 0, 1, 1],
        "whole_correct": [1] * size,
        "agrees": [1] * 9 + [0],
        "asked": [2] * size,
        "arrived": [2] * 8 + [1, 0],
        "supporters": [2] * 8 + [1, 0],
        "first_asked": [0] * 8 + [1, 1],
        "model_correct": [[1, 1, 1, 1, 0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 1, 1, 1, 1, 1, 1]],
        "best_model": [0] * 5 + [1] * 5,
    }
    flags = {"correct", "whole_correct", "agrees", "model_correct"}
    return Ballots(
        **{name: np.array(value, dtype=bool if name in flags else int) for name, value in (usual | columns).items()}
    )


def test_regret_by_hand() -> None:
    # The best is right 1 1 1 1 0 | 1 1 1 1 1, the answers 1 1 0 1 0 | 1 1 0 1 1.
    assert regrets(ballots()).tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]


def with_ballots(**columns: Any) -> QueryRecords:
    records = vote([float(i) for i in range(10)], {"a": {}, "b": {}}, selection="majority")
    return dataclasses.replace(records, ballots=ballots(**columns))


def test_selection_measures() -> None:
    found = diagnostics(with_ballots(), None, 0)
    assert found["accuracy"] == pytest.approx(0.7)
    assert found["accuracy_late"] == 1  # the last of ten
    assert found["best_model_accuracy_late"] == 1
    assert found["accuracy_shortfall_late"] == 0
    assert math.isnan(found["best_model_share_late"])  # both are asked
    # Before another model becomes the best: regret 0 0 1 1 1, of which all came by the middle (query 2).
    assert found["regret"] == 1
    assert found["regret_second_half_share"] == 0
    assert found["missing_vote_share"] == pytest.approx(3 / 20)
    assert found["agreement"] == pytest.approx(0.9)
    # Of those that had a vote: 8 x 2/2 and 1/2.
    assert found["support_mean"] == pytest.approx((8 + 0.5) / 9)


def test_the_second_half_of_the_regret() -> None:
    # Eight queries before the change: 0 0 1 1 | 1 2 3 4 -> 3 of 4 in the second half.
    best = [0] * 8 + [1] * 2
    right = [[1] * 10, [1] * 10]
    found = diagnostics(
        with_ballots(best_model=best, model_correct=right, correct=[1, 1, 0, 1, 1, 0, 0, 0, 1, 1]), None, 0
    )
    assert (found["regret"], found["regret_second_half_share"]) == (4, 0.75)


def test_learning_table() -> None:
    table = learning_table(with_ballots())
    assert table is not None
    assert list(table.columns) == list(LEARNING_COLUMNS)
    assert table["query"].tolist() == list(range(1, 11))
    assert table["regret"].tolist() == regrets(ballots()).tolist()
    assert table["accuracy"].tolist() == ballots().correct.astype(float).tolist()
    assert table["best_model_share"].tolist() == [1] * 5 + [0] * 3 + [1] * 2
    assert learning_table(serve([0.0])) is None


def test_learning_table_in_parts() -> None:
    records = vote([float(i) for i in range(1000)], {"a": {"accuracy": 0.5}, "b": {"accuracy": 0.9}}, selection="exp3")
    table = learning_table(records)
    assert table is not None
    assert records.ballots is not None
    assert table["query"].tolist() == list(range(5, 1001, 5))
    assert table["accuracy"].tolist() == pytest.approx(records.ballots.correct.reshape(200, 5).mean(axis=1).tolist())
    assert table["regret"].iloc[-1] == regrets(records.ballots)[-1]


def test_models_that_nobody_asked_have_no_batches() -> None:
    records = vote([0.0, 1.0], {"a": {}, "b": {}}, selection={"kind": "single", "model": "b"})
    for slo_s in (None, 1.0):
        assert batch_table(records, slo_s)["model"].tolist() == ["b", "b"]
    found = diagnostics(records, None, 0)
    assert found["batches"] == 2
    assert found["accuracy"] == 1
    assert found["best_model_share_late"] == 0  # of equals the first is the best


def test_one_query_without_a_vote() -> None:
    records = vote([0.0], {"a": {}}, selection="exp3", deadline_s=0.5)
    found = diagnostics(records, None, 0)
    assert (found["accuracy"], found["missing_vote_share"], found["regret"]) == (0, 1, 1)
    assert math.isnan(found["support_mean"])
    assert found["agreement"] == 0
