"""Latency profiles, and the largest batch within a target, exact at the boundary."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simserve.batch import Batch
from simserve.catalog import MODEL_BY_NAME, Hardware
from simserve.cost import LatencyProfile, ProfileSpec, Roofline, within
from simserve.cost.profile import LARGEST_BATCH, largest_within


def profile(kind: str, **fields: Any) -> LatencyProfile:
    made: LatencyProfile = TypeAdapter(ProfileSpec).validate_python({"kind": kind, **fields})
    return made


def linear(a_s: float, b_s: float) -> LatencyProfile:
    return profile("linear", a_s=a_s, b_s=b_s)


def micros(whole: int) -> float:
    """Return whole microseconds as a YAML file would give them: the nearest double."""
    return float(Decimal(whole).scaleb(-6))


@pytest.mark.parametrize(
    ("a_ms", "b_ms", "largest"),
    [
        (3, 0.5, 34),  # 3 + 0.5 x 34 = 20
        (3, 1.0, 17),  # 3 + 17 = 20
        (1.5, 0.02558, 723),  # 1.5 + 0.02558 x 723 = 19.994, one more 20.02
        (1, 5.2, 3),  # 1 + 5.2 x 3 = 16.6, one more 21.8
        (20, 0.001, 0),  # 20.001 already
        (19, 1, 1),
        (21, 0, 0),
        (20, 0, LARGEST_BATCH),  # no end to it
    ],
)
def test_largest_batch_within_20_ms(a_ms: float, b_ms: float, largest: int) -> None:
    assert linear(a_ms / 1000, b_ms / 1000).largest_batch(0.020) == largest


@given(
    st.integers(0, 50_000), st.integers(1, 20_000), st.integers(1, 2_000), st.sampled_from([1.0, 0.5, 0.25, 2.0, 4.0])
)
def test_a_decimal_boundary_is_never_late_and_a_microsecond_more_is(a: int, b: int, size: int, factor: float) -> None:
    made, target_s = linear(micros(a), micros(b)), micros(a + b * size)
    assert within(made.latency_s(size), target_s)
    assert within(factor * made.latency_s(size), factor * target_s)
    assert not within(made.latency_s(size), micros(a + b * size - 1))
    assert made.largest_batch(target_s) == size
    assert made.largest_batch(micros(a + b * size - 1)) == size - 1
    assert linear(micros(a), micros(b)).fixed_s + made.variable_s(size) == made.latency_s(size)


@given(st.integers(1, 50_000), st.integers(1, 20_000), st.integers(2, 500), st.integers(2, 100))
def test_a_boundary_of_points_is_never_late(a: int, b: int, size: int, further: int) -> None:
    """Between the points and beyond them a straight line is as exact as one that is given by its two numbers."""
    points = [(1, micros(a + b)), (size, micros(a + b * size))]
    made = profile("piecewise", points=points)
    for asked in (size, size + further, (1 + size) // 2):
        assert made.largest_batch(micros(a + b * asked)) == asked


def test_piecewise_by_hand() -> None:
    # Slopes 1 and 4 ms. The first line meets size 0 at 10 - 2 x 1 = 8 ms; below size 2 it stays at 10.
    made = profile("piecewise", points=[[2, 0.010], [4, 0.012], [8, 0.028]])
    assert made.fixed_s == pytest.approx(0.008)
    expected = {1: 0.010, 2: 0.010, 3: 0.011, 4: 0.012, 6: 0.020, 8: 0.028, 10: 0.036}
    for size, latency_s in expected.items():
        assert made.latency_s(size) == pytest.approx(latency_s), size
        assert made.fixed_s + made.variable_s(size) == pytest.approx(latency_s), size
    assert made.largest_batch(0.036) == 10
    # A line that would meet size 0 below zero: no negative fixed part. 10 ms at 1, 30 at 2 would be -10.
    steep = profile("piecewise", points=[[1, 0.010], [2, 0.030]])
    assert steep.fixed_s == 0
    assert steep.latency_s(1) == pytest.approx(0.010)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 10**6)), min_size=2, max_size=8), st.integers(1, 2000))
def test_interpolation_agrees_with_numpy_and_never_falls(pairs: list[tuple[int, int]], size: int) -> None:
    sizes = sorted({size for size, _ in pairs})
    latencies = sorted(micros(latency) for _, latency in pairs)[: len(sizes)]
    if len(sizes) < 2:
        return
    made = profile("piecewise", points=list(zip(sizes, latencies, strict=True)))
    if size <= sizes[-1]:
        assert made.latency_s(size) == pytest.approx(np.interp(size, sizes, latencies), rel=1e-9)
    assert made.latency_s(size + 1) >= made.latency_s(size) - 1e-12


def test_measured_is_piecewise_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("n,ms\n2,10\n4,12\n8,28\n")
    measured = profile(
        "measured", path=str(tmp_path / "p.csv"), batch_column="n", latency_column="ms", seconds_per_unit=0.001
    )
    written = profile("piecewise", points=[[2, 0.010], [4, 0.012], [8, 0.028]])
    for size in (1, 2, 3, 5, 8, 20):
        assert measured.latency_s(size) == pytest.approx(written.latency_s(size), rel=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch,latency_s\n1,0.003\n2,abc\n3,0.005\n", "row 2 below the header needs a number"),
        ("batch,latency_s\n1,0.003\n2,\n", "row 2 below the header needs a number"),
        ("batch,latency_s\n1,0.003\n", "at least two points"),
        ("batch,latency_s\n", "at least two points"),
        ("batch,latency_s\n1,0.003\n2,inf\n", "row 2 below the header needs a number"),
        ("batch,latency_s\n2,0.003\n1,0.004\n", "batch sizes must rise"),
        ("batch,latency_s\n1,0.003\n1,0.004\n", "batch sizes must rise"),
        ("batch,latency_s\n0,0.003\n1,0.004\n", "batch sizes must rise from 1"),
        ("batch,latency_s\n1,0.003\n2,0.002\n", "latencies must not fall"),
        ("batch,latency_s\n1,0\n2,0.002\n", "a batch must take time"),
        ("batch,latency_s\n1,-1\n2,0.002\n", "a batch must take time"),
        ("batch,seconds\n1,0.1\n2,0.2\n", "has no column 'latency_s'"),
        ("", "as CSV"),
    ],
)
def test_a_file_that_is_no_profile(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValidationError, match=message) as caught:
        profile("measured", path=str(tmp_path / "p.csv"))
    assert "p.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "at least two points"),
        ([[1, 0.1]], "at least two points"),
        ([[2, 0.1], [1, 0.2]], "batch sizes must rise"),
        ([[1, 0.1], [1, 0.2]], "batch sizes must rise"),
        ([[1, 0.2], [2, 0.1]], "latencies must not fall"),
        ([[1, 0.0], [2, 0.1]], "a batch must take time"),
        ([[1, 0.1, 5], [2, 0.2]], "at most 2 items"),
        ([[0, 0.1], [2, 0.2]], "greater than or equal to 1"),
    ],
)
def test_points_that_are_no_profile(points: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        profile("piecewise", points=points)


def test_a_batch_takes_time() -> None:
    with pytest.raises(ValidationError, match="a batch must take time: a_s and b_s together at least 1e-09"):
        linear(0.0, 0.0)
    assert linear(0.0, 1e-9).latency_s(2) == 2e-9


def test_decode_is_a_step_of_the_roofline() -> None:
    hardware = {"gpu": "h100-sxm", "compute_efficiency": 0.7, "bandwidth_efficiency": 0.8, "memory_fraction": 0.9}
    made = profile("decode", model="llama-3-8b", hardware=hardware, context_tokens=8192)
    model, gpu = MODEL_BY_NAME["llama-3-8b"], Hardware.model_validate(hardware)
    step = Batch((), 0, 34, 34 * 8192)
    assert made.latency_s(34) == Roofline().price(model, gpu).iteration_s(step)
    assert made.fixed_s + made.variable_s(34) == pytest.approx(made.latency_s(34))
    assert made.largest_batch(0.020) == 34
    assert made.latency_s(34) <= 0.020 < made.latency_s(35)


@given(st.integers(0, 3000), st.integers(1, 5000))
def test_largest_within_looks_at_every_size(step: int, asked: int) -> None:
    """A staircase, one second higher every `step` sizes: against counting."""
    height = step + 1
    found = largest_within(float(asked // height), lambda size: float(size // height))
    assert found == (asked // height + 1) * height - 1
