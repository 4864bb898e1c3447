"""The facts of one run, as columns: what happened to each request and in each iteration. Nothing here is a metric.

The engine writes a `Log` while it runs: three iteration numbers a request, and one row a *stretch*, a run of
iterations of an unchanged group. `Log.records` unfolds it. A request that is preempted has several *residences*, each
from an admission to the preemption or the last token; those after the first are written down beside.
"""

from array import array
from collections import defaultdict
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
    """At the end of the first iteration; NaN where what is stored is what is reserved."""
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
    cached_tokens: Ints
    """Tokens of each that were in the prefix cache when it was admitted, added up over its admissions."""
    refused: NDArray[np.bool_]
    """Which found no room in memory at least once: when it was their turn to be admitted, or to grow."""

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests have ended."""
        return np.not_equal(self.finish_iteration, NOT_YET)


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionRecords:
    """One entry for each time a request lost its memory, in the order in which that happened."""

    request: Ints
    iteration: Ints
    """The iteration before which it happened, the first that the request has no part in."""
    swapped: NDArray[np.bool_]
    """Whether its KV moved to the host; else it was dropped, to be computed again."""
    decoding: NDArray[np.bool_]
    """Whether it had emitted a token since it was admitted; else its prompt was unfinished."""
    tokens: Ints
    """Tokens of KV moved or dropped."""
    cost_s: Floats
    """Seconds of moving them out and in again, or of computing them by themselves."""

    def __len__(self) -> int:
        return len(self.request)


@dataclass(frozen=True, slots=True, eq=False)
class Returns:
    """Residences after a request's first, one entry for each time it was admitted or emitted again."""

    request: Ints
    iteration: Ints


class Segments(NamedTuple):
    """The finished requests' tokens: one entry for each residence in which tokens came out, in order of requests.

    The group decodes in lock-step, so within a residence there is one token of `first`, out of the prompt, and one of
    every decode in `Records.decodes[starts:stops]`.
    """

    request: Ints
    first: Ints
    starts: Ints
    stops: Ints

    @property
    def tokens(self) -> Ints:
        """How many tokens came out in each."""
        return self.stops - self.starts + 1


@dataclass(frozen=True, eq=False)
class Records:
    """All facts of one run."""

    workload: Workload
    requests: RequestRecords
    iterations: IterationRecords
    rejections: dict[int, str]
    """Why each rejected request could never be admitted, by request id."""
    preemptions: PreemptionRecords
    readmissions: Returns
    """When preempted requests were admitted again."""
    resumptions: Returns
    """When preempted requests emitted a token again: their prompt and what they had emitted was computed, or came back
    from the host."""

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
        """How many requests have arrived and are not running when each iteration starts, newcomers of it admitted."""
        size = len(self.iterations)
        admitted = self.requests.admitted_iteration[self.requests.admitted_iteration != NOT_YET]
        seen = np.searchsorted(self.workload.arrival_s[~self.requests.rejected], self.iterations.start_s, side="right")
        left_queue = np.bincount(np.concatenate((admitted, self.readmissions.iteration)), minlength=size)
        return seen - np.cumsum(left_queue - np.bincount(self.preemptions.iteration, minlength=size))

    @cached_property
    def decodes(self) -> Ints:
        """The numbers of the iterations that decode."""
        return np.flatnonzero(self.iterations.decode_sequences)

    @cached_property
    def segments(self) -> Segments:
        """Where the tokens of the finished requests come from."""
        finished = self.requests.finished
        request = np.flatnonzero(finished)
        first, last = self.requests.first_token_iteration[request], self.requests.finish_iteration[request]
        if len(self.preemptions):
            again, cut = self.resumptions, self.preemptions.decoding
            begun = _in_order((request, first), (again.request, again.iteration), finished)
            ended = _in_order(
                (request, last), (self.preemptions.request[cut], self.preemptions.iteration[cut] - 1), finished
            )
            request, first, last = begun.request, begun.iteration, ended.iteration
        after_first, after_last = (np.searchsorted(self.decodes, edge, side="right") for edge in (first, last))
        return Segments(request, first, after_first, after_last)

    @cached_property
    def live_decodes(self) -> Ints:
        """How many finished requests get a token of each of `decodes`."""
        size = len(self.decodes) + 1
        starts, stops = self.segments.starts, self.segments.stops
        return np.cumsum(np.bincount(starts, minlength=size) - np.bincount(stops, minlength=size))[: size - 1]


def _in_order(some: tuple[Ints, Ints], others: tuple[Ints, Ints], finished: NDArray[np.bool_]) -> Returns:
    """Return the iterations of both together, of finished requests: by request, and in order of time for each."""
    request, iteration = (np.concatenate(columns) for columns in zip(some, others, strict=True))
    order = np.lexsort((iteration, request))
    order = order[finished[request[order]]]
    return Returns(request[order], iteration[order])


