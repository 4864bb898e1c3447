from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simserve import diagnostics, metrics, simulation
from simserve.experiment import Tables, open_executor, run_study
from simserve.experiment.executors import InProcess
from tests.scenarios import small

RATE = "workload.arrivals.rate_per_s"


def study(executor: Executor | None = None, **changes: Any) -> Tables:
    return run_study(small(**changes), executor or InProcess())


def test_runs_are_systems_times_points_times_replications_in_order() -> None:
    runs = study(sweep={RATE: [4, 16], "systems.orca.max_batch_size": [8, 32]}, replications=2)["runs"]
    assert list(runs.columns) == [
        "system",
        RATE,
        "systems.orca.max_batch_size",
        "replication",
        "seed",
        *metrics.COLUMNS,
    ]
    where = runs[["system", RATE, "systems.orca.max_batch_size", "replication"]].fillna(-1).to_numpy().tolist()
    static = [
        ["static", rate, -1, rep] for rate in (4, 16) for rep in (0, 1)
    ]  # the batch size is not the static system's
    orca = [["orca", rate, size, rep] for rate in (4, 16) for size in (8, 32) for rep in (0, 1)]
    assert where == static + orca


def test_a_row_is_what_the_run_measures() -> None:
    scenario = small(replications=3)
    tables = run_study(scenario, InProcess())
    records = simulation.run(scenario, "orca", 2)
    expected = metrics.run_metrics(records, scenario.slo, scenario.hardware.kv_capacity_tokens(scenario.model))
    row = tables["runs"].query("system == 'orca' and replication == 2").iloc[0]
    assert {name: row[name] for name in metrics.COLUMNS} == expected
    assert list(tables["diagnostics"].columns) == ["system", "replication", *diagnostics.COLUMNS]


def test_requests_are_kept_of_the_first_replication_all_or_none() -> None:
    assert study(replications=2)["requests"]["replication"].unique().tolist() == [0]
    everything = study(replications=2, output={"requests": True, "iterations": "first"})
    assert everything["requests"].groupby(["system", "replication"]).size().tolist() == [60] * 4
    assert everything["iterations"]["replication"].unique().tolist() == [0]
    assert {"requests", "iterations", "preemptions"}.isdisjoint(study(output={"requests": False}))


def test_preemptions_are_written_on_request() -> None:
    systems = {
        "tight": {"engine": "continuous", "memory": {"kind": "paged", "watermark": 0.0}},
        "ample": {"engine": "continuous", "memory": "unlimited"},
    }
    tables = study(systems=systems, hardware={"kv_bytes": 131_072.0 * 6_000}, output={"preemptions": "first"})
    table = tables["preemptions"]
    assert list(table) == ["system", "replication", "request_id", "iteration", "time_s", "kind", "tokens", "cost_s"]
    assert set(table["system"]) == {"tight"}
    runs = tables["runs"].query("replication == 0").set_index("system")
    assert runs.loc["tight", "preemptions"] == len(table) > 0
    assert runs.loc["ample", "preemptions"] == 0
    requests = tables["requests"].query("system == 'tight'")
    assert requests["preemptions"].sum() == len(table)
    untroubled = study(systems={"ample": systems["ample"]}, output={"preemptions": True})["preemptions"]
    assert untroubled.empty


