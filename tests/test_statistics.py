import math

import numpy as np
import pandas as pd
import pytest

from simserve.experiment.statistics import summarise, unit


def test_a_summary_by_hand() -> None:
    table = pd.DataFrame({"system": ["a"] * 4, "rate": [1, 1, 1, 1], "ttft_p50_s": [1.0, 2.0, 3.0, 6.0]})
    (row,) = summarise(table, ["system", "rate"], ["ttft_p50_s"]).to_dict("records")
    # mean 3, squared deviations 4 + 1 + 0 + 9 = 14, std = sqrt(14 / 3); t(0.975, 3) = 3.18245
    half = 3.18245 * math.sqrt(14 / 3) / 2
    assert (row["system"], row["rate"], row["metric"], row["unit"], row["n"]) == ("a", 1, "ttft_p50_s", "s", 4)
    assert (row["mean"], row["min"], row["max"]) == (3, 1, 6)
    assert row["std"] == pytest.approx(math.sqrt(14 / 3))
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(3 - half, rel=1e-5), pytest.approx(3 + half, rel=1e-5))


def test_one_value_has_no_interval_and_no_value_no_mean() -> None:
    table = pd.DataFrame({"system": ["a", "a", "b"], "x": [1.0, np.nan, np.nan]})
    one, none = summarise(table, ["system"], ["x"]).to_dict("records")
    assert (one["mean"], one["n"]) == (1, 1)
    assert math.isnan(one["ci_low"])
    assert none["n"] == 0
    assert math.isnan(none["mean"])


def test_order_is_that_of_the_table() -> None:
    table = pd.DataFrame({"system": ["z", "a", "z", "a"], "b": [1, 2, 3, 4], "a": [1, 2, 3, 4]})
    summary = summarise(table, ["system"], ["b", "a"])
    assert list(zip(summary["system"], summary["metric"], strict=True)) == [
        ("z", "b"),
        ("a", "b"),
        ("z", "a"),
        ("a", "a"),
    ]


def test_a_swept_value_that_does_not_matter_is_a_group_of_its_own() -> None:
    table = pd.DataFrame({"system": ["a", "a", "b"], "size": [1.0, 1.0, np.nan], "x": [1, 3, 5]})
    assert summarise(table, ["system", "size"], ["x"])["mean"].tolist() == [2, 5]


def test_the_interval_covers_the_mean_of_a_normal_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"system": np.repeat(np.arange(2000), 5), "x": rng.normal(7, 2, 10_000)})
    summary = summarise(table, ["system"], ["x"])
    covered = ((summary["ci_low"] <= 7) & (summary["ci_high"] >= 7)).mean()
    assert 0.935 <= covered <= 0.965  # 95 % +- 3 standard errors of sqrt(0.95 * 0.05 / 2000) = 0.5 %


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("throughput_tok_per_s", "tok/s"),
        ("goodput_per_s", "1/s"),
        ("ttft_p99_s", "s"),
        ("output_tokens", "tokens"),
        ("slo_attainment", "share"),
        ("kv_stored_mean", "share"),
        ("running_max", "count"),
    ],
)
def test_units(metric: str, expected: str) -> None:
    assert unit(metric) == expected
