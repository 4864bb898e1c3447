"""Setting values at dotted paths of a raw scenario."""

from copy import deepcopy
from typing import Any

import pytest

from simserve.catalog import GPU_BY_NAME
from simserve.scenario.paths import PathError, set_path, split

RAW: dict[str, Any] = {
    "model": "llama-3-8b",
    "hardware": {"gpu": "h100-sxm"},
    "workload": {
        "num_requests": 10,
        "arrivals": "poisson",
        "prompt_tokens": 512,
        "output_tokens": {"kind": "empirical", "values": [1, 2, 3]},
    },
    "slo": None,
    "systems": {"a": {"engine": "continuous", "cost": "roofline"}, "b-2": {"engine": "request_level"}},
    "claims": [{"id": "x", "value": 1}, {"id": "y", "value": 2}],
}


@pytest.mark.parametrize(
    ("dotted", "keys"),
    [
        ("name", ["name"]),
        ("workload.arrivals.rate_per_s", ["workload", "arrivals", "rate_per_s"]),
        ("sweep", ["sweep"]),
        ("sweep.workload.num_requests", ["sweep", "workload.num_requests"]),
        ("claims.0.value", ["claims", "0", "value"]),
        ("claims.0.at", ["claims", "0", "at"]),
        ("claims.0.at.workload.num_requests", ["claims", "0", "at", "workload.num_requests"]),
        ("systems.a.at.b.c", ["systems", "a", "at", "b", "c"]),
    ],
)
def test_split(dotted: str, keys: list[str]) -> None:
    assert split(dotted) == keys


@pytest.mark.parametrize(
    ("dotted", "changed"),
    [
        # plain
        ("workload.num_requests", {"workload": {**RAW["workload"], "num_requests": 7}}),
        ("name", {"name": 7}),
        ("systems", {"systems": 7}),
        ("systems.a", {"systems": {**RAW["systems"], "a": 7}}),
        # created on the way
        ("slo.ttft_s", {"slo": {"ttft_s": 7}}),
        ("output.requests", {"output": {"requests": 7}}),
        (
            "systems.b-2.memory.max_tokens",
            {"systems": {**RAW["systems"], "b-2": {"engine": "request_level", "memory": {"max_tokens": 7}}}},
        ),
        # shorthands written out
        (
            "systems.a.cost.overhead_s",
            {
                "systems": {
                    **RAW["systems"],
                    "a": {"engine": "continuous", "cost": {"kind": "roofline", "overhead_s": 7}},
                }
            },
        ),
        (
            "workload.arrivals.rate_per_s",
            {"workload": {**RAW["workload"], "arrivals": {"kind": "poisson", "rate_per_s": 7}}},
        ),
        (
            "workload.prompt_tokens.max",
            {"workload": {**RAW["workload"], "prompt_tokens": {"kind": "constant", "tokens": 512, "max": 7}}},
        ),
        (
            "hardware.gpu.memory_bytes",
            {"hardware": {"gpu": {**GPU_BY_NAME["h100-sxm"].model_dump(), "memory_bytes": 7}}},
        ),
        # lists
        ("claims.1.value", {"claims": [{"id": "x", "value": 1}, {"id": "y", "value": 7}]}),
        ("claims.0", {"claims": [7, {"id": "y", "value": 2}]}),
        (
            "workload.output_tokens.values.2",
            {"workload": {**RAW["workload"], "output_tokens": {"kind": "empirical", "values": [1, 2, 7]}}},
        ),
        # keys that hold dots
        ("sweep.workload.arrivals.rate_per_s", {"sweep": {"workload.arrivals.rate_per_s": 7}}),
        ("claims.0.at.a.b", {"claims": [{"id": "x", "value": 1, "at": {"a.b": 7}}, {"id": "y", "value": 2}]}),
    ],
)
def test_set(dotted: str, changed: dict[str, Any]) -> None:
    before = deepcopy(RAW)
    assert set_path(RAW, dotted, 7) == {**RAW, **changed}
    assert before == RAW


def test_the_name_of_a_model_is_written_out_from_the_catalog() -> None:
    model = set_path(RAW, "model.layers", 16)["model"]
    assert (model["name"], model["layers"], model["hidden"]) == ("llama-3-8b", 16, 4096)
    assert "kind" not in model


@pytest.mark.parametrize(
    ("dotted", "message"),
    [
        ("", "'' is not a dotted path"),
        ("a..b", "'a..b' is not a dotted path"),
        (".a", "'.a' is not a dotted path"),
        ("systems.b-3.cost", "systems.b-3: there is no such system; did you mean 'b-2'? The scenario has: a, b-2"),
        ("systems.new", "systems.new: there is no such system. The scenario has: a, b-2"),
        ("claims.2.value", "claims: is a list of 2, counted from 0; there is no '2' in it"),
        ("claims.-1.value", "there is no '-1' in it"),
        ("claims.x", "there is no 'x' in it"),
        ("workload.num_requests.x", "workload.num_requests: is 10; there is nothing inside it"),
    ],
)
def test_refused(dotted: str, message: str) -> None:
    with pytest.raises(PathError) as caught:
        set_path(RAW, dotted, 7)
    assert message in str(caught.value)


def test_an_unknown_model_cannot_be_written_out() -> None:
    with pytest.raises(PathError, match="model: unknown name 'llama-3-9b'; did you mean 'llama-3-8b'"):
        set_path({"model": "llama-3-9b"}, "model.layers", 1)


def test_no_systems_at_all() -> None:
    with pytest.raises(PathError, match=r"systems\.a: there is no such system\. The scenario has: none"):
        set_path({}, "systems.a.engine", "continuous")
