"""What padding costs, by arithmetic: the lecture's step, and what must hold of any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.numerics import Padding, padding


def test_the_lecture_s_step() -> None:
    # Prefills of 37 and 9, decodes at 120, 15 and 64. 5 * 37 = 185 tokens for 37 + 9 + 3 = 49. The longest row of keys is
    # 120 + 1: 185 * 121 = 22,385 pairs for 37 * 38 / 2 + 9 * 10 / 2 + 121 + 16 + 65 = 950 that causality allows.
    cost = padding([(37, 0), (9, 0), (1, 120), (1, 15), (1, 64)])
    assert cost == Padding(185, 49, 22_385, 950)
    assert round(100 * cost.wasted_tokens) == 74
    assert round(cost.pairs_ratio, 1) == 23.6


def test_equal_decodes_waste_nothing() -> None:
    cost = padding([(1, 50)] * 8)
    assert cost == Padding(8, 8, 408, 408)
    assert (cost.wasted_tokens, cost.pairs_ratio) == (0, 1)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), min_size=1))
def test_padding_never_saves(shapes: list[tuple[int, int]]) -> None:
    cost = padding(shapes)
    assert cost.computed_tokens >= cost.useful_tokens >= len(shapes)
    assert cost.computed_pairs >= cost.useful_pairs >= cost.useful_tokens


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([], "padding needs at least one request"),
        ([(3, 0), (0, 4)], r"at least 1 new and 0 past tokens, not \(0, 4\)"),
        ([(3, -1)], r"at least 1 new and 0 past tokens, not \(3, -1\)"),
    ],
)
def test_errors(shapes: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        padding(shapes)
