"""Scenarios of the kinds `prediction` and `latency_profile`: what is accepted, what is not, and the whole way to CSV."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

from simserve import query_metrics, query_simulation
from simserve.experiment import Tables, open_executor, publish, quick_form, run_study
from simserve.experiment.executors import InProcess
from simserve.scenario import ScenarioError, at_point, grid, json_schema, load
from simserve.scenario.prediction import PredictionScenario
from simserve.scenario.profile import LatencyProfileScenario

BASE = """\
kind: prediction
name: base
title: A small service
workload: {num_requests: 60, arrivals: {kind: poisson, rate_per_s: 400}}
slo: {latency_s: 0.02}
systems:
  one: {engine: predictive, profile: {kind: linear, a_s: 0.003, b_s: 0.0005}}
  many:
    engine: ensemble
    models:
      m: {profile: {kind: linear, a_s: 0.003, b_s: 0.0005}, accuracy: 0.9}
      n: {profile: {kind: linear, a_s: 0.001, b_s: 0.0002}, accuracy: 0.8}
"""

SMALL = """\
kind: prediction
name: small
workload: {num_requests: 200, arrivals: {kind: poisson, rate_per_s: 900}, popularity: {kind: zipf, items: 50}, deadline_s: 0.05}
slo: {latency_s: 0.02}
systems:
  aimd: {engine: predictive, profile: &line {kind: linear, a_s: 0.003, b_s: 0.0005}, noise: {kind: normal, sigma: 0.05}, replicas: [1, 0.5]}
  quantile: {engine: predictive, profile: *line, noise: exponential, controller: quantile, cache: {kind: clock, capacity: 10}}
  estimator: {engine: predictive, profile: *line, controller: estimator, disturbances: [{batches: [5, 9], per_query: 2}]}
sweep: {systems.*.max_delay_s: [0, 0.002]}
output: {requests: true, batches: true}
replications: 2
claims: [{id: all, source: here, system: aimd, at: {systems.*.max_delay_s: 0.002}, metric: requests, exactly: 200}]
"""

CHOSEN = """\
kind: prediction
name: chosen
workload: {num_requests: 200, arrivals: {kind: poisson, rate_per_s: 400}}
slo: {latency_s: 0.02}
systems:
  exp3: &both
    engine: ensemble
    models:
      m: {profile: {kind: linear, a_s: 0.003, b_s: 0.0005}, noise: exponential, accuracy: 0.9, drift: {at: 0.5, accuracy: 0.5}}
      n: {profile: {kind: linear, a_s: 0.001, b_s: 0.0002}, accuracy: 0.8}
    deadline_s: 0.01
  exp4: {<<: *both, selection: exp4}
output: {learning: true, batches: true}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    (tmp_path / "bad.csv").write_text("batch,latency_s\n1,0.003\n2,abc\n")
    (tmp_path / "good.csv").write_text("batch,latency_s\n1,0.003\n2,0.004\n8,0.020\n")
    return path


def loaded(tmp_path: Path, text: str, *overrides: str) -> Any:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    return load(path, overrides)


def study(scenario: Any) -> Tables:
    return run_study(scenario, InProcess())


# What is refused, and in which words.

