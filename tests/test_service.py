"""Service times: profile, speed, noise and disturbances together, by hand."""

from itertools import islice, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simserve.cost import CALM, Disturbance, ServiceTimes, Situation
from simserve.cost.profile import LinearProfile, PiecewiseProfile
from tests.predictions import fixed, line, rows, serve

LINE = LinearProfile(a_s=3.0, b_s=0.5)


def service(*disturbances: Any, noise: float = 1.0, speed: float = 1.0) -> ServiceTimes:
    made = [Disturbance.model_validate(disturbance) for disturbance in disturbances]
    return ServiceTimes(LINE, made, repeat(noise), speed)


def test_by_batch_number() -> None:
    # Calm: 3 + 0.5 x 4 = 5. From batch 2 up to, not including, 4: 3 + 2 x 0.5 x 4 = 7.
    times = service({"batches": [2, 4], "per_query": 2})
    assert [times.draw_s(4, 0.0) for _ in range(6)] == [5, 5, 7, 7, 5, 5]


def test_by_time() -> None:
    # From 10 up to, not including, 20: 2 x 3 + 2 = 8.
    times = service({"time_s": [10, 20], "fixed": 2})
    assert [times.draw_s(4, now_s) for now_s in (0.0, 9.9, 10.0, 19.9, 20.0)] == [5, 5, 8, 8, 5]


def test_the_situation_is_that_of_the_last_batch() -> None:
    times = service({"batches": [1, 2], "fixed": 2, "pause_s": 7})
    assert times.situation == CALM
    times.draw_s(1, 0.0)
    assert times.situation == CALM
    times.draw_s(1, 0.0)
    assert times.situation == Situation(fixed=2, pause_s=7)
    times.draw_s(1, 0.0)
    assert times.situation == CALM


def test_several_at_once_multiply_and_pauses_add() -> None:
    # 2 x 3 x 3 + 4 x 0.5 x 4 + 10 + 1 = 37 while both are on.
    times = service(
        {"batches": [0, 2], "fixed": 2, "per_query": 4, "pause_s": 10},
        {"batches": [1, 3], "fixed": 3, "pause_s": 1},
    )
    # First alone: 6 + 8 + 10 = 24. Second alone: 9 + 2 + 1 = 12.
    assert [times.draw_s(4, 0.0) for _ in range(4)] == [24, 37, 12, 5]


def test_noise_and_speed_stretch_computing_but_not_a_pause() -> None:
    # Computing 5 s at half the speed is 10, x 1.5 is 15, and 7 s of pause.
    assert service({"batches": [0, 1], "pause_s": 7}, noise=1.5, speed=0.5).draw_s(4, 0.0) == 22
    assert service(noise=1.5, speed=0.5).draw_s(4, 0.0) == 15


def test_noise_is_drawn_once_for_each_batch_in_order() -> None:
    factors = np.random.default_rng(3).random(20).tolist()
    times = ServiceTimes(LINE, (), iter(factors))
    assert [times.draw_s(4, 0.0) for _ in factors] == [5 * factor for factor in factors]


def test_fixed_and_growing_part_of_points() -> None:
    # Points 1 -> 4, 3 -> 6: fixed part 3, 1 s a query. Batch 3, per-query cost doubled: 3 + 2 x 3 = 9.
    points = PiecewiseProfile(points=((1, 4.0), (3, 6.0)))
    times = ServiceTimes(points, [Disturbance(batches=(0, 1), per_query=2.0)], repeat(1.0))
    assert [times.draw_s(3, 0.0), times.draw_s(3, 0.0)] == pytest.approx([9, 6])


def test_ceilings() -> None:
    assert CALM.largest_batch(LINE, 20.0) == 34  # 3 + 0.5 x 34 = 20
    assert Situation(per_query=2).largest_batch(LINE, 20.0) == 17  # 3 + 17 = 20
    assert Situation(pause_s=10).largest_batch(LINE, 20.0) == 14  # 10 + 3 + 7 = 20
    assert Situation(fixed=7).largest_batch(LINE, 20.0) == 0  # 21 already
    assert CALM.largest_batch(LINE, 20.0, speed=0.5) == 14  # 2 x (3 + 7) = 20


@given(
    st.sampled_from([1.0, 0.75, 0.5, 0.25, 2.0]),
    st.sampled_from([Situation(), Situation(2.0, 1.0, 0.0), Situation(1.0, 2.0, 0.5), Situation(1.5, 3.0, 2.0)]),
    st.integers(1, 400),
)
def test_the_ceiling_is_the_largest_in_time(speed: float, situation: Situation, target: int) -> None:
    largest = situation.largest_batch(LINE, float(target), speed)

    def seconds(size: int) -> float:
        return (situation.fixed * 3.0 + situation.per_query * 0.5 * size) / speed + situation.pause_s

    assert largest == 0 or seconds(largest) <= target + 1e-9
    assert seconds(largest + 1) > target - 1e-9


def test_replicas_count_their_own_batches() -> None:
    # Both replicas pause 10 s in their own batch 1. Seven queries at 0, a second each, one at a time:
    # 0-1 and 0-1; 1-12 and 1-12; 12-13 and 12-13; the last at 13.
    records = serve([0.0] * 7, replicas=2, disturbances=[{"batches": [1, 2], "pause_s": 10}])
    assert sorted(rows(records)) == [(0, 1, 1)] * 2 + [(1, 12, 1)] * 2 + [(12, 13, 1)] * 2 + [(13, 14, 1)]
    assert records.batches[0].disturbed.tolist() == [False, False, True, True, False, False, False]


def test_a_disturbance_in_time_is_that_of_the_start() -> None:
    # 2 s a batch from t = 3 to 5, else 1: 0-1, 1-2, 2-3, 3-5 (starts within), 5-6 (5 is outside).
    records = serve([0.0] * 5, profile=line(1.0), controller=fixed(1), disturbances=[{"time_s": [3, 5], "fixed": 2}])
    assert rows(records) == [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 5, 1), (5, 6, 1)]


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({}, "give either batches or time_s"),
        ({"batches": [0, 1], "time_s": [0, 1]}, "give either batches or time_s"),
        ({"batches": [500, 300]}, "starts at 500 and ends at 300: the end must be later"),
        ({"batches": [3, 3]}, "starts at 3 and ends at 3: the end must be later"),
        ({"time_s": [2.5, 1]}, "starts at 2.5 and ends at 1: the end must be later"),
        ({"batches": [-1, 3]}, "greater than or equal to 0"),
        ({"batches": [0, 3], "fixed": 0}, "greater than or equal to 0.000000001"),
        ({"batches": [0, 3], "per_query": 1e308}, "less than or equal to 1000000000"),
        ({"batches": [0, 3], "pause_s": -1}, "greater than or equal to 0"),
    ],
)
def test_what_is_no_disturbance(window: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Disturbance.model_validate(window)


def test_the_widest_factors_still_end() -> None:
    # 1e9 s x 1e9 at a speed of 1e-9: 1e27 s, a number like any other.
    records = serve([0.0], profile=line(1e9), replicas=[1e-9], disturbances=[{"batches": [0, 1], "fixed": 1e9}])
    assert rows(records) == [(0, pytest.approx(1e27), 1)]


def test_noise_goes_on_over_chunks() -> None:
    records = serve([0.0] * 1100, noise="exponential", seed=5)
    assert len(set(records.batches[0].service_s.tolist())) == 1100
    assert list(islice(records.batches[0].start_s, 1)) == [0.0]
