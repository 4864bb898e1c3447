"""Checks that every run of prediction serving passes before anyone sees its numbers."""

import numpy as np

from simserve.integrity import require
from simserve.query_records import BatchRecords, QueryRecords


def check_query_integrity(records: QueryRecords) -> None:
    """Check what must be true of every run.

    Raises:
        IntegrityError: something is not.
    """
    finished, expired = records.finished, records.expired
    neither_or_both = np.flatnonzero(finished == expired)
    require(
        not len(neither_or_both), f"queries {neither_or_both[:5].tolist()} were neither answered nor dropped, or both"
    )
    early = np.flatnonzero(records.finish_s < records.queries.arrival_s)
    require(not len(early), f"queries {early[:5].tolist()} were answered before they arrived")
    for batches in records.batches:
        for replica in np.unique(batches.replica).tolist():
            _check_batches(batches.of(replica), replica)
    if records.ballots is None:
        computed, distinct = (
            int(records.batches[0].size.sum()),
            int((finished & ~records.cached & ~records.joined).sum()),
        )
        require(computed == distinct, f"{computed} queries were computed, but {distinct} were answered by themselves")


def _check_batches(batches: BatchRecords, replica: int) -> None:
    """Require that a replica's batches follow each other, hold someone, and keep the limit."""
    overlap = np.flatnonzero(batches.start_s[1:] < batches.end_s[:-1])
    require(not len(overlap), f"batches {overlap[:5].tolist()} of replica {replica} overlap the next ones")
    wrong = np.flatnonzero((batches.size < 1) | (batches.size > batches.limit))
    require(not len(wrong), f"batches {wrong[:5].tolist()} of replica {replica} hold more than their limit, or nobody")