BROKEN = [
    ("systems.one.profile={kind: linaer, a_s: 1}", "systems.one.profile.kind: unknown kind 'linaer'; did you mean 'linear'?"),
    ("systems.one.profile={kind: linear, a_s: 0.1}", "systems.one.profile.b_s: is missing"),
    ("systems.one.profile={kind: linear, a_s: 0, b_s: 0}", "systems.one.profile: a batch must take time: a_s and b_s together at least 1e-09"),
    ("systems.one.profile={kind: linear, a_s: -1, b_s: 0}", "systems.one.profile.a_s: must be at least 0 and at most 1e+09; got -1"),
    ("systems.one.profile={kind: piecewise, points: [[2, 0.1], [1, 0.2]]}", "systems.one.profile: batch sizes must rise from 1 or more, and latencies must not fall"),
    ("systems.one.profile={kind: piecewise, points: [[1, 0.2], [2, 0.1]]}", "systems.one.profile: batch sizes must rise from 1 or more, and latencies must not fall"),
    ("systems.one.profile={kind: piecewise, points: []}", "systems.one.profile: a profile needs at least two points, each a batch size and its latency in seconds"),
    ("systems.one.profile={kind: piecewise, points: [[1, 0], [2, 0.1]]}", "systems.one.profile: a batch must take time: latencies of at least 1e-09 s"),
    ("systems.one.profile={kind: measured, path: bad.csv}", "bad.csv: row 2 below the header needs a number"),
    ("systems.one.profile={kind: measured, path: nowhere.csv}", "nowhere.csv' as CSV: No such file or directory"),
    ("systems.one.profile={kind: measured, path: good.csv, latency_column: latency_ms}", "has no column 'latency_ms'; did you mean 'latency_s'? It has: batch, latency_s"),
    ("systems.one.profile={kind: decode, model: llama-3, context_tokens: 1}", "systems.one.profile.model: unknown model 'llama-3'; did you mean"),
    ("systems.one.disturbances=[{batches: [500, 300]}]", "systems.one.disturbances.0: starts at 500 and ends at 300: the end must be later"),
    ("systems.one.disturbances=[{per_query: 2}]", "systems.one.disturbances.0: give either batches or time_s, each as [from, to]"),
    ("systems.one.disturbances=[{batches: [0, 1], per_query: 0}]", "systems.one.disturbances.0.per_query: must be at least 1e-09 and at most 1e+09; got 0"),
    ("systems.one.controller=aimdd", "systems.one.controller: unknown kind 'aimdd'; did you mean 'aimd'?"),
    ("systems.one.controller=fixed", "systems.one.controller.batch_size: is missing"),
    ("systems.one.controller={kind: fixed, batch_size: 0}", "systems.one.controller.batch_size: must be a whole number of at least 1 and at most 1000000; got 0"),
    ("systems.one.controller={kind: aimd, decrease: 1}", "systems.one.controller.decrease: must be greater than 0 and less than 1; got 1"),
    ("systems.one.controller={kind: aimd, target: 2}", "systems.one.controller.target: must be greater than 0 and at most 1; got 2"),
    ("slo=", "systems.one: a controller that learns aims at slo.latency_s: give slo"),
    ("slo.latency_s=0", "slo.latency_s: must be greater than 0; got 0"),
    ("slo.ttft_s=1", "slo.ttft_s: unknown key. Accepted: attainment, latency_s"),
    ("systems.one.max_delay_s=-1", "systems.one.max_delay_s: must be at least 0 and at most 1e+09; got -1"),
    ("systems.one.replicas=0", "systems.one.replicas: must be a whole number of at least 1 and at most 10000 or a list; got 0"),
    ("systems.one.replicas=1e9", "systems.one.replicas: must be a whole number of at least 1 and at most 10000 or a list; got"),
    ("systems.one.replicas=[]", "systems.one.replicas: must have at least 1 entry; got []"),
    ("systems.one.replicas=[1e-320]", "systems.one.replicas.0: must be at least 1e-09 and at most 1e+09; got 1e-320"),
    ("systems.one.noise=normal", "systems.one.noise.sigma: is missing"),
    ("systems.one.noise={kind: normal, sigma: -1}", "systems.one.noise.sigma: must be at least 0 and at most 10; got -1"),
    ("systems.one.cache=clock", "systems.one.cache.capacity: is missing"),
    ("systems.one.cache={kind: clock, capacity: 0}", "systems.one.cache.capacity: must be a whole number of at least 1; got 0"),
    ("systems.one.arrivals={kind: listed, at_s: [0, 1]}", "systems.one.arrivals: 2 listed values are too few for num_requests 60"),
    ("workload.arrivals={kind: listed, at_s: [0, 1]}", "workload: 2 listed values are too few for num_requests 60"),
    ("systems.one.engine=continuous", "systems.one.engine: unknown engine 'continuous'. Accepted: ensemble, predictive"),
    ("systems.one.max_batch_size=5", "systems.one.max_batch_size: unknown key"),
    ("systems.many.selection={kind: single, model: z}", "systems.many: selection names unknown models z; there are m, n"),
    ("systems.many.selection={kind: majority, weights: {z: 1, m: 2, y: 1}}", "systems.many: selection names unknown models z, y; there are m, n"),
    ("systems.many.selection=exp5", "systems.many.selection: unknown kind 'exp5'; did you mean 'exp4'?"),
    ("systems.many.selection={kind: exp3, learning_rate: 1e308}", "systems.many.selection.learning_rate: must be greater than 0 and at most 1000"),
    ("systems.many.models={}", "systems.many.models: must have at least 1 entry; got {}"),
    ("systems.many.models.m.accuracy=1.1", "systems.many.models.m.accuracy: must be at least 0 and at most 1; got 1.1"),
    ("systems.many.models.m.drift={at: 1.5, accuracy: 0}", "systems.many.models.m.drift.at: must be at least 0 and at most 1; got 1.5"),
    ("systems.many.models.m.cache={kind: clock, capacity: 1}", "systems.many.models.m.cache: unknown key"),
    ("systems.many.num_labels=1", "systems.many.num_labels: must be a whole number of at least 2 and at most 1000000; got 1"),
    ("systems.many.deadline_s=0", "systems.many.deadline_s: must be greater than 0; got 0"),
    ("systems.many.max_delay_s=1", "systems.many.max_delay_s: unknown key"),
    ("workload.popularity=zipf", "workload.popularity.items: is missing"),
    ("workload.deadline_s=0", "workload.deadline_s: must be greater than 0; got 0"),
    ("workload.deadline_s=1", "workload.deadline_s: an ensemble drops no queries; its own is systems.many.deadline_s"),
    ("workload.prompt_tokens=5", "workload.prompt_tokens: unknown key"),
    ("model=llama-3-8b", "model: unknown key"),
    ("settle_batches=-1", "settle_batches: must be a whole number of at least 0; got -1"),
    ("sweep={systems.*.max_delay_s: [0, 1]}", "sweep.systems.*.max_delay_s: systems.many.max_delay_s: unknown key"),
    ("sweep={systems.one.max_delay_s: [0, -1]}", "sweep.systems.one.max_delay_s: must be at least 0 and at most 1e+09; got -1"),
    ("sweep={systems.two.max_delay_s: [0]}", "there is no such system"),
    ("sweep={settle_batches: [0]}", "settle_batches: cannot vary from point to point"),
    ("claims=[{id: a, source: b, system: one, metric: finishd, value: 1}]", "finishd"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "message"), BROKEN, ids=[override for override, _ in BROKEN])
