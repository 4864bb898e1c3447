from collections.abc import Mapping
from typing import Any

import pytest

from simserve.experiment.claims import judge
from simserve.experiment.runs import RunResult, Task
from simserve.scenario.claims import Claim


def runs(values: list[float], system: str = "a", point: Mapping[str, Any] | None = None) -> list[RunResult]:
    return [
        RunResult(Task(system, point or {}, i), {"x": value, "y": 2.0}, f"{value}") for i, value in enumerate(values)
    ]


def verdict(results: list[RunResult], **claim: Any) -> dict[str, Any]:
    fields = {"id": "c", "system": "a", "metric": "x"} | claim
    (line,) = judge([Claim.model_validate(fields)], results).to_dict("records")
    return line


@pytest.mark.parametrize(
    ("values", "claim", "holds"),
    [
        ([8.0, 12.0], {"value": 12}, True),  # at the end of the range
        ([8.0, 12.0], {"value": 12.1}, False),  # outside of it, and 21 % over the mean of 10
        ([10.0, 10.0], {"value": 11}, True),  # 10 % over the mean
        ([10.0, 10.0], {"value": 11.1}, False),
        ([10.0, 10.0], {"value": 8.9}, False),
        ([10.0, 10.0], {"value": 11.1, "printed_to": 0.2}, True),  # 11.1 printed to 0.2 stands for 11.0 to 11.2
        ([8.0, 12.0], {"low": 9, "high": 11}, True),  # the mean is 10
        ([8.0, 20.0], {"low": 9, "high": 11}, False),
        ([52.0, 52.0], {"exactly": 52}, True),
        ([52.0, 51.0], {"exactly": 52}, False),
        ([4.0, 4.0], {"over": "y", "exactly": 2}, True),
        ([float("nan"), 10.0], {"value": 10}, True),
        ([float("nan")], {"value": 10}, False),  # nothing was measured
        ([], {"value": 10}, False),
    ],
)
def test_verdicts(values: list[float], claim: dict[str, Any], holds: bool) -> None:
    assert verdict(runs(values), **claim)["holds"] is holds


def test_a_line_of_the_ledger() -> None:
    results = runs([1.0, 99.0], point={"r": 1}) + runs([8.0, 12.0], point={"r": 2}) + runs([5.0], "b", {"r": 2})
    line = verdict(results, id="c/1", source="§1", at={"r": 2}, value=12, statement="as printed")
    assert line == {
        "id": "c/1",
        "source": "§1",
        "statement": "a: x at r=2 (as printed)",
        "expected": "12",
        "measured": 10,
        "low": 8,
        "high": 12,
        "rule": "range or 10 %",
        "holds": True,
    }


def test_the_same_times_as_another_system() -> None:
    same = {"metric": "", "same_as": "b"}
    assert verdict(runs([1.0, 2.0]) + runs([1.0, 2.0], "b"), **same)["holds"] is True
    assert verdict(runs([1.0, 2.0]) + runs([1.0, 3.0], "b"), **same)["holds"] is False


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"value": 1, "exactly": 1},
        {"low": 1},
        {"low": 2, "high": 1},
        {"value": 1, "metric": ""},
        {"same_as": "b"},
        {"value": float("nan")},
    ],
)
def test_a_claim_says_one_thing(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"give|above|finite"):
        Claim.model_validate({"id": "c", "system": "a", "metric": "x"} | fields)
