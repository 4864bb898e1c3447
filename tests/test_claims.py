from collections.abc import Mapping
from typing import Any

import pytest

from simserve.experiment.claims import judge
from simserve.experiment.task import RunResult, Task
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
        ([8.0, 20.0], {"low": 14}, True),
        ([8.0, 20.0], {"high": 13.9}, False),
        ([52.0, 52.0], {"exactly": 52}, True),
        ([52.0, 51.0], {"exactly": 52}, False),
        ([4.0, 4.0], {"over": "y", "exactly": 2}, True),
        ([float("nan"), 10.0], {"value": 10}, False),  # a run without a value
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
        "rule": "in the range of the runs",
        "holds": True,
    }


def test_the_same_times_as_another_run() -> None:
    same = {"metric": "", "same_as": "b"}
    assert verdict(runs([1.0, 2.0]) + runs([1.0, 2.0], "b"), **same)["holds"] is True
    assert verdict(runs([1.0, 2.0]) + runs([1.0, 3.0], "b"), **same)["holds"] is False
    at_two_sizes = runs([1.0, 2.0], point={"r": 1}) + runs([1.0, 2.0], point={"r": 2})
    assert verdict(at_two_sizes, at={"r": 1}, metric="", same_as={"at": {"r": 2}})["holds"] is True


def test_a_condition_leaves_replications_out() -> None:
    results = runs([1.0, 5.0]) + runs([1.0, 6.0], "b")
    same = {"metric": "", "same_as": "b"}
    assert verdict(results, **same)["holds"] is False
    assert verdict(results, **same, when={"metric": "x", "at_most": 4})["holds"] is True
    assert verdict(results, **same, when={"metric": "x", "at_most": 0})["holds"] is False  # about nothing


def test_nine_in_ten_replications_must_show_a_comparison() -> None:
    ones = runs([1.0] * 20, "b")
    for higher, holds in ((20, True), (18, True), (17, False)):
        mine = runs([2.0] * higher + [1.0] * (20 - higher))  # equal is not above
        assert verdict(mine + ones, above="b")["holds"] is holds
        assert verdict(ones + mine, system="b", below="a")["holds"] is holds
    line = verdict(runs([3.0, 5.0]) + runs([1.0, 1.0], "b"), above="b")
    assert (line["measured"], line["low"], line["high"]) == (3, 2, 4)  # by how much


def test_a_ratio_to_another_run_and_the_share_of_a_gain() -> None:
    results = runs([8.0, 9.0]) + runs([10.0, 10.0], "best") + runs([2.0, 5.0], "worst")
    assert verdict(results, over={"system": "best"}, low=0.85)["measured"] == pytest.approx(0.85)
    # (8 - 2) / (10 - 2) = 0.75 and (9 - 5) / (10 - 5) = 0.8
    line = verdict(results, over={"system": "best"}, baseline="worst", low=0.78)
    assert (line["low"], line["high"]) == (0.75, 0.8)
    assert line["holds"] is False
    assert line["statement"] == "a: x above of worst / of best"


def trend(values: list[float], **fields: Any) -> bool:
    points = [4, 1, 2]
    results = [run for x, value in zip(points, values, strict=True) for run in runs([value, value + 1], point={"r": x})]
    return bool(verdict(results, trend={"along": "r", **fields})["holds"])


def test_trends_of_the_means() -> None:
    # at r = 1, 2, 4: 3, 5, 6 has slopes 2 and 0.5
    assert trend([6, 3, 5], shape="rising")
    assert trend([6, 3, 5], shape="concave")
    assert not trend([6, 3, 5], shape="falling")
    assert trend([1, 3, 2], shape="falling")
    assert not trend([6, 3, 3], shape="rising")  # 3, 3, 6
    assert not trend([7, 3, 4], shape="concave")  # slopes 1 and 1.5
    assert trend([0, 3, 5], shape="rising", up_to=2)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"value": 1, "exactly": 1},
        {"low": 2, "high": 1},
        {"value": 1, "metric": ""},
        {"same_as": "b"},
        {"value": float("nan")},
    ],
)
def test_a_claim_says_one_thing(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"give|above|finite"):
        Claim.model_validate({"id": "c", "system": "a", "metric": "x"} | fields)
