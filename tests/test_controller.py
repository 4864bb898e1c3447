"""Batch-size controllers: AIMD's cycle to the last batch, quantile regression by brute force, the estimator's rules."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simserve.cost.profile import within
from simserve.plugin import PartError
from simserve.scheduling import AIMD, Controller, ControllerSpec
from simserve.scheduling.controller.aimd import AIMDLimit
from simserve.scheduling.controller.estimator import Estimator, EstimatorLimit
from simserve.scheduling.controller.quantile import Quantile, fit_quantile
from tests.predictions import fixed, line, serve

TARGET_S = 0.020


def controller(part: Any, target_s: float = TARGET_S, seed: int = 1) -> Controller:
    spec = TypeAdapter(ControllerSpec).validate_python(part)
    made: Controller = spec.controller(target_s, np.random.default_rng(seed))
    return made


def saturated(part: Any, a_s: float, b_s: float, batches: int, noise_seed: int | None = None) -> list[int]:
    """Return the limits of a worker that is always full: `a + b B`, with 5 % noise if a seed is given."""
    made, limits = controller(part), []
    rng = None if noise_seed is None else np.random.default_rng(noise_seed)
    for _ in range(batches):
        limit = made.limit(TARGET_S)
        limits.append(limit)
        made.observe(limit, (a_s + b_s * made.run_size(limit)) * (1 if rng is None else 1 + 0.05 * rng.normal()))
    return limits


# AIMD.


def test_the_cycle_without_noise() -> None:
    # 3 + 0.5 B ms: 34 takes 20 ms and is in time, 35 takes 20.5 and is late: floor(0.9 x 35) = floor(31.5) = 31.
    limits = saturated("aimd", 0.003, 0.0005, 135)
    assert limits[:35] == list(range(1, 36))
    assert limits[35:] == [31, 32, 33, 34, 35] * 20


def test_the_slow_profile() -> None:
    # 3 + 1.0 B ms: 17 takes 20 ms, 18 is late: floor(16.2) = 16.
    assert saturated("aimd", 0.003, 0.001, 30) == [*range(1, 19), *[16, 17, 18] * 4]


def test_one_late_in_five_at_1692_queries_per_second() -> None:
    # 31 + 32 + 33 + 34 + 35 = 165 queries in 5 x 3 + 0.5 x 165 = 97.5 ms: 1692.3 a second.
    records = serve([0.0] * (630 + 165 * 4), profile=line(0.003, 0.0005), controller="aimd", slo_s=TARGET_S)
    batches = records.batches[0]
    cycles = slice(35, 55)  # 1 + 2 + ... + 35 = 630
    assert batches.size[cycles].tolist() == [31, 32, 33, 34, 35] * 4
    assert int((~within(batches.service_s[cycles], TARGET_S)).sum()) == 4  # type: ignore[arg-type,operator]
    assert batches.size[cycles].sum() / batches.service_s[cycles].sum() == pytest.approx(1692.3, abs=0.05)


def test_nine_tenths_of_every_multiple_of_ten() -> None:
    for tenth in range(1, 1001):
        limit = AIMDLimit(AIMD(initial=10 * tenth), 1.0)
        limit.observe(10 * tenth, 2.0)
        assert limit.limit(1.0) == 9 * tenth


@given(st.integers(1, 10**6), st.integers(1, 99))
@example(100, 29)  # 0.29 x 100 is 28.999999999999996
@example(50, 58)
def test_the_decrease_is_that_of_exact_arithmetic(limit: int, percent: int) -> None:
    made = AIMDLimit(AIMD(initial=limit, decrease=float(Decimal(percent) / 100)), 1.0)
    made.observe(limit, 2.0)
    assert made.limit(1.0) == max(1, math.floor(Fraction(percent * limit, 100)))


@given(st.integers(0, 20_000), st.integers(1, 5_000), st.integers(1, 500))
def test_a_full_batch_at_the_exact_boundary_goes_up(a: int, b: int, size: int) -> None:
    """Whole microseconds as they stand in a YAML file; the service time as the profile computes it."""
    target_s = float(Decimal(a + b * size).scaleb(-6))
    seconds = float(Decimal(a).scaleb(-6)) + float(Decimal(b).scaleb(-6)) * size
    made = AIMDLimit(AIMD(initial=size), target_s)
    made.observe(size, seconds)
    assert made.limit(target_s) == size + 1
    made = AIMDLimit(AIMD(initial=size), float(Decimal(a + b * size - 1).scaleb(-6)))
    made.observe(size, seconds)
    assert made.limit(target_s) == max(1, 9 * size // 10)


def test_a_batch_that_is_not_full_shows_nothing() -> None:
    made = controller({"kind": "aimd", "initial": 8})
    for size in (1, 5, 7):
        made.observe(size, 0.001)
    assert made.limit(TARGET_S) == 8
    made.observe(8, 0.001)
    assert made.limit(TARGET_S) == 9
    made.observe(3, 0.021)  # late all the same
    assert made.limit(TARGET_S) == 8


def test_parameters_of_aimd() -> None:
    # Up by 4 from 10; a target of half the SLO is 10 ms; half of 14 is 7, of 7 is 3, and never below 1.
    made = controller({"kind": "aimd", "increase": 4, "decrease": 0.5, "target": 0.5, "initial": 10})
    made.observe(10, 0.010)
    assert made.limit(TARGET_S) == 14
    for expected in (7, 3, 1, 1):
        made.observe(14, 0.0101)
        assert made.limit(TARGET_S) == expected


def test_limits_end_at_a_million() -> None:
    made = controller({"kind": "aimd", "increase": 600_000, "initial": 500_000})
    made.observe(500_000, 0.001)
    assert made.limit(TARGET_S) == 1_000_000
    for part in ({"kind": "fixed", "batch_size": 1_000_001}, {"kind": "aimd", "initial": 1_000_001}):
        with pytest.raises(ValidationError, match="less than or equal to 1000000"):
            controller(part)


def test_lateness_is_that_of_the_time_drawn() -> None:
    """At 1e5 s clock readings are 1.5e-11 s apart, and end - start of a batch of 20 ms is no longer 20 ms."""
    start_s = 123_456.789
    records = serve(
        [start_s] * 680, profile=line(0.003, 0.0005), controller={"kind": "aimd", "initial": 34}, slo_s=0.02
    )
    batches = records.batches[0]
    assert batches.limit[:7].tolist() == [34, 35, 31, 32, 33, 34, 35]
    differences_s = batches.end_s - batches.start_s
    assert (differences_s[batches.size == 34] != 0.020).any()


# What a controller is told.


class Spy:
    """A controller with a fixed limit, and the part of a system that makes it."""

    def __init__(self, limit: int) -> None:
        self.size = limit
        self.seen: list[tuple[int, float]] = []
        self.slack_s: list[float] = []

    def controller(self, target_s: float, rng: np.random.Generator) -> "Spy":
        return self

    def limit(self, slack_s: float) -> int:
        self.slack_s.append(slack_s)
        return self.size

    def run_size(self, taken: int) -> int:
        return taken

    def observe(self, batch_size: int, service_s: float) -> None:
        self.seen.append((batch_size, service_s))


def test_one_sample_a_batch_and_never_the_wait() -> None:
    # One query waits 100 ms behind a batch of one; it runs with seven others: 8 queries, 0 + 5 ms x 8 = 40 ms.
    spy = Spy(8)
    records = serve(
        [0.0, *[0.05] * 8], controller=spy, profile={"kind": "piecewise", "points": [[1, 0.150], [2, 0.150]]}
    )
    assert records.admitted_s[1] - 0.05 == pytest.approx(0.100)
    assert spy.seen == [(1, pytest.approx(0.150)), (8, pytest.approx(0.150))]
    spy = Spy(8)
    records = serve([0.0] * 8, controller=spy, profile=line(0.0, 0.005), max_delay_s=0.1)
    assert spy.seen == [(8, 0.040)]
    # The first query comes alone and waits 100 ms for seven more.
    spy = Spy(8)
    records = serve([0.0, *[0.1] * 7], controller=spy, profile=line(0.0, 0.005), max_delay_s=1.0)
    assert records.admitted_s.tolist() == [0.1] * 8
    assert spy.seen == [(8, 0.040)]


def test_the_slack_is_the_slo_or_the_time_to_the_first_deadline() -> None:
    spy = Spy(1)
    serve([0.0, 0.0], controller=spy, slo_s=7.0)
    assert spy.slack_s == [7.0, 7.0]
    # Patience 1.5 s: at 0 there are 1.5 s left, at 1 half a second.
    spy = Spy(1)
    serve([0.0, 0.0], controller=spy, slo_s=7.0, patience_s=1.5)
    assert spy.slack_s == [1.5, 0.5]


def test_the_slack_is_of_those_who_can_still_be_answered() -> None:
    # At 0: patience 4, and the batch takes 10. At 10 those of 1 are past (5); those of 8 have 2 s left.
    spy = Spy(1)
    serve([0.0, 1.0, 1.0, 8.0], controller=spy, profile=line(10.0), slo_s=7.0, patience_s=4.0)
    assert spy.slack_s == [4.0, 2.0]


def test_each_replica_learns_by_itself() -> None:
    # 34 fits at speed 1; at half the speed 2 x (3 + 0.5 B) <= 20 gives 14, and 15 is late: floor(13.5) = 13.
    records = serve([0.0] * 5000, profile=line(0.003, 0.0005), controller="aimd", slo_s=0.02, replicas=[1.0, 0.5])
    fast, slow = (records.batches[0].of(replica).limit for replica in (0, 1))
    assert fast[36:].min() == 31
    assert fast.max() == 35
    assert slow[16:].min() == 13
    assert slow.max() == 15


# Quantile regression.


def pinball(x: np.ndarray, y: np.ndarray, intercept: float, slope: float, quantile: float) -> float:
    residual = y - intercept - slope * x
    return float(np.where(residual > 0, quantile * residual, (quantile - 1) * residual).sum())


def brute_force(x: np.ndarray, y: np.ndarray, quantile: float) -> float:
    """Return the least loss: some line through two of the points attains it."""
    losses = []
    for i, j in combinations(range(len(x)), 2):
        if x[i] != x[j]:
            slope = (y[j] - y[i]) / (x[j] - x[i])
            losses.append(pinball(x, y, y[i] - slope * x[i], slope, quantile))
    return min(losses)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 10_000)), min_size=3, max_size=25),
    st.sampled_from([0.51, 0.75, 0.9, 0.99]),
)
def test_no_line_through_two_points_is_better(points: list[tuple[int, int]], quantile: float) -> None:
    x, y = np.array(points, dtype=np.float64).T
    if x.min() == x.max():
        return
    y = y / 1e5
    intercept, slope = fit_quantile(x, y, quantile)
    assert pinball(x, y, intercept, slope, quantile) == pytest.approx(brute_force(x, y, quantile), rel=1e-6, abs=1e-9)


def test_a_share_of_the_points_lies_below() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(1, 40, 400).astype(np.float64)
    y = (0.003 + 0.0005 * x) * (1 + 0.05 * rng.standard_normal(400))
    for quantile in (0.6, 0.9, 0.99):
        intercept, slope = fit_quantile(x, y, quantile)
        above = int((y > intercept + slope * x + 1e-12).sum())
        # The optimum has two points on the line, and at most (1 - q) n strictly above, at most q n strictly below.
        assert above <= 400 * (1 - quantile)
        assert int((y < intercept + slope * x - 1e-12).sum()) <= 400 * quantile


def test_an_exact_line_is_found() -> None:
    x = np.array([1.0, 2.0, 5.0, 9.0])
    assert fit_quantile(x, 0.003 + 0.0005 * x, 0.99) == pytest.approx((0.003, 0.0005))


def test_quantile_climbs_then_inverts_the_line() -> None:
    # Up by one a batch, of which in turn 0, 5, 10, 15, 20 % are left out: 1, floor(0.95 x 2) = 1, floor(0.9 x 3) = 2,
    # floor(0.85 x 4) = 3, floor(0.8 x 5) = 4, then 6, 6, 7, 7, 8. The line is exact, and would allow
    # (20 - 3) / 0.5 = 34, but a fit is trusted for twice the largest batch only: 16, 32, then 34 (rounding may take one).
    limits = saturated({"kind": "quantile", "spread": 0.2}, 0.003, 0.0005, 35)
    assert limits[:10] == [1, 1, 2, 3, 4, 6, 6, 7, 7, 8]
    assert limits[10:15] == [16, 15, 14, 13, 12]  # 16, 15.2, 14.4, 13.6, 12.8
    assert limits[20:25] == [32, 30, 28, 27, 25]  # 32, 30.4, 28.8, 27.2, 25.6
    assert limits[30] in (33, 34)
    assert limits[31:35] == [32, 30, 28, 27]  # 32.3, 30.6, 28.9, 27.2


@pytest.mark.parametrize("seed", range(3))
def test_quantile_keeps_the_tail_within_the_target(seed: int) -> None:
    limits = np.array(saturated("quantile", 0.003, 0.0005, 1000, noise_seed=seed)[200:])
    # 99 % of (3 + 0.5 B)(1 + 0.05 z) within 20 ms: 3 + 0.5 B <= 20 / 1.116 = 17.9, B = 29.8. One limit in five is whole.
    assert 27 <= np.median(limits[::5]) <= 32
    rng = np.random.default_rng(99)
    late = (0.003 + 0.0005 * limits) * (1 + 0.05 * rng.standard_normal(len(limits))) > TARGET_S
    assert late.mean() < 0.04


@pytest.mark.parametrize("part", ["quantile", "aimd", "estimator"])
def test_a_quiet_start_does_not_keep_batches_small(part: str) -> None:
    """A hundred queries one at a time, then thousands at once: the limit must find its way up."""
    arrivals = [float(i) for i in range(150)] + [150.0] * 8000
    records = serve(arrivals, profile=line(0.003, 0.0005), controller=part, slo_s=TARGET_S)
    batches = records.batches[0]
    assert batches.size[:150].tolist() == [1] * 150
    assert batches.size[-50:].mean() > 20


def test_quantile_goes_on_where_latency_does_not_grow() -> None:
    assert max(saturated("quantile", 0.010, 0.0, 300)) > 100


def test_quantile_halves_where_even_one_size_is_late() -> None:
    made = controller({"kind": "quantile", "initial": 16, "refit_batches": 1, "spread": 0.1})
    made.observe(16, 0.030)
    assert made.limit(TARGET_S) in (7, 8)  # 16 / 2, or up to a tenth less


# The estimator of the released code.


def test_it_explores_one_by_one_with_five_samples_each() -> None:
    made = controller("estimator")
    sizes = []
    for _ in range(5 * 9):
        limit = made.limit(1000.0)
        sizes.append(limit)
        made.observe(limit, 0.001)
    assert sizes == [size for size in range(1, 10) for _ in range(5)]
    assert made.limit(1000.0) == 10


def test_above_ten_it_grows_by_a_tenth_more_or_less() -> None:
    sizes = []
    for seed in range(40):
        made = controller("estimator", seed=seed)
        assert isinstance(made, EstimatorLimit)
        made._explored = 100
        for _ in range(5):
            made.observe(100, 0.001)
        sizes.append(made.limit(1000.0))
    # 100 x (1 + N(0.1, 0.05)): 110 on average, rounded down; at least one more.
    assert np.mean(sizes) == pytest.approx(109.5, abs=3)
    assert min(sizes) >= 101
    assert len(set(sizes)) > 5


def test_a_short_batch_is_padded_while_it_explores() -> None:
    made = controller("estimator")
    for _ in range(5 * 6):
        made.observe(made.run_size(made.limit(1000.0)), 0.001)
    assert made.limit(1000.0) == 7
    assert made.run_size(3) == 7
    for _ in range(4):
        made.observe(7, 0.001)
    assert made.limit(1000.0) == 7  # four samples of 7 are not enough
    made.observe(7, 0.001)
    assert made.limit(1000.0) == 8


def test_it_stops_exploring_when_the_budget_is_not_longer_than_any_batch() -> None:
    # Budget 0.92 x 20 = 18.4 ms. Batches of 18.4 ms are as long: no more exploring, no padding.
    made = controller("estimator")
    made.limit(TARGET_S)
    made.observe(1, 0.0183)
    assert made.limit(TARGET_S) == 1
    assert made.run_size(0) == 1  # still exploring
    made.observe(1, 0.0185)
    made.limit(TARGET_S)
    assert made.run_size(0) == 0


def test_it_inverts_mean_and_three_pooled_deviations() -> None:
    spec = Estimator(ridge=0.0, samples_per_size=5)
    made = EstimatorLimit(spec, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    samples = [
        (size, 0.003 + 0.0005 * size + 0.0005 * rng.standard_normal()) for size in (4, 8, 20, 30) for _ in range(9)
    ]
    for size, seconds in samples:
        made.observe(size, seconds)
    x, y = np.array(samples).T
    means = {size: y[x == size].mean() for size in set(x.tolist())}
    pooled = math.sqrt(sum(((y[x == size] - mean) ** 2).sum() for size, mean in means.items()) / (36 - 4))
    # With as many samples of each size, the weighted line through the means is the line through all points.
    slope, intercept = np.polyfit(x, y, 1)
    budget_s = 0.92 * 0.015
    expected = (budget_s - 3 * pooled - intercept) / slope
    assert made._estimated(budget_s) == pytest.approx(expected)
    assert made.limit(0.015) == math.floor(expected)
    assert 10 < expected < 25


def test_the_ridge_flattens_the_slope() -> None:
    steep, flat = (EstimatorLimit(Estimator(ridge=ridge), np.random.default_rng(1)) for ridge in (0.0, 50.0))
    for made in (steep, flat):
        for size in (10, 20):
            made.observe(size, 0.001 * size)
    # Centre 15, spread 2 x 25 = 50, slope 1 ms; a ridge of 50 halves it. Budget 0.92 x 15 / 0.92 = 15 + ... at 12 ms:
    # 15 + (12 - 15) / 1 = 12 and 15 + (12 - 15) / 0.5 = 9.
    assert steep.limit(0.0121 / 0.92) == 12
    assert flat.limit(0.0121 / 0.92) == 9


@pytest.mark.parametrize("ridge", [0, 1e-3])
def test_one_size_that_is_late_gives_batches_of_one(ridge: float) -> None:
    made = controller({"kind": "estimator", "ridge": ridge})
    assert made.limit(TARGET_S) == 1
    made.observe(1, 0.1)
    assert made.limit(TARGET_S) == 1
    assert made.limit(-1.0) == 1  # a deadline that has passed


def test_estimator_under_load_ends_near_the_largest_in_time() -> None:
    # Without noise: 3 + 0.5 B <= 18.4 gives 30.8; a last exploring step may go a little beyond.
    limits = saturated("estimator", 0.003, 0.0005, 600)
    assert set(limits[-50:]) <= set(range(29, 32))


# Parts of the user's own, and input that cannot be.


class Halving:
    """A controller that says nothing about padding."""

    def __init__(self, first: float = 16) -> None:
        self.size = first

    def limit(self, slack_s: float) -> float:
        return self.size

    def observe(self, batch_size: int, service_s: float) -> None:
        self.size = max(1, self.size // 2)


class Padding(Halving):
    """One that pads, or shortens."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def run_size(self, taken: int) -> int:
        return taken + self.by


