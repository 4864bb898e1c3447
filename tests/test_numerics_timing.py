"""The timing of decodes: what it reports, not how fast it is; that is for `make bench`."""

import pytest

from simserve.numerics import MINI, time_decodes


def test_a_row_for_each_batch_size() -> None:
    rows = time_decodes(MINI, (1, 3), repeats=3, context_tokens=5)
    assert [row.batch_size for row in rows] == [1, 3]
    for row in rows:
        assert row.one_by_one_s > 0
        assert row.speedup == row.one_by_one_s / row.batched_s


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_sizes": (4, 0)}, r"must be at least 1, not \(4, 0\), 5, 64"),
        ({"repeats": 0}, "must be at least 1, not"),
        ({"context_tokens": 0}, "must be at least 1, not"),
        ({"batch_sizes": (1,), "context_tokens": 2048}, "would have 2049 tokens; the model has 2048 positions"),
    ],
)
def test_errors(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        time_decodes(MINI, **fields)