def test_a_search_finds_what_its_runs_show() -> None:
    search = {"low": 0.05, "high": 400, "rel_tol": 0.05, "demand_per_s": 100}
    tables = study(search=search, replications=2, slo={"ttft_s": 0.2})
    goodput, runs = tables["goodput"], tables["runs"]
    expected = ["system", "replication", "goodput_per_s", "low_per_s", "high_per_s", "status", "evaluations"]
    assert list(goodput.columns) == expected
    assert goodput["status"].tolist() == ["bracketed"] * 4
    for row in goodput.itertuples():
        mine = runs[(runs["system"] == row.system) & (runs["replication"] == row.replication)].set_index(RATE)
        assert len(mine) == row.evaluations
        assert row.goodput_per_s == row.low_per_s
        assert mine["slo_attainment"][row.low_per_s] >= 0.9 > mine["slo_attainment"][row.high_per_s]
    summary = tables["summary"].set_index(["system", "metric"])
    gpus = np.ceil(100 / goodput[goodput["system"] == "orca"]["goodput_per_s"])
    assert summary.loc[("orca", "gpus_for_demand"), "mean"] == gpus.mean()
    kept = tables["requests"]  # of the highest rate that attains, in the first replication
    assert kept.groupby("system")[RATE].unique().map(list).to_dict() == {
        row.system: [row.low_per_s] for row in goodput.itertuples() if row.replication == 0
    }


def test_a_bound_that_is_never_crossed_gives_no_goodput() -> None:
    tables = study(search={"low": 0.01, "high": 0.02}, slo={"ttft_s": 100.0})
    assert tables["goodput"]["status"].tolist() == ["above_high"] * 2
    assert tables["goodput"]["goodput_per_s"].isna().all()
    assert tables["goodput"]["low_per_s"].tolist() == [0.02] * 2
    assert tables["summary"]["n"].tolist() == [0, 0]


def test_a_search_at_every_point_of_a_sweep() -> None:
    tables = study(
        search={"low": 0.05, "high": 400, "rel_tol": 0.3},
        sweep={"systems.orca.max_batch_size": [1, 64]},
        slo={"ttft_s": 0.2},
    )
    orca = tables["goodput"].query("system == 'orca'")
    assert orca["systems.orca.max_batch_size"].tolist() == [1, 64]
    assert orca["goodput_per_s"].is_monotonic_increasing
    assert list(tables["runs"].columns)[:4] == ["system", "systems.orca.max_batch_size", RATE, "replication"]


def test_the_number_of_workers_changes_nothing() -> None:
    changes: dict[str, Any] = {"sweep": {RATE: [4, 64]}, "replications": 2}
    with open_executor(workers=2) as pool:
        parallel = study(pool, **changes)
    serial = study(**changes)
    assert parallel.keys() == serial.keys()
    for name in serial:
        pd.testing.assert_frame_equal(parallel[name], serial[name], check_exact=True)


def test_a_swept_part_is_named_in_its_column() -> None:
    path = "systems.orca.memory"
    runs = study(sweep={path: ["unlimited", {"kind": "reservation", "reserve": "pow2"}]})["runs"]
    assert runs[path].fillna("").tolist() == ["", "unlimited", '{"kind": "reservation", "reserve": "pow2"}']


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    run_study(small(), InProcess(), lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_a_fault_in_a_run_reaches_the_caller() -> None:
    class Broken(InProcess):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            raise RuntimeError("no more workers")

    with pytest.raises(RuntimeError, match="no more workers"):
        study(Broken())


def test_a_swept_attainment_is_the_one_searched_for() -> None:
    search = {"low": 0.05, "high": 400, "rel_tol": 0.1}
    tables = study(search=search, sweep={"slo.attainment": [0.5, 0.99]}, slo={"ttft_s": 0.2, "attainment": 0.9})
    easy, hard = tables["goodput"].query("system == 'orca'")["low_per_s"]
    alone = study(search=search, slo={"ttft_s": 0.2, "attainment": 0.99})["goodput"].query("system == 'orca'")[
        "low_per_s"
    ]
    assert easy > hard
    assert hard == alone.item()


def test_a_swept_null_is_not_an_empty_cell() -> None:
    path = "workload.max_output_tokens"
    tables = study(sweep={path: [None, 10], "systems.orca.max_batch_size": [8]})
    assert tables["runs"][path].tolist() == ["null", 10, "null", 10]
    assert tables["runs"]["systems.orca.max_batch_size"].isna().tolist() == [True, True, False, False]