OWN = "tests.test_controller:Halving"
PADDING = "tests.test_controller:Padding"


def test_a_class_of_the_users() -> None:
    records = serve([0.0] * 31, controller={"kind": OWN, "first": 16}, slo_s=1.0)
    assert records.batches[0].size.tolist() == [16, 8, 4, 2, 1]
    records = serve([0.0] * 16, controller={"kind": PADDING, "by": 4}, slo_s=1.0, profile=line(0.0, 1.0))
    assert records.batches[0].run_size.tolist() == [20]
    assert records.batches[0].service_s.tolist() == [20]


@pytest.mark.parametrize("first", [0, -3, 2.5, math.nan, math.inf, "7", None])
def test_a_limit_that_is_no_size_is_refused(first: Any) -> None:
    with pytest.raises(PartError, match=r"Halving: limit must return a whole number of at least 1; got"):
        serve([0.0] * 3, controller={"kind": OWN, "parameters": {"first": first}}, slo_s=1.0)


def test_a_batch_cannot_be_run_at_less_than_its_size() -> None:
    with pytest.raises(PartError, match=r"Padding: run_size must return a whole number of at least 3; got 2"):
        serve([0.0] * 3, controller={"kind": PADDING, "by": -1}, slo_s=1.0)


def test_a_limit_beyond_all_bounds_is_the_largest() -> None:
    records = serve([0.0] * 3, controller={"kind": OWN, "first": 10**15}, slo_s=1.0)
    assert records.batches[0].limit.tolist() == [1_000_000]


@pytest.mark.parametrize(
    "part",
    [
        "aimdd",
        "fixed",
        {"kind": "fixed", "batch_size": 0},
        {"kind": "aimd", "decrease": 1},
        {"kind": "aimd", "increase": 0},
        {"kind": "aimd", "target": 1.01},
        {"kind": "quantile", "quantile": 0.5},
        {"kind": "quantile", "window": 9},
        {"kind": "estimator", "ridge": -1},
        {"kind": "estimator", "target": 0.5},
        {"kind": "tests.test_controller:Nobody"},
        {"kind": "tests.test_controller:Spy"},  # it needs a limit
    ],
)
def test_what_is_no_controller(part: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(ControllerSpec).validate_python(part)


def test_fixed_stays() -> None:
    made = controller(fixed(7))
    made.observe(7, 1e9)
    assert made.limit(0.0) == 7
    assert made.run_size(3) == 3


def test_the_quantile_of_the_paper_is_the_default() -> None:
    assert Quantile().quantile == 0.99