def test_one_line_says_what_is_wrong(base: Path, override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(base, [override])
    assert any(message in problem for problem in caught.value.problems), caught.value.problems
    assert all("\n" not in problem for problem in caught.value.problems)


def test_everything_at_once(base: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(base, ["systems.one.replicas=0", "systems.many.num_labels=1", "workload.deadline_s=0"])
    places = {problem.split(":")[0] for problem in caught.value.problems}
    assert places == {"workload.deadline_s", "systems.one.replicas", "systems.many.num_labels"}


# What is odd, and runs.

ONE = "systems={one: {engine: predictive, profile: {kind: linear, a_s: 0.003, b_s: 0.0005}}}"
ODD = [
    ["workload.num_requests=1"],
    ["workload.num_requests=1", "systems.one.cache={kind: clock, capacity: 1}"],
    [ONE, "workload.arrivals=burst", "workload.deadline_s=1e-9", "systems.one.controller={kind: fixed, batch_size: 1}"],
    [ONE, "workload.deadline_s=0.001", "systems.one.max_delay_s=5"],
    [ONE, "workload.deadline_s=1e308", "slo.latency_s=1e308"],
    ["systems.many.deadline_s=1e308", "slo.latency_s=1e308"],
    ["slo.latency_s=1e-300"],
    ["systems.one.replicas=[1]"],
    ["systems.one.replicas=[1e-9]"],
    ["systems.one.replicas=[1e9, 1e-9]"],
    ["systems.one.replicas=300", "systems.one.max_delay_s=0.001"],
    ["systems.one.max_delay_s=1e9"],
    ["systems.one.profile={kind: linear, a_s: 1e-9, b_s: 0}"],
    ["systems.one.profile={kind: linear, a_s: 1e9, b_s: 1e9}"],
    ["systems.one.profile={kind: piecewise, points: [[1, 0.001], [2, 0.002]]}"],
    ["systems.one.profile={kind: measured, path: good.csv}"],
    ["systems.one.profile={kind: decode, model: llama-3-8b, context_tokens: 100}"],
    ["systems.one.noise={kind: lognormal, sigma: 10}"],
    ["systems.one.noise={kind: normal, sigma: 10}", "systems.one.controller=quantile"],
    ["systems.one.controller={kind: estimator, ridge: 0}", "systems.one.profile={kind: linear, a_s: 0.1, b_s: 0}"],
    ["systems.one.controller=quantile", "systems.one.profile={kind: linear, a_s: 0.1, b_s: 0}"],
    [ONE, "systems.one.cache={kind: clock, capacity: 2}", "workload.popularity={kind: zipf, items: 5}", "workload.deadline_s=0.004"],
    ["systems.one.cache={kind: clock, capacity: 1}", "workload.popularity={kind: zipf, items: 1, exponent: 0}"],
    ["systems.one.disturbances=[{batches: [0, 9], pause_s: 1}, {time_s: [0, 1], fixed: 1e9}]"],
    ["systems.many.models.m.accuracy=0", "systems.many.models.n.accuracy=0"],
    ["systems.many.models.m.accuracy=1", "systems.many.models.n.accuracy=1"],
    ["systems.many.models.m.drift={at: 0, accuracy: 0}", "systems.many.models.n.drift={at: 1, accuracy: 0}"],
    ["systems.many.selection={kind: single, model: n}"],
    ["systems.many.selection={kind: exp3, learning_rate: 1000}"],
    ["systems.many.selection=exp4", "systems.many.deadline_s=1e-9"],
    ["systems.many.num_labels=1000000"],
    ["settle_batches=1e9"],
    ["output={requests: true, batches: true, learning: true}", "replications=2"],
]  # fmt: skip


@pytest.mark.parametrize("overrides", ODD, ids=" ".join)
def test_odd_but_valid(base: Path, overrides: list[str]) -> None:
    scenario = load(base, overrides)
    tables = study(scenario)
    runs = tables["runs"]
    assert (runs["finished"] + runs["rejected"] == runs["requests"]).all()
    assert (runs["unfinished"] == 0).all()
    assert np.isfinite(runs["duration_s"]).all()


def test_without_an_slo(base: Path) -> None:
    fixed = "{kind: fixed, batch_size: 3}"
    models = [f"systems.many.models.{name}.controller={fixed}" for name in "mn"]
    scenario = load(base, ["slo=", f"systems.one.controller={fixed}", *models])
    runs = study(scenario)
    assert runs["runs"]["slo_attainment"].isna().all()
    assert runs["diagnostics"]["late_share"].isna().all()
    assert runs["batches"]["ceiling"].isna().all()
    with pytest.raises(ScenarioError, match=r"systems.many: a controller that learns"):
        load(base, ["slo=", f"systems.one.controller={fixed}", *models[:1]])


# The whole way.


def test_every_system_meets_the_swept_delay(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, SMALL)
    path = "systems.*.max_delay_s"
    assert isinstance(scenario, PredictionScenario)
    moved = at_point(scenario, {path: 0.5})
    assert [system.max_delay_s for system in moved.systems.values()] == [0.5] * 3  # type: ignore[union-attr]
    assert grid(scenario, "quantile") == [{path: 0}, {path: 0.002}]
    tables = study(scenario)
    runs = tables["runs"]
    assert runs[["system", path, "replication"]].to_numpy().tolist() == [
        [system, delay, replication]
        for system in ("aimd", "quantile", "estimator")
        for delay in (0, 0.002)
        for replication in (0, 1)
    ]
    # Waiting makes fewer and larger batches, but for the estimator, which explores batches so small that they are full.
    means = runs.groupby(["system", path])["iterations"].mean().unstack().loc[["aimd", "quantile"]]
    assert (means[0.002] < means[0]).all()
    assert tables["claims"]["holds"].tolist() == [True]


def test_a_row_is_what_the_run_measures(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, SMALL, "sweep={}", "claims=[]")
    tables = study(scenario)
    records = query_simulation.run(scenario, "quantile", 1)
    row = tables["runs"].query("system == 'quantile' and replication == 1").iloc[0].to_dict()
    expected = query_metrics.run_metrics(records, 0.02)
    pd.testing.assert_series_equal(
        pd.Series({name: row[name] for name in expected}, dtype=float), pd.Series(expected, dtype=float)
    )
    row = tables["diagnostics"].query("system == 'quantile' and replication == 1").iloc[0].to_dict()
    assert row["cached_share"] == records.cached.mean()
    requests = tables["requests"].query("system == 'quantile' and replication == 1")
    np.testing.assert_array_equal(requests["finish_s"], records.finish_s)
    assert len(tables["batches"].query("system == 'quantile' and replication == 1")) == len(records.batches[0])


def test_systems_see_the_same_queries(tmp_path: Path) -> None:
    requests = study(loaded(tmp_path, SMALL, "sweep={}", "claims=[]"))["requests"]
    arrivals = [list(part["arrival_s"]) for _, part in requests.query("replication == 0").groupby("system")]
    assert arrivals[0] == arrivals[1] == arrivals[2]
    other = requests.query("replication == 1 and system == 'aimd'")["arrival_s"]
    assert list(other) != arrivals[0]


def test_a_system_with_arrivals_of_its_own(base: Path) -> None:
    scenario = load(base, ["systems.one.arrivals={kind: poisson, rate_per_s: 800}"])
    requests = study(scenario)["requests"]
    one, many = (requests.query("system == @name")["arrival_s"].to_numpy() for name in ("one", "many"))
    np.testing.assert_allclose(2 * one, many)


def test_learning_is_written_where_models_are_chosen(tmp_path: Path) -> None:
    tables = study(loaded(tmp_path, CHOSEN))
    assert tables["learning"].groupby("system")["query"].max().to_dict() == {"exp3": 200, "exp4": 200}
    assert set(tables["batches"]["model"]) == {"m", "n"}
    assert "learning" not in study(loaded(tmp_path, SMALL, "sweep={}", "claims=[]"))


def test_a_search_for_the_highest_rate_that_keeps_the_slo(base: Path) -> None:
    # 34 in 20 ms is 1,700 queries a second; a query waits for a batch and then runs in one, so half of that at most.
    overrides = [
        "systems={one: {engine: predictive, profile: {kind: linear, a_s: 0.003, b_s: 0.0005}, controller: {kind: fixed, batch_size: 34}}}",
        "search={low: 10, high: 5000, rel_tol: 0.05}",
        "workload.num_requests=2000",
    ]
    found = study(load(base, overrides))["goodput"].iloc[0]
    assert found["status"] == "bracketed"
    assert 500 < found["goodput_per_s"] < 1700


def test_the_quick_form_has_a_quarter_of_the_queries(base: Path) -> None:
    quick = quick_form(load(base, ["replications=5"]))
    assert isinstance(quick, PredictionScenario)
    assert (quick.workload.num_requests, quick.replications, quick.name) == (15, 2, "base-quick")


@pytest.mark.parametrize("text", [SMALL, CHOSEN], ids=["predictive", "ensemble"])
def test_same_seed_same_bytes_under_any_hash_seed_and_number_of_workers(tmp_path: Path, text: str) -> None:
    (tmp_path / "same.yaml").write_text(text)
    for out, hash_seed, workers in (("a", "1", "1"), ("b", "2", "2")):
        command = [sys.executable, "-m", "simserve", "run", "same.yaml", "--out", out, "--workers", workers]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run(command, env=environment, check=True, capture_output=True, cwd=tmp_path)
    (first,) = (tmp_path / "a").iterdir()
    files = {path.name: path.read_bytes() for path in first.iterdir() if path.name != "manifest.json"}
    assert {"runs.csv", "diagnostics.csv", "batches.csv", "requests.csv"} <= set(files)
    for name, content in files.items():
        assert (tmp_path / "b" / first.name / name).read_bytes() == content, name


@pytest.mark.parametrize("text", [SMALL, CHOSEN], ids=["predictive", "ensemble"])
def test_the_number_of_workers_changes_nothing(tmp_path: Path, text: str) -> None:
    scenario = loaded(tmp_path, text)
    with open_executor(workers=2) as pool:
        parallel = run_study(scenario, pool)
    serial = study(scenario)
    assert parallel.keys() == serial.keys()
    for name in serial:
        pd.testing.assert_frame_equal(parallel[name], serial[name], check_exact=True)


def test_another_seed_gives_other_results(base: Path) -> None:
    one, other = (study(load(base, [f"seed={seed}"]))["requests"] for seed in (1, 2))
    assert not one["finish_s"].equals(other["finish_s"])


def test_the_schema_knows_what_the_loader_accepts(tmp_path: Path) -> None:
    import yaml

    schema = json_schema()
    validator = jsonschema.Draft202012Validator(schema)
    for text in (BASE, SMALL.replace("&line ", "").replace("*line", "{kind: linear, a_s: 0.003, b_s: 0.0005}")):
        validator.validate(yaml.safe_load(text))
    wrong = yaml.safe_load(BASE)
    wrong["systems"]["one"]["max_delay_s"] = -1
    assert not validator.is_valid(wrong)


# Latency profiles alone.

PROFILES = """\
kind: latency_profile
name: profiles
target_s: 0.020
systems:
  medium: {profile: {kind: linear, a_s: 0.003, b_s: 0.0005}}
  hopeless: {profile: {kind: linear, a_s: 0.030, b_s: 0.001}}
  measured: {profile: {kind: measured, path: good.csv}}
sweep: {batch_size: [1, 34]}
"""


def test_profiles_by_hand(base: Path) -> None:
    scenario = loaded(base.parent, PROFILES)
    assert isinstance(scenario, LatencyProfileScenario)
    runs = study(scenario)["runs"].set_index(["system", "batch_size"])
    medium = runs.loc[("medium", 34)]
    assert medium["latency_s"] == pytest.approx(0.020)
    assert medium["throughput_per_s"] == pytest.approx(1700)
    assert medium["largest_batch"] == 34
    assert medium["largest_batch_throughput_per_s"] == pytest.approx(1700)
    assert medium["unbatched_throughput_per_s"] == pytest.approx(1 / 0.0035)
    assert runs.loc[("medium", 1)]["latency_s"] == pytest.approx(0.0035)
    hopeless = runs.loc[("hopeless", 1)]
    assert (hopeless["largest_batch"], hopeless["largest_batch_throughput_per_s"]) == (0, 0)
    assert np.isnan(hopeless["largest_batch_latency_s"])
    # 4 + (20 - 4) / 6 x (B - 2) ms: 20 at 8, and beyond: 34 is 4 + 32 x 16 / 6 = 89.33.
    measured = runs.loc[("measured", 34)]
    assert measured["largest_batch"] == 8
    assert measured["latency_s"] == pytest.approx(0.004 + 32 * 0.016 / 6)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("target_s=0", "target_s: must be greater than 0; got 0"),
        ("batch_size=0", "batch_size: must be a whole number of at least 1 and at most 10000000; got 0"),
        ("workload={}", "workload: unknown key"),
        ("systems.medium.profile.kind=cubic", "systems.medium.profile.kind: unknown kind 'cubic'"),
        ("systems={}", "systems: must have at least 1 entry; got {}"),
        ("sweep={batch_size: [1, 0]}", "sweep.batch_size: must be a whole number of at least 1 and at most 10000000; got 0"),
    ],
)  # fmt: skip
def test_what_is_no_profile_study(base: Path, override: str, message: str) -> None:
    (base.parent / "scenario.yaml").write_text(PROFILES)
    with pytest.raises(ScenarioError) as caught:
        load(base.parent / "scenario.yaml", [override])
    assert any(message in problem for problem in caught.value.problems), caught.value.problems


