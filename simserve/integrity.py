"""Checks that every run passes before anyone sees its numbers: cheap, always on, with the numbers in the message."""

import math

import numpy as np

from simserve.memory import Memory
from simserve.records import NOT_YET, PreemptionRecords, Records


class IntegrityError(AssertionError):
    """The records of a run contradict each other: a fault of the simulator, never of its input."""


def require(holds: bool, message: str) -> None:
    """Raise IntegrityError with the message unless it holds."""
    if not holds:
        raise IntegrityError(f"{message}. This is a fault of simserve: please report it with the scenario")


def check_integrity(records: Records, memory: Memory, *, in_order: bool, budget_tokens: int | None = None) -> None:
    """Check what must be true of every run.

    `in_order` says whether the queue's policy admits in order of arrival, `budget_tokens` how many tokens an iteration
    may compute, prompts and decodes together.

    Raises:
        IntegrityError: something is not.
    """
    _check_requests(records)
    _check_times(records)
    _check_tokens(records)
    _check_memory(records, memory)
    if in_order:
        _check_admission_order(records)
    if budget_tokens is not None:
        most = int((records.iterations.prefill_tokens + records.iterations.decode_sequences).max(initial=0))
        require(most <= budget_tokens, f"an iteration computes {most} tokens of a budget of {budget_tokens}")


def _check_requests(records: Records) -> None:
    """Require that every request has finished or was rejected, and none was both."""
    requests = records.requests
    neither_or_both = np.flatnonzero(requests.finished == requests.rejected)
    require(
        not len(neither_or_both), f"requests {neither_or_both[:5].tolist()} neither finished nor were rejected, or both"
    )


def _check_times(records: Records) -> None:
    """Require that iterations follow each other, a decode takes time, and nothing runs before it arrives.

    With one token an iteration, strictly increasing iteration ends are strictly increasing token times.
    """
    iterations = records.iterations
    start_s, end_s = iterations.start_s, iterations.end_s
    overlap = np.flatnonzero(start_s[1:] < end_s[:-1])
    require(not len(overlap), f"iterations {overlap[:5].tolist()} overlap the next ones")
    standing = np.flatnonzero((end_s < start_s) | ((end_s == start_s) & (iterations.decode_sequences > 0)))
    require(not len(standing), f"iterations {standing[:5].tolist()} decode in no time")
    early = np.flatnonzero(records.admitted_s < records.workload.arrival_s)
    require(not len(early), f"requests {early[:5].tolist()} were admitted before they arrived")


def _check_tokens(records: Records) -> None:
    """Require that tokens out are what finished requests asked for, and what the iterations emitted."""
    workload, requests, iterations = records.workload, records.requests, records.iterations
    finished, segments = requests.finished, records.segments
    emitted = np.bincount(segments.request, weights=segments.tokens, minlength=len(workload))[finished].astype(np.int64)
    outputs = workload.output_tokens[finished]
    wrong = np.flatnonzero(emitted != outputs)
    require(
        not len(wrong),
        f"{len(wrong)} requests emitted other than their output: {emitted[wrong[:5]]} for {outputs[wrong[:5]]}",
    )
    decoding, live = iterations.decode_sequences[records.decodes], records.live_decodes
    over = np.flatnonzero(live > decoding)
    require(
        not len(over),
        f"iterations {records.decodes[over[:5]].tolist()} decode {decoding[over[:5]]} sequences "
        f"but {live[over[:5]]} want a token",
    )
    computed = int(iterations.prefill_tokens.sum())
    prompts = int(workload.prompt_tokens[requests.first_token_iteration != NOT_YET].sum())
    again, cached = _tokens_computed_again(records.preemptions), int(requests.cached_tokens.sum())
    require(
        computed == prompts + again - cached,
        f"{computed} prompt tokens were computed for prompts of {prompts} and {again} more after preemptions, "
        f"of which {cached} were cached",
    )


def _tokens_computed_again(preemptions: PreemptionRecords) -> int:
    """Return what preemptions add to the prompts: the KV dropped, and of each who decoded its latest token.

    That one has no KV yet: it would have passed through the next decode.
    """
    return int(preemptions.tokens[~preemptions.swapped].sum() + preemptions.decoding.sum())


def _check_memory(records: Records, memory: Memory) -> None:
    """Require that no more is held than there is, no more stored than held, and nothing held at the end."""
    reserved, stored = records.iterations.kv_reserved_tokens, records.iterations.kv_stored_tokens
    most = int(reserved.max(initial=0))
    require(most <= memory.capacity_tokens, f"{most} tokens of KV memory are held of {memory.capacity_tokens}")
    if np.all(records.live_decodes == records.iterations.decode_sequences[records.decodes]):
        over = np.flatnonzero(stored > reserved)  # by finished seats of a static batch it may be
        require(not len(over), f"iterations {over[:5].tolist()} store more tokens of KV than they hold")
    held = memory.reserved_tokens
    require(math.isnan(held) or held == 0, f"{held:g} tokens of KV memory are still held at the end")


def _check_admission_order(records: Records) -> None:
    """Require that nobody is admitted in an earlier iteration than someone who arrived before."""
    admitted = records.requests.admitted_iteration
    admitted = admitted[admitted != NOT_YET]
    overtaken = np.flatnonzero(np.diff(admitted) < 0)
    require(not len(overtaken), f"{len(overtaken)} requests were admitted before one that had arrived earlier")
