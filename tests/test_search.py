import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.experiment.search import bisect


@given(st.floats(0.03, 190), st.floats(0.001, 0.2))
def test_the_crossing_is_bracketed_to_the_tolerance(crossing: float, rel_tol: float) -> None:
    bracket = bisect(lambda rate: rate <= crossing, 0.02, 200, rel_tol)
    assert bracket.status == "bracketed"
    assert bracket.low is not None
    assert bracket.high is not None
    assert bracket.low <= crossing < bracket.high
    assert bracket.high / bracket.low <= 1 + rel_tol


def test_the_number_of_evaluations_is_that_of_a_bisection_on_the_log_scale() -> None:
    # 200 / 0.02 = 10^4; halving its logarithm n times leaves 10^(4 / 2^n) <= 1.01, so n = ceil(log2(4 ln 10 / ln 1.01)) = 10
    assert bisect(lambda rate: rate < 3, 0.02, 200, 0.01).evaluations == 2 + 10


def test_a_bound_that_is_never_crossed_is_reported() -> None:
    below = bisect(lambda rate: False, 1, 8, 0.1)
    assert (below.low, below.high, below.status, below.evaluations) == (None, 1, "below_low", 1)
    above = bisect(lambda rate: True, 1, 8, 0.1)
    assert (above.low, above.high, above.status, above.evaluations) == (8, None, "above_high", 2)


@pytest.mark.parametrize("dip", [2.0, 5.0])
def test_where_attainment_is_not_monotone_a_crossing_is_found(dip: float) -> None:
    def attains(rate: float) -> bool:
        return rate < 10 and not dip < rate < dip * 1.2

    bracket = bisect(attains, 1, 100, 0.01)
    assert bracket.low is not None
    assert bracket.high is not None
    assert attains(bracket.low)
    assert not attains(bracket.high)
    assert math.isclose(bracket.high / bracket.low, 1, rel_tol=0.011)
