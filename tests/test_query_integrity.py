"""What must be true of every run of prediction serving is checked, with the numbers in the message."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from simserve.integrity import IntegrityError
from simserve.query_integrity import check_query_integrity
from simserve.query_records import BatchRecords, QueryRecords
from tests.predictions import fixed, serve, vote


@pytest.fixture
def records() -> QueryRecords:
    # 0-1 with two on the first replica, 0-1 with two on the second, 1-2 with one.
    return serve([0.0] * 5, controller=fixed(2), replicas=2)


def changed(records: QueryRecords, **columns: Any) -> QueryRecords:
    return dataclasses.replace(records, **columns)


def with_batches(records: QueryRecords, **columns: list[float]) -> QueryRecords:
    batches: BatchRecords = records.batches[0]
    arrays = {name: np.array(value, dtype=getattr(batches, name).dtype) for name, value in columns.items()}
    return changed(records, batches=(dataclasses.replace(batches, **arrays),))


def refused(records: QueryRecords, message: str) -> None:
    with pytest.raises(IntegrityError, match=message) as caught:
        check_query_integrity(records)
    assert "fault of simserve" in str(caught.value)


def test_a_run_that_is_right(records: QueryRecords) -> None:
    check_query_integrity(records)
    check_query_integrity(vote([0.0, 0.0], {"a": {}, "b": {}}, selection="majority"))
    check_query_integrity(serve([0.0, 0.1, 0.2], patience_s=0.05))


def test_neither_answered_nor_dropped(records: QueryRecords) -> None:
    finish_s = records.finish_s.copy()
    finish_s[3] = np.nan
    refused(changed(records, finish_s=finish_s), r"queries \[3\] were neither answered nor dropped, or both")


def test_answered_and_dropped(records: QueryRecords) -> None:
    refused(changed(records, expired=np.arange(5) == 2), r"queries \[2\] were neither answered nor dropped, or both")


def test_answered_before_it_arrived(records: QueryRecords) -> None:
    late = dataclasses.replace(records.queries, arrival_s=np.array([0.0, 0, 0, 0, 3]))
    refused(changed(records, queries=late), r"queries \[4\] were answered before they arrived")


def test_overlapping_batches(records: QueryRecords) -> None:
    assert records.batches[0].replica.tolist() == [0, 1, 0]
    refused(with_batches(records, start_s=[0.0, 0.0, 0.5]), r"batches \[0\] of replica 0 overlap the next ones")
    check_query_integrity(with_batches(records, start_s=[0.0, 0.0, 0.5], replica=[0, 1, 2]))


def test_more_than_the_limit_or_nobody(records: QueryRecords) -> None:
    refused(with_batches(records, limit=[2, 1, 2]), r"batches \[0\] of replica 1 hold more than their limit, or nobody")
    refused(with_batches(records, size=[2, 2, 0]), r"batches \[1\] of replica 0 hold more than their limit, or nobody")


def test_computed_and_answered(records: QueryRecords) -> None:
    refused(with_batches(records, size=[2, 1, 1]), "4 queries were computed, but 5 were answered by themselves")
    refused(changed(records, cached=np.arange(5) == 1), "5 queries were computed, but 4 were answered by themselves")