def test_distributions_show_the_bound_of_queries(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, BASE + "figure: {distributions: [e2e_s, ttft_s]}\n")
    publish(scenario, tmp_path, InProcess())
    assert (tmp_path / "base/figure.png").exists()
    assert [scenario.slo.bound_on(name) for name in ("e2e_s", "ttft_s", "tpot_s")] == [0.02, 0.02, None]


def test_gpus_are_counted_by_replica(tmp_path: Path) -> None:
    search = "search: {low: 1, high: 1000, rel_tol: 0.5, demand_per_s: 5000}\n"
    scenario = loaded(tmp_path, BASE + search)
    moved = load(tmp_path / "scenario.yaml", ["systems.one.replicas=[1, 0.5]"])
    assert [scenario.gpus_of(name) for name in ("one", "many")] == [1, 2]
    assert moved.gpus_of("one") == 2


def test_a_part_of_the_users_can_be_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = "class Two:\n    def limit(self, slack_s):\n        return 2\n    def observe(self, batch_size, service_s):\n        pass\n"
    (tmp_path / "swept_controllers.py").write_text(code)
    sweep = 'sweep: {systems.one.controller: [aimd, "swept_controllers:Two", {kind: custom, path: "swept_controllers:Two"}]}\n'
    assert len(study(loaded(tmp_path, BASE + sweep))["runs"]) == 3 + 1


def test_a_model_must_fit_its_gpu_in_a_profile_too(tmp_path: Path) -> None:
    profile = "{kind: decode, model: llama-3-70b, context_tokens: 100}"
    text = f"kind: latency_profile\nname: x\ntarget_s: 1\nsystems: {{a: {{profile: {profile}}}}}\n"
    with pytest.raises(ScenarioError, match="llama-3-70b does not fit on h100-sxm"):
        loaded(tmp_path, text)


@pytest.mark.parametrize("key", ["distributions: [e2e_s]", "gantt: true"])
def test_a_figure_of_what_a_kind_does_not_have(tmp_path: Path, key: str) -> None:
    text = f"kind: latency_profile\nname: x\ntarget_s: 1\nsystems: {{a: {{profile: {{kind: linear, a_s: 1, b_s: 1}}}}}}\nfigure: {{{key}}}\n"
    with pytest.raises(ScenarioError, match="a latency_profile study has no"):
        loaded(tmp_path, text)
