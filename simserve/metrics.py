"""From the records of a run to the numbers that serving people quote. Pure; definitions as benchmark clients use them.

TTFT = first token - arrival. TPOT = (finish - first token) / (n - 1), empty for n = 1 and then counted as met. ITL =
every gap between consecutive tokens, pooled over requests. E2E = finish - arrival. Attainment divides by the requests
offered.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simserve.records import Floats, Ints, Records, Segments

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}
STATISTICS = ("mean", *PERCENTILES, "max")

COLUMNS = (
    *("requests", "finished", "rejected", "unfinished", "duration_s", "output_tokens"),
    *("throughput_tok_per_s", "steady_throughput_tok_per_s", "request_throughput_per_s", "slo_attainment"),
    *(f"{latency}_{statistic}_s" for latency in ("ttft", "tpot", "itl", "e2e") for statistic in STATISTICS),
    *("iterations", "busy_s", "utilization", "batch_mean", "running_max"),
    *("kv_reserved_mean", "kv_stored_mean", "preemptions"),
)
"""The measures of a run, in the order of runs.csv."""

REQUEST_COLUMNS = (
    *("request_id", "client", "arrival_s", "prompt_tokens", "output_tokens", "admitted_s", "first_token_s", "finish_s"),
    *("ttft_s", "tpot_s", "e2e_s", "itl_max_s", "preemptions", "status", "slo_met"),
)
ITERATION_COLUMNS = (
    *("iteration", "start_s", "end_s", "prefill_tokens", "decode_sequences", "running", "waiting"),
    *("kv_reserved_tokens", "kv_stored_tokens"),
)
PREEMPTION_COLUMNS = ("request_id", "iteration", "time_s", "kind", "tokens", "cost_s")


class Bounds(Protocol):
    """The latency bounds of an SLO; None is no bound."""

    @property
    def ttft_s(self) -> float | None:
        """Longest time to first token."""

    @property
    def tpot_s(self) -> float | None:
        """Longest time per output token."""


def ttft_s(records: Records) -> Floats:
    """Return each request's time to first token, NaN where there was none."""
    return records.first_token_s - records.workload.arrival_s


def tpot_s(records: Records) -> Floats:
    """Return each request's mean time per output token after the first, NaN where there are no two tokens."""
    gaps = records.workload.output_tokens - 1
    spent_s = records.finish_s - records.first_token_s
    tpot: Floats = np.divide(spent_s, gaps, out=np.full(len(gaps), np.nan), where=gaps > 0)
    return tpot


def e2e_s(records: Records) -> Floats:
    """Return each request's time from arrival to last token, NaN where it has not ended."""
    return records.finish_s - records.workload.arrival_s


def slo_met(records: Records, slo: Bounds) -> NDArray[np.bool_]:
    """Return which requests finished within the bounds; a request of one token has no TPOT to miss."""
    met = records.requests.finished.copy()
    if slo.ttft_s is not None:
        met &= ttft_s(records) <= slo.ttft_s
    if slo.tpot_s is not None:
        met &= ~(tpot_s(records) > slo.tpot_s)
    return met


def token_gaps(records: Records) -> tuple[Floats, Ints]:
    """Return the inter-token latencies as (gap in seconds, how many tokens saw it) pairs.

    A request's gaps are those between the decodes of the group it is in, but for the first of a residence: that counts
    from the iteration in which its prompt ended, between which and its first decode the group may have paused. And
    there is one from each residence to the next, in which it was preempted.
    """
    several = _several(records)
    first_s, newcomers = _first_gaps_s(records, several), np.bincount(several.starts, minlength=len(records.decodes))
    _, away_s = _gaps_away_s(records)
    alone = np.ones(len(first_s) + len(away_s), dtype=np.int64)
    return (
        np.concatenate((_decode_gaps_s(records), first_s, away_s)),
        np.concatenate((records.live_decodes - newcomers, alone)),
    )


def _decode_gaps_s(records: Records) -> Floats:
    """Return the time of each decode since the decode before."""
    return np.diff(records.iterations.end_s[records.decodes], prepend=0.0)


def _several(records: Records) -> Segments:
    """Return the segments with at least two tokens."""
    segments = records.segments
    several = segments.stops > segments.starts
    return Segments(*(column[several] for column in segments))


