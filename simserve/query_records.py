"""The facts of one run of prediction serving, as columns: what happened to each query and in each batch."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from simserve.workload import Queries

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NOT_YET = -1
"""The batch number of a query that no worker has taken up."""

_packed = Struct("dd5q").pack
"""A batch as bytes: memory for millions of them."""


class QueryLog:
    """What the workers of one model write down while they run."""

    def __init__(self, num_queries: int) -> None:
        self.batch_of = array("q", [NOT_YET]) * num_queries
        """The batch that each query ran in."""
        self.answered_by = array("q", range(num_queries))
        """The query whose prediction each one got: itself, or one with the same key before it."""
        self.expired: list[int] = []
        self.batches = 0
        """Number of the next batch."""
        self._rows = bytearray()

    def batch(
        self,
        queries: Sequence[int],
        start_s: float,
        service_s: float,
        run_size: int,
        limit: int,
        replica: int,
        situation: int,
    ) -> None:
        """Write down a batch when it starts."""
        number, batch_of = self.batches, self.batch_of
        for query in queries:
            batch_of[query] = number
        self._rows += _packed(start_s, service_s, len(queries), run_size, limit, replica, situation)
        self.batches = number + 1

    def records(self) -> "BatchRecords":
        """Return the batches as columns, in order of their start."""
        columns = [("start_s", "f8"), ("service_s", "f8")]
        columns += [(name, "i8") for name in ("size", "run_size", "limit", "replica", "situation")]
        rows = np.frombuffer(bytes(self._rows), dtype=columns)
        return BatchRecords(**{name: np.ascontiguousarray(rows[name]) for name, _ in columns})


@dataclass(frozen=True, slots=True, eq=False)
class BatchRecords:
    """One entry for each batch of a model, in order of their start."""

    start_s: Floats
    service_s: Floats
    """The service time drawn: lateness is judged by it, not by a difference of clock readings, which rounds."""
    size: Ints
    """Queries in it."""
    run_size: Ints
    """The size it ran at: larger where it was padded with copies."""
    limit: Ints
    replica: Ints
    situation: Ints
    """Index into the situations of the run."""

    def __len__(self) -> int:
        return len(self.start_s)

    def of(self, replica: int) -> "BatchRecords":
        """Return the batches of one replica."""
        own = self.replica == replica
        return BatchRecords(*(getattr(self, field.name)[own] for field in fields(self)))

    @property
    def disturbed(self) -> Flags:
        """Which ran while a disturbance was on; the first situation of a run is without one."""
        return np.not_equal(self.situation, 0)

    @property
    def end_s(self) -> Floats:
        """When each ends."""
        return self.start_s + self.service_s


@dataclass(frozen=True, slots=True, eq=False)
class Ballots:
    """What became of each query's votes, where several models are asked."""

    correct: Flags
    """Whether the answer given was right."""
    whole_correct: Flags
    """Whether the answer would have been right with every vote in."""
    agrees: Flags
    """Whether the answer is the one that all votes would have given."""
    asked: Ints
    """Models that were asked."""
    arrived: Ints
    """Votes that were in when the query was answered."""
    supporters: Ints
    """Of those, the votes for the answer."""
    first_asked: Ints
    """The first of the models asked: the one, where only one is."""
    model_correct: NDArray[np.bool_]
    """[models, queries]: whether each model's own answer is right, asked or not."""
    best_model: Ints
    """The model that is right most often at the time of each query."""


@dataclass(frozen=True, eq=False)
class QueryRecords:
    """All facts of one run."""

    queries: Queries
    admitted_s: Floats
    """When the first batch with the query started; NaN where none did, or where its answer was there already."""
    finish_s: Floats
    """When it was answered; NaN for never."""
    expired: Flags
    cached: Flags
    """Answered from the cache at once."""
    joined: Flags
    """Answered by an equal query that was under way."""
    batches: tuple[BatchRecords, ...]
    """For each model."""
    models: tuple[str, ...]
    replicas: int
    """Workers of all models together."""
    ceilings: tuple[Ints, ...]
    """For each model, [replicas, situations]: the largest batch within the SLO, without noise; empty without an SLO."""
    ballots: Ballots | None = None

    @property
    def finished(self) -> Flags:
        """Which queries were answered."""
        return np.isfinite(self.finish_s)
