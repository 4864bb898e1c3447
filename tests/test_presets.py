"""Presets: what they set, and how what stands beside them changes that."""

from typing import Any

import pytest

from simserve.catalog import PRESET_BY_NAME
from simserve.memory import Paged, Recompute, Reservation
from simserve.scenario import ScenarioError, at_point
from simserve.scenario.serving import ContinuousSystem
from simserve.scheduling import FCFS, Chunked, Mixed
from simserve.scheduling.prefill import First
from simserve.simulation import run
from tests.scenarios import small
from tests.support import assert_identical


def system(**fields: Any) -> ContinuousSystem:
    chosen = small(systems={"x": fields}).systems["x"]
    assert isinstance(chosen, ContinuousSystem)
    return chosen


@pytest.mark.parametrize("name", PRESET_BY_NAME)
def test_every_preset_is_a_system_with_version_and_source(name: str) -> None:
    preset = PRESET_BY_NAME[name]
    assert preset.version
    assert preset.source
    spelled_out = system(**preset.system)
    named = system(preset=name)
    assert named.model_copy(update={"preset": None}).model_dump() == spelled_out.model_dump()


def test_what_vllm_does() -> None:
    old, new = system(preset="vllm-v0"), system(preset="vllm-v1")
    assert (old.memory, new.memory) == (Paged(watermark=0.01), Paged(watermark=0.0))
    assert (old.prefill, new.prefill) == (First(), Chunked(budget_tokens=8192))
    assert (old.max_batch_size, new.max_batch_size) == (256, 1024)
    assert (old.preemption, new.preemption, old.order, new.order) == (Recompute(), Recompute(), FCFS(), FCFS())


def test_orca_reserves() -> None:
    reserves = {name: system(preset=f"orca-{name}").memory for name in ("max", "pow2", "oracle")}
    assert reserves == {
        "max": Reservation(reserve="max", max_tokens=8192),
        "pow2": Reservation(reserve="pow2"),
        "oracle": Reservation(reserve="oracle"),
    }


def test_what_is_given_beside_holds() -> None:
    changed = system(preset="vllm-v1", max_batch_size=64, memory={"watermark": 0.05}, prefill={"budget_tokens": 512})
    assert changed.max_batch_size == 64
    assert changed.memory == Paged(watermark=0.05)
    assert changed.prefill == Chunked(budget_tokens=512)
    # A part that is given with its kind is all of the part.
    assert system(preset="orca-max", memory={"kind": "reservation", "reserve": "pow2"}).memory == Reservation(
        reserve="pow2"
    )
    assert system(preset="vllm-v0", prefill="mixed").prefill == Mixed()
    assert system(preset="vllm-v0", order={"skip_ahead": 3}).order == FCFS(skip_ahead=3)


def test_paths_lead_into_a_preset() -> None:
    scenario = small(systems={"x": {"preset": "vllm-v1", "max_batch_size": 64}})
    at = at_point(scenario, {"systems.x.memory.watermark": 0.02}).systems["x"]
    assert at.memory == Paged(watermark=0.02)
    assert at.max_batch_size == 64
    # Another preset changes all but what was given beside.
    other = at_point(scenario, {"systems.x.preset": "vllm-v0"}).systems["x"]
    assert other == system(preset="vllm-v0", max_batch_size=64)


def test_a_preset_runs_as_what_it_stands_for() -> None:
    whole = small(
        hardware={"kv_bytes": 131_072.0 * 10_000},
        systems={"named": {"preset": "vllm-v0"}, "spelled": PRESET_BY_NAME["vllm-v0"].system},
    )
    assert_identical(run(whole, "named"), run(whole, "spelled"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"preset": "vllm-v2"},
            "systems.x.preset: unknown preset 'vllm-v2'; did you mean 'vllm-v1'? There are: orca-max, orca-oracle,",
        ),
        ({"preset": 5}, "systems.x.preset: must be text; got 5"),
        ({"memory.watermark": 1}, "systems.x.memory.watermark: must be at least 0 and less than 1; got 1"),
        ({"memory.watermak": 0.1}, "systems.x.memory.watermak: unknown key; did you mean 'watermark'?"),
        ({"prefill.budget_tokens": 32}, "systems.x: prefill.budget_tokens (32) is below max_batch_size (1024)"),
        ({"engine": "request_level"}, "systems.x.preset: unknown key"),
    ],
)
def test_what_cannot_be(change: dict[str, Any], message: str) -> None:
    scenario = small(systems={"x": {"preset": "vllm-v1"}})
    with pytest.raises(ScenarioError) as caught:
        at_point(scenario, {f"systems.x.{path}": value for path, value in change.items()})
    assert caught.value.problems[0].startswith(message)
