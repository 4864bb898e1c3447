"""Noise: every kind has mean 1, and the spread it is given."""

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from simserve.cost import NoiseSpec
from simserve.cost.noise import CHUNK, SMALLEST


def drawn(noise: Any, size: int = 100_000, seed: int = 1) -> np.ndarray:
    made = TypeAdapter(NoiseSpec).validate_python(noise)
    return np.array(list(islice(made.factors(np.random.default_rng(seed)), size)))


NOISES = {
    "normal": ({"kind": "normal", "sigma": 0.05}, 0.05),
    "lognormal": ({"kind": "lognormal", "sigma": 0.8}, math.sqrt(math.exp(0.8**2) - 1)),
    "exponential": ("exponential", 1.0),
}


@pytest.mark.parametrize("name", NOISES)
def test_mean_1_and_its_own_deviation(name: str) -> None:
    noise, deviation = NOISES[name]
    factors = drawn(noise)
    assert abs(factors.mean() - 1) < stats.norm.ppf(0.9995) * deviation / math.sqrt(len(factors))
    assert factors.std() == pytest.approx(deviation, rel=0.03)
    assert factors.min() > 0


@pytest.mark.parametrize(
    ("noise", "distribution"),
    [
        ({"kind": "normal", "sigma": 0.1}, stats.norm(1, 0.1)),
        ({"kind": "lognormal", "sigma": 0.5}, stats.lognorm(0.5, scale=math.exp(-0.125))),
        ("exponential", stats.expon()),
    ],
)
def test_the_distribution(noise: Any, distribution: Any) -> None:
    assert stats.kstest(drawn(noise, 20_000), distribution.cdf).pvalue > 0.001


def test_none_is_1() -> None:
    assert drawn("none", 5).tolist() == [1.0] * 5
    assert drawn({"kind": "normal", "sigma": 0}, 5).tolist() == [1.0] * 5


def test_no_batch_is_a_hundred_times_faster() -> None:
    factors = drawn({"kind": "normal", "sigma": 1}, 10_000)
    assert factors.min() == SMALLEST
    assert np.mean(factors == SMALLEST) == pytest.approx(stats.norm.cdf(-0.99), abs=0.02)


def test_chunks_leave_no_seam() -> None:
    one = drawn("exponential", 3 * CHUNK + 7)
    whole = np.random.default_rng(1).standard_exponential(4 * CHUNK)
    assert one.tolist() == whole[: len(one)].tolist()


@pytest.mark.parametrize(
    "noise", ["normal", {"kind": "normal", "sigma": -1}, {"kind": "lognormal", "sigma": 11}, "pink"]
)
def test_what_is_no_noise(noise: Any) -> None:
    with pytest.raises(ValidationError):
        drawn(noise, 1)
