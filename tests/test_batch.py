"""The countable work of an iteration."""

from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.batch import Batch, Work


def decode(*contexts: int) -> Batch:
    return Batch((), 0, len(contexts), sum(contexts))


def prefill(new_tokens: int, past_tokens: int = 0, emits: bool = True) -> Batch:
    return Batch([(None, new_tokens, past_tokens)], int(emits), 0, 0)


def test_prefill_by_hand() -> None:
    # 37 queries see 1, 2, ..., 37 keys: 703 pairs; nothing is read, 37 tokens are written.
    assert prefill(37).work() == Work(37, 703, 0, 37, 1)


def test_decode_by_hand() -> None:
    # Three with 120, 15 and 64 past tokens: 121 + 16 + 65 = 202 pairs, 199 tokens read, 3 written.
    assert decode(120, 15, 64).work() == Work(3, 202, 199, 3, 3)


def test_the_lecture_s_mixed_step() -> None:
    # Prefills of 37 and 9, decodes at 120, 15 and 64: 49 tokens, and 703 + 45 + 202 = 950 pairs.
    assert Batch([(None, 37, 0), (None, 9, 0)], 2, 3, 199).work() == Work(49, 950, 199, 49, 5)


def test_chunk_by_hand() -> None:
    # 4 new tokens after 10: they see 11 + 12 + 13 + 14 = 50 keys. Only a prompt's last chunk emits.
    assert prefill(4, 10, emits=False).work() == Work(4, 50, 10, 4, 0)
    assert prefill(4, 10).work() == Work(4, 50, 10, 4, 1)


def test_nothing() -> None:
    assert Batch((), 0, 0, 0).work() == Work(0, 0, 0, 0, 0)


pieces = st.tuples(st.integers(1, 5000), st.integers(0, 5000), st.booleans())


def added(works: list[Work]) -> Work:
    return Work(*(sum(work[i] for work in works) for i in range(len(Work._fields))))


@settings(deadline=None)
@given(st.lists(pieces, max_size=6), st.lists(st.integers(1, 5000), max_size=6))
def test_work_is_the_sum_of_its_parts(prefills: list[tuple[int, int, bool]], contexts: list[int]) -> None:
    emitting = sum(emits for _, _, emits in prefills)
    whole = Batch([(None, new, past) for new, past, _ in prefills], emitting, len(contexts), sum(contexts))
    parts = [prefill(*piece) for piece in prefills] + [decode(context) for context in contexts]
    assert whole.work() == added([part.work() for part in parts])


@settings(deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_chunks_do_the_work_of_the_whole(chunks: list[int]) -> None:
    """Cutting a prompt adds reads of what is there, and nothing else."""
    past = [sum(chunks[:i]) for i in range(len(chunks))]
    works = [prefill(new, before, emits=False).work() for new, before in zip(chunks[:-1], past[:-1], strict=True)]
    works.append(prefill(chunks[-1], past[-1]).work())
    assert added(works) == prefill(sum(chunks)).work()._replace(kv_read_tokens=sum(past))


@settings(deadline=None)
@given(st.integers(1, 5000))
def test_a_decode_is_a_chunk_of_one(context: int) -> None:
    assert decode(context).work() == prefill(1, context).work()
