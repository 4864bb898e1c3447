"""Queries: popularity, deadlines, and that systems see the same."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from simserve.workload import QuerySpec, Streams
from simserve.workload.queries import Distinct, Zipf

POISSON = {"kind": "poisson", "rate_per_s": 5}


def spec(**fields: object) -> QuerySpec:
    return QuerySpec.model_validate({"num_requests": 100, "arrivals": POISSON, **fields})


def test_distinct() -> None:
    assert Distinct().sample(4, np.random.default_rng(1)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 2.0])
def test_zipf_shares(exponent: float) -> None:
    keys = Zipf(items=50, exponent=exponent).sample(50_000, np.random.default_rng(1))
    weights = np.arange(1, 51) ** -exponent
    expected = 50_000 * weights / weights.sum()
    frequent = expected >= 5
    counts = np.bincount(keys, minlength=50)
    pooled = [*counts[frequent], counts[~frequent].sum()], [*expected[frequent], expected[~frequent].sum()]
    observed, wanted = (np.array(side)[np.array(pooled[1]) > 0] for side in pooled)
    assert stats.chisquare(observed, wanted).pvalue > 0.001


def test_zipf_of_one_and_of_very_many() -> None:
    assert set(Zipf(items=1, exponent=3).sample(10, np.random.default_rng(1)).tolist()) == {0}
    keys = Zipf(items=10_000_000, exponent=0).sample(1000, np.random.default_rng(1))
    assert keys.min() >= 0
    assert keys.max() < 10_000_000
    assert len(np.unique(keys)) > 990
    assert Zipf(items=1000, exponent=10).sample(1000, np.random.default_rng(1)).max() < 3


def test_deadlines() -> None:
    patient, hasty = spec().draw(Streams(1)), spec(deadline_s=0.5).draw(Streams(1))
    assert np.isinf(patient.deadline_s).all()
    np.testing.assert_array_equal(hasty.deadline_s, hasty.arrival_s + 0.5)
    np.testing.assert_array_equal(patient.arrival_s, hasty.arrival_s)
    assert len(patient) == 100


def test_keys_and_arrivals_are_drawn_apart() -> None:
    """Popularity leaves arrivals alone, and the rate leaves keys alone."""
    zipf = {"kind": "zipf", "items": 10}
    slow = spec(popularity=zipf).draw(Streams(1))
    fast = spec(popularity=zipf, arrivals={"kind": "poisson", "rate_per_s": 50}).draw(Streams(1))
    np.testing.assert_array_equal(slow.key, fast.key)
    np.testing.assert_allclose(slow.arrival_s, 10 * fast.arrival_s)
    np.testing.assert_array_equal(slow.arrival_s, spec().draw(Streams(1)).arrival_s)
    assert not np.array_equal(slow.key, spec(popularity=zipf).draw(Streams(2)).key)
    assert not np.array_equal(slow.key, spec(popularity=zipf).draw(Streams(1, 1)).key)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_requests": 0},
        {"deadline_s": 0},
        {"deadline_s": -1},
        {"popularity": "zipf"},
        {"popularity": {"kind": "zipf", "items": 0}},
        {"popularity": {"kind": "zipf", "items": 10_000_001}},
        {"popularity": {"kind": "zipf", "items": 10, "exponent": -1}},
        {"popularity": {"kind": "zipf", "items": 10, "exponent": 11}},
        {"popularity": "uniform"},
        {"prompt_tokens": 5},
        {"arrivals": {"kind": "listed", "at_s": [0, 1]}},
    ],
)
def test_what_are_no_queries(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        spec(**fields)
