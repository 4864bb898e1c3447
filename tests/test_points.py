"""Scenarios at the points of a sweep, and the points of each system."""

from typing import Any

import pytest

from simserve.catalog import MODEL_BY_NAME
from simserve.memory import Reservation, Unlimited
from simserve.scenario import ScenarioError, at_point, grid
from simserve.scenario.serving import ServingScenario
from simserve.workload.lengths import Constant, Lognormal

RAW: dict[str, Any] = {
    "name": "base",
    "model": "llama-3-8b",
    "workload": {
        "num_requests": 10,
        "arrivals": {"kind": "poisson", "rate_per_s": 4.0},
        "prompt_tokens": 512,
        "output_tokens": 300,
    },
    "slo": {"ttft_s": 1.0},
    "systems": {
        "orca": {"engine": "continuous", "memory": {"kind": "reservation", "reserve": "max", "max_tokens": 8192}},
        "static": {"engine": "request_level", "cost": "roofline"},
    },
    "search": {"low": 1, "high": 8},
    "claims": [{"id": "a", "system": "orca", "metric": "goodput_per_s", "value": 1}],
}


def scenario(**changes: Any) -> ServingScenario:
    return ServingScenario.model_validate({**RAW, **changes})


def test_no_point_is_the_scenario_itself() -> None:
    base = scenario(sweep={"workload.num_requests": [1, 2]})
    assert at_point(base, {}) == base


def test_only_what_the_path_names_changes() -> None:
    base = scenario()
    moved = at_point(base, {"workload.arrivals.rate_per_s": 9.0})
    assert moved.workload.arrivals.rate_per_s == 9.0
    assert base.workload.arrivals.rate_per_s == 4.0
    back = at_point(moved, {"workload.arrivals.rate_per_s": 4.0})
    assert back == base


def test_claims_sweep_and_search_stay() -> None:
    base = scenario(sweep={"workload.num_requests": [1, 2]})
    moved = at_point(base, {"workload.num_requests": 2})
    assert (moved.claims, moved.sweep, moved.search) == (base.claims, base.sweep, base.search)
    assert moved.claims


def test_shorthands_and_catalog_names_are_values() -> None:
    moved = at_point(
        scenario(),
        {
            "model": "mistral-7b",
            "hardware.gpu": "h200",
            "workload.prompt_tokens": 64,
            "workload.output_tokens": {"kind": "lognormal", "mean": 5, "sigma": 0.1},
            "systems.orca.memory": "unlimited",
        },
    )
    assert moved.model == MODEL_BY_NAME["mistral-7b"]
    assert moved.hardware.gpu.name == "h200"
    assert moved.workload.prompt_tokens == Constant(tokens=64)
    assert moved.workload.output_tokens == Lognormal(mean=5, sigma=0.1)
    assert moved.systems["orca"].memory == Unlimited()


def test_values_inside_shorthands() -> None:
    moved = at_point(scenario(), {"systems.static.cost.overhead_s": 0.25, "workload.prompt_tokens.max": 100})
    assert getattr(moved.systems["static"].cost, "overhead_s", None) == 0.25
    assert moved.workload.prompt_tokens == Constant(tokens=512, max=100)


def test_other_defaults_follow_the_engine() -> None:
    moved = at_point(scenario(), {"systems.static.engine": "continuous"})
    assert moved.systems["static"].memory == Reservation()


