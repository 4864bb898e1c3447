"""The facts of one run, as columns: what happened to each request and in each iteration. Nothing here is a metric.

The engine writes a `Log` while it runs: three iteration numbers a request, and one row a *stretch*, a run of
iterations of an unchanged group. `Log.records` unfolds it.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.request import Request
from simserve.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOT_YET = -1
"""The iteration number of what has not happened. (Columns of whole numbers have no None.)"""


class Stretches(NamedTuple):
    """Iterations that follow each other without a pause and run the same group; columns with an entry for each."""

    iterations: Floats
    start_s: Floats
    prefill_tokens: Floats
    """Prompt tokens computed, in each iteration."""
    decode_sequences: Floats
    running: Floats
    kv_reserved_tokens: Floats
    """NaN where what is stored is what is reserved."""
    kv_stored_tokens: Floats
    """Tokens with KV written by the end of the first iteration; each further one adds `decode_sequences`."""


@dataclass(frozen=True, slots=True, eq=False)
class IterationRecords:
    """One entry for each iteration."""

    start_s: Floats
    end_s: Floats
    prefill_tokens: Ints
    decode_sequences: Ints
    running: Ints
    kv_reserved_tokens: Ints
    kv_stored_tokens: Ints

    def __len__(self) -> int:
        return len(self.end_s)


@dataclass(frozen=True, slots=True, eq=False)
class RequestRecords:
    """One entry for each request, in order of arrival; iteration numbers are `NOT_YET` for what has not happened."""

    admitted_iteration: Ints
    first_token_iteration: Ints
    finish_iteration: Ints
    rejected: NDArray[np.bool_]

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests have ended."""
        return np.not_equal(self.finish_iteration, NOT_YET)


@dataclass(frozen=True, eq=False)
class Records:
    """All facts of one run."""

    workload: Workload
    requests: RequestRecords
    iterations: IterationRecords
    rejections: dict[int, str]
    """Why each rejected request could never be admitted, by request id."""

    def time_of(self, iteration: Ints, edge_s: Floats) -> Floats:
        """Return `edge_s` at each iteration number, NaN where it is `NOT_YET`."""
        known = iteration != NOT_YET
        return np.where(known, edge_s[np.where(known, iteration, 0)] if len(edge_s) else np.nan, np.nan)

    @cached_property
    def admitted_s(self) -> Floats:
        """When each request's first iteration began."""
        return self.time_of(self.requests.admitted_iteration, self.iterations.start_s)

    @cached_property
    def first_token_s(self) -> Floats:
        """When each request's first token came out."""
        return self.time_of(self.requests.first_token_iteration, self.iterations.end_s)

    @cached_property
    def finish_s(self) -> Floats:
        """When each request's last token came out."""
        return self.time_of(self.requests.finish_iteration, self.iterations.end_s)

    @cached_property
    def waiting(self) -> Ints:
        """How many requests have arrived and are not admitted when each iteration starts, newcomers of it admitted."""
        admitted = self.requests.admitted_iteration[self.requests.admitted_iteration != NOT_YET]
        seen = np.searchsorted(self.workload.arrival_s[~self.requests.rejected], self.iterations.start_s, side="right")
        return seen - np.cumsum(np.bincount(admitted, minlength=len(self.iterations)))

    @cached_property
    def decodes(self) -> Ints:
        """The numbers of the iterations that decode."""
        return np.flatnonzero(self.iterations.decode_sequences)

    @cached_property
    def spans(self) -> tuple[Ints, Ints]:
        """The finished requests' decodes: positions in `decodes` of each one's first, and of the first after its last.

        The group decodes in lock-step, so a request gets a token of every decode from its first to its last.
        """
        finished = self.requests.finished
        first = self.requests.first_token_iteration[finished]
        last = self.requests.finish_iteration[finished]
        return np.searchsorted(self.decodes, first, side="right"), np.searchsorted(self.decodes, last, side="right")

    @cached_property
    def live_decodes(self) -> Ints:
        """How many finished requests get a token of each of `decodes`."""
        size = len(self.decodes) + 1
        starts, stops = self.spans
        return np.cumsum(np.bincount(starts, minlength=size) - np.bincount(stops, minlength=size))[: size - 1]


_pack = Struct(f"{len(Stretches._fields)}d").pack


class Log:
    """What an engine writes down while it runs, in flat arrays: a million requests fit in a few hundred megabytes."""

    def __init__(self, num_requests: int) -> None:
        self.admitted_iteration = [NOT_YET] * num_requests
        self.first_token_iteration = [NOT_YET] * num_requests
        self.finish_iteration = [NOT_YET] * num_requests
        self.rejections: dict[int, str] = {}
        self._end_s = array("d")
        self._stretches = bytearray()
        self.iteration = 0
        """Number of the next iteration."""

    def stretch(
        self,
        start_s: float,
        ends_s: Sequence[float] | Floats,
        prefill_tokens: int,
        decode_sequences: int,
        running: int,
        kv_reserved_tokens: float,
        kv_stored_tokens: int,
    ) -> None:
        """Write down a stretch that starts at `start_s` and the end of each of its iterations; see `Stretches`."""
        iterations = len(ends_s)
        self._stretches += _pack(
            iterations, start_s, prefill_tokens, decode_sequences, running, kv_reserved_tokens, kv_stored_tokens
        )
        if isinstance(ends_s, np.ndarray):
            self._end_s.frombytes(ends_s.tobytes())
        else:
            self._end_s.extend(ends_s)
        self.iteration += iterations

    def reject(self, request: Request, why: str) -> None:
        """Write down that the request can never be admitted."""
        self.rejections[request.id] = why

    def records(self, workload: Workload) -> Records:
        """Unfold what was written into one entry for each request and each iteration."""
        rejected = np.zeros(len(workload), dtype=np.bool_)
        rejected[list(self.rejections)] = True
        requests = RequestRecords(
            admitted_iteration=np.array(self.admitted_iteration, dtype=np.int64),
            first_token_iteration=np.array(self.first_token_iteration, dtype=np.int64),
            finish_iteration=np.array(self.finish_iteration, dtype=np.int64),
            rejected=rejected,
        )
        return Records(workload, requests, self._iterations(), self.rejections)

    def _iterations(self) -> IterationRecords:
        end_s = np.array(self._end_s)
        columns = np.frombuffer(self._stretches).reshape(-1, len(Stretches._fields)).T
        stretch = Stretches(*columns)
        lengths = stretch.iterations.astype(np.int64)
        first = np.cumsum(lengths) - lengths

        def unfold(column: NDArray[Any]) -> NDArray[Any]:
            return np.repeat(column, lengths)

        start_s = np.concatenate((end_s[:1], end_s[:-1]))
        start_s[first] = stretch.start_s
        decode = unfold(stretch.decode_sequences)
        stored = unfold(stretch.kv_stored_tokens) + decode * (np.arange(len(end_s)) - unfold(first))
        reserved = unfold(stretch.kv_reserved_tokens)
        return IterationRecords(
            start_s=start_s,
            end_s=end_s,
            prefill_tokens=unfold(stretch.prefill_tokens).astype(np.int64),
            decode_sequences=decode.astype(np.int64),
            running=unfold(stretch.running).astype(np.int64),
            kv_reserved_tokens=np.where(np.isnan(reserved), stored, reserved).astype(np.int64),
            kv_stored_tokens=stored.astype(np.int64),
        )