def _first_gaps_s(records: Records, several: Segments) -> Floats:
    """Return the first gap of each segment that has one."""
    end_s = records.iterations.end_s
    return end_s[records.decodes[several.starts]] - end_s[several.first]


def _gaps_away_s(records: Records) -> tuple[Ints, Floats]:
    """Return the gaps in which requests were preempted, and whose they are: last token before to first after it."""
    end_s, segments = records.iterations.end_s, records.segments
    before = np.flatnonzero(segments.request[1:] == segments.request[:-1])
    starts, stops = segments.starts[before], segments.stops[before]
    last = segments.first[before]
    decoded = stops > starts
    last[decoded] = records.decodes[stops[decoded] - 1]
    return segments.request[before], end_s[segments.first[before + 1]] - end_s[last]


def itl_max_s(records: Records) -> Floats:
    """Return each request's longest gap between two of its tokens, NaN for a single token or an unfinished request."""
    longest = np.full(len(records.workload), -np.inf)
    several = _several(records)
    np.maximum.at(longest, several.request, _first_gaps_s(records, several))
    np.maximum.at(longest, *_gaps_away_s(records))
    gaps_s = np.append(_decode_gaps_s(records), 0.0)  # a place for the end of the last segment
    more = several.stops > several.starts + 1
    edges = np.stack((several.starts[more] + 1, several.stops[more]), axis=1)
    if len(edges):
        np.maximum.at(longest, several.request[more], np.maximum.reduceat(gaps_s, edges.ravel())[::2])
    return np.where(longest == -np.inf, np.nan, longest)


def weighted_percentiles(values: Floats, counts: Ints, percents: Sequence[float]) -> list[float]:
    """Return what `np.percentile` gives for the list in which each value stands as often as its count."""
    order = np.argsort(values)
    ranked, ranks = values[order], np.cumsum(counts[order])

    def at(rank: float) -> float:
        return float(ranked[np.searchsorted(ranks, rank, side="right")])

    positions = [(int(ranks[-1]) - 1) * percent / 100 for percent in percents]
    return [at(floor(p)) + (at(ceil(p)) - at(floor(p))) * (p % 1) for p in positions]


def latency(name: str, values: Floats, counts: Ints | None = None) -> dict[str, float]:
    """Return mean, percentiles and maximum, NaN where there is nothing to measure."""
    if counts is None:
        counts = np.isfinite(values).astype(np.int64)
    values, counts = values[counts > 0], counts[counts > 0]
    if len(values):
        mean = _dot(values, counts) / int(counts.sum())
        statistics = [mean, *weighted_percentiles(values, counts, list(PERCENTILES.values())), float(values.max())]
    else:
        statistics = [np.nan] * len(STATISTICS)
    return {f"{name}_{statistic}_s": value for statistic, value in zip(STATISTICS, statistics, strict=True)}


def _dot(values: NDArray[Any], weights: NDArray[Any]) -> float:
    """Return the sum of products, always in the same order: BLAS adds in one that depends on its number of threads."""
    return float(np.sum(values * weights))


def ratio(amount: float, per: float) -> float:
    """Return amount / per, NaN where there is nothing to divide by."""
    return amount / per if per > 0 else np.nan


def steady_throughput_tok_per_s(records: Records) -> float:
    """Return tokens per second up to the moment the last request emits its first token.

    After it nobody is left to be admitted: the batch only drains, as long as the longest output takes.
    """
    requests = records.requests
    if not requests.finished.any():
        return np.nan
    last = int(requests.first_token_iteration.max())
    segments = records.segments
    decodes_by_then = np.searchsorted(records.decodes, last, side="right")
    by_then = np.minimum(segments.tokens, 1 + decodes_by_then - segments.starts)
    tokens = by_then[segments.first <= last].sum()
    return ratio(float(tokens), float(records.iterations.end_s[last]))