def test_paths_are_set_in_the_order_given() -> None:
    part = {"kind": "lognormal", "mean": 5, "sigma": 0.1}
    moved = at_point(scenario(), {"workload.prompt_tokens": part, "workload.prompt_tokens.sigma": 0.5})
    assert moved.workload.prompt_tokens == Lognormal(mean=5, sigma=0.5)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("seed", 2, "seed: cannot vary from point to point. What can: model, hardware, workload, slo, systems"),
        ("replications", 2, "replications: cannot vary"),
        ("claims.0.value", 2, "claims.0.value: cannot vary"),
        (
            "workloads.num_requests",
            2,
            "workloads.num_requests: cannot vary from point to point; did you mean 'workload'?",
        ),
        ("systems", {}, "systems: cannot vary as a whole"),
        ("systems.orka.max_batch_size", 2, "systems.orka: there is no such system; did you mean 'orca'?"),
        ("workload.arrivals.rate", 2, "workload.arrivals.rate: unknown key; did you mean 'rate_per_s'?"),
        ("workload.num_requests", 1.5, "workload.num_requests: must be a whole number of at least 1; got 1.5"),
        ("systems.orca.max_batch_size", 0, "systems.orca.max_batch_size: must be a whole number of at least 1; got 0"),
        ("slo", None, "search looks for the highest rate that attains the SLO: give slo"),
        ("model", "llama-3-70b", "llama-3-70b does not fit on h100-sxm"),
        (
            "systems.orca.memory.reserve",
            "request",
            "systems.orca.memory.reserve: 'request' reserves each request's own limit: give workload.max_output_tokens",
        ),
        ("systems.static.memory", "paged", "systems.static.memory: request_level keeps finished seats running"),
        (
            "systems.orca.memory",
            {"kind": "paged", "block_tokens": 1_000_000},
            "systems.orca.memory.block_tokens: 1000000 are more than the KV memory of 426784 tokens",
        ),
        (
            "systems.orca.memory",
            {"kind": "paged", "watermark": 1},
            "systems.orca.memory.watermark: must be at least 0 and less than 1; got 1",
        ),
        (
            "systems.orca.preemption",
            {"kind": "swap", "link_bytes_per_s": 5e9},
            "systems.orca.preemption.host_bytes: is missing",
        ),
        (
            "systems.orca.preemption",
            {"kind": "swap", "host_bytes": 5e9, "link_bytes_per_s": 5e9},
            "systems.orca.preemption: reservation memory never runs out, so nothing is swapped: use memory paged",
        ),
    ],
)
def test_refused(path: str, value: Any, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        at_point(scenario(), {path: value})
    (problem,) = caught.value.problems
    assert problem.startswith(message)
    assert caught.value.where == "base"


RATE = "workload.arrivals.rate_per_s"


@pytest.mark.parametrize(
    ("sweep", "points"),
    [
        ({}, [{}]),
        ({RATE: [1, 2]}, [{RATE: 1}, {RATE: 2}]),
        ({RATE: [2, 1, 2]}, [{RATE: 2}, {RATE: 1}]),
        (
            {RATE: [1, 2], "systems.orca.max_batch_size": [8, 16]},
            [
                {RATE: 1, "systems.orca.max_batch_size": 8},
                {RATE: 1, "systems.orca.max_batch_size": 16},
                {RATE: 2, "systems.orca.max_batch_size": 8},
                {RATE: 2, "systems.orca.max_batch_size": 16},
            ],
        ),
        ({"systems.static.max_batch_size": [8, 16]}, [{}]),
        ({"systems.orca-2.max_batch_size": [8, 16], "systems.orca": [1]}, [{"systems.orca": 1}]),
        (
            {"systems.static.order": ["fcfs"], "model": [{"a": [1]}, {"a": [1]}, ["b"]]},
            [{"model": {"a": [1]}}, {"model": ["b"]}],
        ),
    ],
)
def test_grid(sweep: dict[str, list[Any]], points: list[dict[str, Any]]) -> None:
    found = grid(scenario(sweep=sweep), "orca")
    assert found == points
    assert [list(point) for point in found] == [list(point) for point in points]


def test_a_host_without_room_for_a_token_is_refused() -> None:
    paged = scenario(systems={"x": {"engine": "continuous", "memory": "paged"}})
    with pytest.raises(ScenarioError, match="131071 bytes hold no token of 131072 bytes"):
        at_point(paged, {"systems.x.preemption": {"kind": "swap", "host_bytes": 131_071, "link_bytes_per_s": 5e9}})