_pack = Struct(f"{len(Stretches._fields)}d").pack


class Log:
    """What an engine writes down while it runs, in flat arrays: a million requests fit in a few hundred megabytes."""

    def __init__(self, num_requests: int) -> None:
        self.admitted_iteration = [NOT_YET] * num_requests
        self.first_token_iteration = [NOT_YET] * num_requests
        self.finish_iteration = [NOT_YET] * num_requests
        self.rejections: dict[int, str] = {}
        self.cached_tokens: defaultdict[int, int] = defaultdict(int)
        """By request id: tokens that were cached at its admissions."""
        self.refused: set[int] = set()
        """Ids of the requests that found no room in memory."""
        self._preemptions: list[tuple[int, int, bool, bool, int, float]] = []
        self._readmissions: list[tuple[int, int]] = []
        self._resumptions: list[tuple[int, int]] = []
        self._end_s = array("d")
        self._regrown = array("q")
        """Iterations that end with other KV tokens reserved than the first of their stretch,"""
        self._regrown_tokens = array("d")
        """and how many."""
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
        kv_reserved_tokens: Sequence[float],
        kv_stored_tokens: int,
    ) -> None:
        """Write down a stretch that starts at `start_s`; see `Stretches`.

        The end of each of its iterations is given, and the KV tokens that are reserved then.
        """
        iterations, reserved = len(ends_s), kv_reserved_tokens[0]
        self._stretches += _pack(
            iterations, start_s, prefill_tokens, decode_sequences, running, reserved, kv_stored_tokens
        )
        if kv_reserved_tokens[-1] > reserved:
            self._regrown.extend(range(self.iteration, self.iteration + iterations))
            self._regrown_tokens.extend(kv_reserved_tokens)
        if isinstance(ends_s, np.ndarray):
            self._end_s.frombytes(ends_s.tobytes())
        else:
            self._end_s.extend(ends_s)
        self.iteration += iterations

    def readmit(self, request: Request) -> None:
        """Write down that the request, once preempted, is admitted to the next iteration."""
        self._readmissions.append((request.id, self.iteration))

    def resume(self, request: Request) -> None:
        """Write down that the request, once preempted, emits its first token since in the next iteration."""
        self._resumptions.append((request.id, self.iteration))

    def preempt(self, request: Request, swapped: bool, decoding: bool, tokens: int, cost_s: float) -> None:
        """Write down that the request loses its memory before the next iteration; see `PreemptionRecords`."""
        self._preemptions.append((request.id, self.iteration, swapped, decoding, tokens, cost_s))

    def reject(self, request: Request, why: str) -> None:
        """Write down that the request can never be admitted."""
        self.rejections[request.id] = why

    def records(self, workload: Workload) -> Records:
        """Unfold what was written into one entry for each request and each iteration."""
        rejected, refused = (np.zeros(len(workload), dtype=np.bool_) for _ in range(2))
        rejected[list(self.rejections)] = True
        refused[list(self.refused)] = True
        cached = np.zeros(len(workload), dtype=np.int64)
        cached[list(self.cached_tokens)] = list(self.cached_tokens.values())
        requests = RequestRecords(
            admitted_iteration=np.array(self.admitted_iteration, dtype=np.int64),
            first_token_iteration=np.array(self.first_token_iteration, dtype=np.int64),
            finish_iteration=np.array(self.finish_iteration, dtype=np.int64),
            rejected=rejected,
            cached_tokens=cached,
            refused=refused,
        )
        return Records(
            workload,
            requests,
            self._iterations(),
            self.rejections,
            PreemptionRecords(*_columns(self._preemptions, (np.int64, np.int64, np.bool_, np.bool_, np.int64, float))),
            Returns(*_columns(self._readmissions, (np.int64, np.int64))),
            Returns(*_columns(self._resumptions, (np.int64, np.int64))),
        )

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
        reserved[np.array(self._regrown, dtype=np.int64)] = np.array(self._regrown_tokens)
        return IterationRecords(
            start_s=start_s,
            end_s=end_s,
            prefill_tokens=unfold(stretch.prefill_tokens).astype(np.int64),
            decode_sequences=decode.astype(np.int64),
            running=unfold(stretch.running).astype(np.int64),
            kv_reserved_tokens=np.where(np.isnan(reserved), stored, reserved).astype(np.int64),
            kv_stored_tokens=stored.astype(np.int64),
        )


def _columns(rows: Sequence[tuple[Any, ...]], types: Sequence[type]) -> list[NDArray[Any]]:
    """Return the columns of a table that may have no rows."""
    return [np.array([row[i] for row in rows], dtype=kind) for i, kind in enumerate(types)]
