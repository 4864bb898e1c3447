"""Yardsticks beside the metrics: what the workload would cost in the ideal, and who was overtaken."""

import numpy as np

from simserve.batch import Batch
from simserve.cost import CostModel
from simserve.records import NOT_YET, Records
from simserve.request import Request
from simserve.workload import Workload

COLUMNS = (
    *("prefill_alone_s", "ideal_decode_throughput_tok_per_s"),
    *("overtaken_requests", "refused_requests", "prefix_hit_share"),
)
"""The measures of diagnostics.csv."""


def prefill_alone_s(workload: Workload, cost: CostModel) -> float:
    """Return the seconds to compute every prompt by itself, one after the other, with no decode in between."""
    lengths, counts = np.unique(workload.prompt_tokens, return_counts=True)
    alone_s = [
        cost.iteration_s(Batch(((Request(0, 0.0, tokens, 1, tokens + 1), tokens, 0),), 1, 0, 0))
        for tokens in lengths.tolist()
    ]
    return float(np.sum(counts * alone_s))


def ideal_decode_throughput_tok_per_s(workload: Workload, cost: CostModel, seats: int) -> float:
    """Return the tokens per second of `seats` sequences that decode for ever at the mean context, without any prefill.

    The mean context is the mean prompt and half of the mean output.
    """
    context = float(workload.prompt_tokens.mean() + workload.output_tokens.mean() / 2)
    return seats / cost.iteration_s(Batch((), 0, seats, round(seats * context)))


def overtaken_requests(records: Records) -> int:
    """Return how many requests were admitted in a later iteration than one that arrived after them.

    None under first come, first served: that is Orca's iteration-level FCFS (OSDI 2022, section 4.2), by which of two
    unfinished requests the earlier arrival has run at least as many iterations.
    """
    admitted = records.requests.admitted_iteration
    admitted = admitted[admitted != NOT_YET]
    earliest_behind = np.minimum.accumulate(admitted[::-1])[::-1]
    return int(np.count_nonzero(admitted > earliest_behind))


def prefix_hit_share(records: Records) -> float:
    """Return the share of all prompt tokens that were found in the prefix cache instead of being computed."""
    cached = int(records.requests.cached_tokens.sum())
    prompts = cached + int(records.iterations.prefill_tokens.sum())
    return cached / prompts if prompts else np.nan


def diagnostics(records: Records, cost: CostModel, seats: int) -> dict[str, float]:
    """Return the yardsticks of a run, in the order of diagnostics.csv."""
    return {
        "prefill_alone_s": prefill_alone_s(records.workload, cost),
        "ideal_decode_throughput_tok_per_s": ideal_decode_throughput_tok_per_s(records.workload, cost, seats),
        "overtaken_requests": overtaken_requests(records),
        "refused_requests": int(records.requests.refused.sum()),
        "prefix_hit_share": prefix_hit_share(records),
    }