def run_metrics(records: Records, slo: Bounds | None, kv_capacity_tokens: int) -> dict[str, float]:
    """Return the measures of one run, in the order of runs.csv.

    Times are in seconds, rates per second; batch and KV shares are weighted by time over the busy time, KV shares are
    of the usable KV memory. What cannot be measured is NaN.
    """
    iterations, requests, workload = records.iterations, records.requests, records.workload
    duration_s = float(iterations.end_s[-1]) if len(iterations) else 0.0
    durations_s = iterations.end_s - iterations.start_s
    busy_s = float(durations_s.sum())
    finished, rejected = int(requests.finished.sum()), int(requests.rejected.sum())
    output_tokens = int(workload.output_tokens[requests.finished].sum())
    return {
        "requests": len(workload),
        "finished": finished,
        "rejected": rejected,
        "unfinished": len(workload) - finished - rejected,
        "duration_s": duration_s,
        "output_tokens": output_tokens,
        "throughput_tok_per_s": ratio(output_tokens, duration_s),
        "steady_throughput_tok_per_s": steady_throughput_tok_per_s(records),
        "request_throughput_per_s": ratio(finished, duration_s),
        "slo_attainment": float(slo_met(records, slo).mean()) if slo else np.nan,
        **latency("ttft", ttft_s(records)),
        **latency("tpot", tpot_s(records)),
        **latency("itl", *token_gaps(records)),
        **latency("e2e", e2e_s(records)),
        "iterations": len(iterations),
        "busy_s": busy_s,
        "utilization": ratio(busy_s, duration_s),
        "batch_mean": ratio(_dot(iterations.running, durations_s), busy_s),
        "running_max": int(iterations.running.max(initial=0)),
        "kv_reserved_mean": ratio(_dot(iterations.kv_reserved_tokens, durations_s), busy_s * kv_capacity_tokens),
        "kv_stored_mean": ratio(_dot(iterations.kv_stored_tokens, durations_s), busy_s * kv_capacity_tokens),
        "preemptions": len(records.preemptions),
    }


def request_table(records: Records, slo: Bounds | None) -> pd.DataFrame:
    """Return one row for each request, in the columns of requests.csv; what has not happened is NaN."""
    workload, requests = records.workload, records.requests
    status = np.select([requests.rejected, requests.finished], ["rejected", "finished"], "unfinished")
    columns: Mapping[str, Any] = {
        "request_id": np.arange(len(workload)),
        "client": np.array(workload.client_names, dtype=object)[workload.client],
        "arrival_s": workload.arrival_s,
        "prompt_tokens": workload.prompt_tokens,
        "output_tokens": workload.output_tokens,
        "admitted_s": records.admitted_s,
        "first_token_s": records.first_token_s,
        "finish_s": records.finish_s,
        "ttft_s": ttft_s(records),
        "tpot_s": tpot_s(records),
        "e2e_s": e2e_s(records),
        "itl_max_s": itl_max_s(records),
        "preemptions": np.bincount(records.preemptions.request, minlength=len(workload)),
        "status": status,
        "slo_met": slo_met(records, slo) if slo else np.nan,
    }
    return pd.DataFrame(columns, columns=list(REQUEST_COLUMNS))


def iteration_table(records: Records) -> pd.DataFrame:
    """Return one row for each iteration, in the columns of iterations.csv."""
    iterations = records.iterations
    columns: Mapping[str, Any] = {
        "iteration": np.arange(len(iterations)),
        "start_s": iterations.start_s,
        "end_s": iterations.end_s,
        "prefill_tokens": iterations.prefill_tokens,
        "decode_sequences": iterations.decode_sequences,
        "running": iterations.running,
        "waiting": records.waiting,
        "kv_reserved_tokens": iterations.kv_reserved_tokens,
        "kv_stored_tokens": iterations.kv_stored_tokens,
    }
    return pd.DataFrame(columns, columns=list(ITERATION_COLUMNS))


def preemption_table(records: Records) -> pd.DataFrame:
    """Return one row for each preemption, in the columns of preemptions.csv."""
    preemptions = records.preemptions
    columns: Mapping[str, Any] = {
        "request_id": preemptions.request,
        "iteration": preemptions.iteration,
        "time_s": records.iterations.start_s[preemptions.iteration],
        "kind": np.where(preemptions.swapped, "swap", "recompute").astype(object),
        "tokens": preemptions.tokens,
        "cost_s": preemptions.cost_s,
    }
    return pd.DataFrame(columns, columns=list(PREEMPTION_COLUMNS))
