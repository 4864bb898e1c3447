"""The JSON Schema for editors: its shorthands, and the shape that error messages look things up in."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from simserve import strict_yaml
from simserve.catalog import GPU_BY_NAME, MODEL_BY_NAME
from simserve.scenario import json_schema
from simserve.scenario.serving import ServingScenario
from simserve.scenario.shape import shape_of

SCHEMA = json_schema()
WORKLOAD = {"num_requests": 1, "arrivals": {"kind": "burst"}, "prompt_tokens": 1, "output_tokens": 1}
PROFILE = {"kind": "linear", "a_s": 1, "b_s": 1}


def accepts(scenario: Any) -> bool:
    """Tell whether an editor would find the scenario in order."""
    return Draft202012Validator(SCHEMA).is_valid(scenario)


def alternatives(part: str, key: str) -> list[Any]:
    """Return what may stand at a key of a part, the written-out mapping last; `or null` is left out."""
    node = SCHEMA["$defs"][part]["properties"][key]
    options = [option for option in node["anyOf"] if option != {"type": "null"}]
    found: list[Any] = options if len(options) > 1 else options[0]["anyOf"]
    return found


def short(part: str, key: str) -> list[Any]:
    """Return the alternatives to a written-out mapping at a key of a part."""
    return alternatives(part, key)[:-1]


def test_the_schema_is_plain_json() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"].startswith("https://json-schema.org/")
    serving = SCHEMA["$defs"]["ServingScenario"]
    assert serving["additionalProperties"] is False
    assert set(serving["required"]) == {"name", "model", "workload", "systems"}


def test_a_scenario_is_checked_by_the_schema_of_its_kind() -> None:
    whole = {"name": "a", "model": "llama-3-8b", "workload": WORKLOAD, "systems": {"a": {"engine": "continuous"}}}
    profiles = {"kind": "latency_profile", "name": "a", "target_s": 1, "systems": {"a": {"profile": PROFILE}}}
    for good in (whole, {**whole, "kind": "serving"}, profiles):
        assert accepts(good)
    for bad in (
        {**whole, "kind": "latency_profile"},
        {**profiles, "kind": "serving"},
        {**whole, "kind": "x"},
        {"name": "a"},
        {**whole, "target_s": 1},
    ):
        assert not accepts(bad)


def test_catalog_names() -> None:
    assert SCHEMA["$defs"]["ServingScenario"]["properties"]["model"]["anyOf"] == [
        {"enum": list(MODEL_BY_NAME)},
        {"$ref": "#/$defs/Model"},
    ]
    assert short("Hardware", "gpu") == [{"enum": list(GPU_BY_NAME)}]


def test_bare_names_of_what_needs_nothing_more() -> None:
    assert "fcfs" in short("ContinuousSystem", "order")[0]["enum"]
    assert {"reservation", "unlimited"} <= set(short("RequestLevelSystem", "memory")[0]["enum"])
    # lognormal needs a mean: no editor may offer the bare name
    assert "lognormal" not in short("WorkloadSpec", "prompt_tokens")[0]["enum"]


def test_bare_numbers_are_lengths() -> None:
    *_, number = short("WorkloadSpec", "output_tokens")
    assert (number["type"], number["minimum"]) == ("integer", 1)
    *_, number = short("Sessions", "think_s")
    assert (number["type"], number["minimum"]) == ("number", 0)


def test_a_part_with_a_shorthand_may_still_be_written_out() -> None:
    *_, full = alternatives("WorkloadSpec", "output_tokens")
    assert {"$ref": "#/$defs/Lognormal"} in full["oneOf"]


def test_bounds_have_the_names_of_json_schema() -> None:
    assert SCHEMA["$defs"]["WorkloadSpec"]["properties"]["num_requests"]["minimum"] == 1
    assert shape_of(ServingScenario)["properties"]["seed"]["minimum"] == 0
    assert '"ge":' not in json.dumps(SCHEMA)


@pytest.mark.parametrize("path", sorted(Path("scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_scenarios_are_in_order(path: Path) -> None:
    assert accepts(strict_yaml.load(path.read_text(encoding="utf-8")))
