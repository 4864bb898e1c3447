"""What texts have in common: by segment, and the same written out token by token."""

from hypothesis import given
from hypothesis import strategies as st

from simserve.content import block_runs, common_tokens, leading, num_tokens, own_output, own_prompt, runs
from simserve.request import Request
from tests.prefix_support import TEXTS, tokens_of


def test_texts_agree_as_far_as_their_segments() -> None:
    text = ((1, 10), (2, 5), (3, 4))
    assert common_tokens(text, text) == 19
    assert common_tokens(text, ((1, 10), (2, 5), (4, 4))) == 15
    assert common_tokens(text, ((1, 10), (2, 3))) == 13  # the shorter quotation
    assert common_tokens(text, ((1, 8), (2, 5))) == 8  # then one goes on in passage 1, the other in 2
    assert common_tokens(text, ((2, 5), (1, 10))) == 0
    assert common_tokens(text, ()) == 0


@given(TEXTS, TEXTS, st.integers(0, 30))
def test_same_as_token_by_token(
    one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...], stop: int
) -> None:
    mine, its = tokens_of(one), tokens_of(other)
    shared = next((i for i, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b), min(len(mine), len(its)))
    assert common_tokens(one, other) == common_tokens(other, one) == shared
    assert num_tokens(one) == len(mine)
    assert tokens_of(leading(one, stop)) == mine[:stop]


@given(TEXTS, st.integers(0, 30), st.integers(0, 30))
def test_runs_are_a_part_of_the_text(text: tuple[tuple[int, int], ...], start: int, stop: int) -> None:
    part = [(segment_id, i) for segment_id, first, end in runs(text, start, stop) for i in range(first, end)]
    assert part == tokens_of(text)[start:stop]
    assert all(first < end for _, first, end in runs(text, start, stop))


@given(TEXTS, TEXTS, st.integers(1, 5), st.integers(0, 4), st.integers(0, 30))
def test_blocks_are_equal_where_texts_are(
    one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...], block: int, first: int, tokens: int
) -> None:
    mine, its = blocks(one, block, tokens), blocks(other, block, 10**9)
    assert len(mine) == min(num_tokens(one), tokens) // block  # full blocks only
    assert len(its) == num_tokens(other) // block
    assert [place for _, place in mine] == list(range(len(mine)))
    for i, found_by in enumerate(mine):
        same = tokens_of(one)[: (i + 1) * block] == tokens_of(other)[: (i + 1) * block]
        assert (found_by in its) == same
    assert blocks(one, block, tokens, first) == mine[first:]


def blocks(text: tuple[tuple[int, int], ...], block: int, tokens: int, first_block: int = 0) -> list[tuple[int, int]]:
    """Return key and place of each block."""
    return [(key, i) for key, first, stop in block_runs(text, block, tokens, first_block) for i in range(first, stop)]


def test_keys_are_the_same_everywhere() -> None:
    # They are no secret of a process, as hash() of a string is: a result must not depend on them.
    # Two blocks end in the first segment, and one in the second.
    pinned = [(1018388026041162970, 0, 2), (241805529936570525, 2, 3)]
    assert list(block_runs(((0, 40), (-3, 10)), 16, 50)) == pinned


def test_numbers_of_ones_own_are_nobody_elses() -> None:
    numbers = [number(i) for i in range(1000) for number in (own_prompt, own_output)]
    assert len(set(numbers)) == 2000
    assert max(numbers) < 0


def test_a_request_tells_what_it_has_said() -> None:
    plain, known = Request(3, 0.0, 5, 4, 9), Request(3, 0.0, 5, 4, 9, content=((0, 2), (own_prompt(3), 3)))
    assert plain.text() == ((own_prompt(3), 5),)
    assert plain.text(2) == ((own_prompt(3), 5), (own_output(3), 2))
    assert known.text() == known.content
    assert known.text(4) == (*known.content, (own_output(3), 4))
