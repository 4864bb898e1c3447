"""From the records of prediction serving to numbers. Pure.

A query is a request with one output: its TTFT is its E2E latency, and what needs a second token is empty.
"""

import numpy as np
import pandas as pd

from simserve.cost import within
from simserve.metrics import COLUMNS, REQUEST_COLUMNS, latency, ratio
from simserve.query_records import Ballots, BatchRecords, Flags, Floats, Ints, QueryRecords

DIAGNOSTICS = (
    *("batches", "limit_mean", "limit_min", "limit_max", "late_share", "late_share_disturbed"),
    *("batch_throughput_per_s", "adapt_batches", "recover_batches"),
    *("expired_share", "cached_share", "joined_share"),
    *("accuracy", "accuracy_late", "best_model_accuracy_late", "accuracy_shortfall_late", "best_model_share_late"),
    *("regret", "regret_second_half_share", "missing_vote_share", "agreement", "support_mean"),
)
"""The measures of diagnostics.csv."""

BATCH_COLUMNS = ("batch", "start_s", "end_s", "size", "limit", "late", "model", "replica", "ceiling")
LEARNING_COLUMNS = ("query", "accuracy", "best_model_accuracy", "best_model_share", "regret")

LATE_PART = 0.1
"""What counts as late in a run: its last tenth."""

LEARNING_POINTS = 200
"""Rows of learning.csv."""


def run_metrics(records: QueryRecords, slo_s: float | None) -> dict[str, float]:
    """Return the measures of one run, in the order of runs.csv; those that need tokens or KV memory are NaN."""
    queries, finished = records.queries, records.finished
    e2e = records.finish_s - queries.arrival_s
    ends_s = [batches.end_s.max() for batches in records.batches if len(batches)]
    last_s = float(max([*ends_s, np.nanmax(records.finish_s) if finished.any() else 0.0]))
    busy_s = float(sum(batches.service_s.sum() for batches in records.batches))
    served = int(finished.sum())
    known = {
        "requests": len(queries),
        "finished": served,
        "rejected": int(records.expired.sum()),
        "unfinished": int((~finished & ~records.expired).sum()),
        "duration_s": last_s,
        "output_tokens": served,
        "throughput_tok_per_s": ratio(served, last_s),
        "request_throughput_per_s": ratio(served, last_s),
        "slo_attainment": float(slo_met(records, slo_s).mean()) if slo_s is not None else np.nan,
        **latency("ttft", e2e),
        **latency("e2e", e2e),
        "iterations": sum(len(batches) for batches in records.batches),
        "busy_s": busy_s,
        "utilization": ratio(busy_s, last_s * records.replicas),
        "batch_mean": ratio(sum(float((b.size * b.service_s).sum()) for b in records.batches), busy_s),
        "running_max": max((int(b.size.max()) for b in records.batches if len(b)), default=0),
        "preemptions": 0,
    }
    return {name: known.get(name, np.nan) for name in COLUMNS}


def slo_met(records: QueryRecords, slo_s: float) -> Flags:
    """Return which queries were answered within the bound; a latency that equals it is within.

    A latency is a difference of clock readings, and off by what they are rounded by: more, the later it is.
    """
    finish_s = np.where(records.finished, records.finish_s, np.inf)
    rounding_s = np.spacing(np.nan_to_num(records.finish_s))
    return within_bound(finish_s - records.queries.arrival_s - rounding_s, slo_s)


def within_bound(times_s: Floats, bound_s: float) -> Flags:
    """Return which times keep a bound, by the same rule as controllers judge."""
    return np.asarray(within(times_s, bound_s))  # type: ignore[arg-type]


def request_table(records: QueryRecords, slo_s: float | None) -> pd.DataFrame:
    """Return one row for each query, in the columns of requests.csv."""
    size = len(records.queries)
    e2e = records.finish_s - records.queries.arrival_s
    columns = {
        "request_id": np.arange(size),
        "client": np.full(size, "default", dtype=object),
        "arrival_s": records.queries.arrival_s,
        "prompt_tokens": np.ones(size, dtype=np.int64),
        "output_tokens": np.ones(size, dtype=np.int64),
        "admitted_s": records.admitted_s,
        "first_token_s": records.finish_s,
        "finish_s": records.finish_s,
        "ttft_s": e2e,
        "tpot_s": np.full(size, np.nan),
        "e2e_s": e2e,
        "itl_max_s": np.full(size, np.nan),
        "preemptions": np.zeros(size, dtype=np.int64),
        "status": np.select([records.expired, records.finished], ["expired", "finished"], "unfinished"),
        "slo_met": slo_met(records, slo_s) if slo_s is not None else np.nan,
    }
    return pd.DataFrame(columns, columns=list(REQUEST_COLUMNS))


def batch_table(records: QueryRecords, slo_s: float | None) -> pd.DataFrame:
    """Return one row for each batch, in the columns of batches.csv, numbered for each model in order of their start."""
    parts = []
    for model, batches, ceilings in zip(records.models, records.batches, records.ceilings, strict=True):
        columns = {
            "batch": np.arange(len(batches)),
            "start_s": batches.start_s,
            "end_s": batches.end_s,
            "size": batches.size,
            "limit": batches.limit,
            "late": late(batches, slo_s) if slo_s is not None else np.nan,
            "model": np.full(len(batches), model, dtype=object),
            "replica": batches.replica,
            "ceiling": ceilings[batches.replica, batches.situation] if ceilings.size else np.nan,
        }
        parts.append(pd.DataFrame(columns, columns=list(BATCH_COLUMNS)))
    return pd.concat(parts, ignore_index=True)


def late(batches: BatchRecords, slo_s: float) -> Flags:
    """Return which batches took longer than the bound, by the service time drawn."""
    return ~within_bound(batches.service_s, slo_s)


def diagnostics(records: QueryRecords, slo_s: float | None, settle_batches: int) -> dict[str, float]:
    """Return the measures of one run, in the order of diagnostics.csv; what does not apply is NaN."""
    size = len(records.queries)
    known = {
        "batches": sum(len(batches) for batches in records.batches),
        **_control(records, slo_s, settle_batches),
        "expired_share": ratio(int(records.expired.sum()), size),
        "cached_share": ratio(int(records.cached.sum()), size),
        "joined_share": ratio(int(records.joined.sum()), size),
        **(_selection(records.ballots) if records.ballots else {}),
    }
    return {name: known.get(name, np.nan) for name in DIAGNOSTICS}


def _control(records: QueryRecords, slo_s: float | None, settle: int) -> dict[str, float]:
    """Return how the controllers of all replicas did, in calm and in disturbed batches."""
    replicas = [
        part for batches in records.batches for part in (batches.of(r) for r in np.unique(batches.replica).tolist())
    ]
    calm = [_calm(part, settle) for part in replicas]
    limits = np.concatenate(
        [part.limit[c] for part, c in zip(replicas, calm, strict=True)] or [np.empty(0, dtype=np.int64)]
    )
    sizes = sum(int(part.size[c].sum()) for part, c in zip(replicas, calm, strict=True))
    service_s = sum(float(part.service_s[c].sum()) for part, c in zip(replicas, calm, strict=True))
    found = {"batch_throughput_per_s": ratio(sizes, service_s)}
    if len(limits):
        found |= {"limit_mean": limits.mean(), "limit_min": limits.min(), "limit_max": limits.max()}
    if slo_s is not None:
        lates = [late(part, slo_s) for part in replicas]
        found["late_share"] = _mean([x[c] for x, c in zip(lates, calm, strict=True)])
        found["late_share_disturbed"] = _mean([x[part.disturbed] for x, part in zip(lates, replicas, strict=True)])
        if len(replicas) == 1:
            found |= _adaptation(replicas[0], lates[0], calm[0])
    return found


def _mean(parts: list[Flags]) -> float:
    """Return the mean of all entries, NaN for none."""
    entries = np.concatenate(parts) if parts else np.empty(0)
    return float(entries.mean()) if len(entries) else np.nan


def _calm(batches: BatchRecords, settle: int) -> Flags:
    """Return which batches of a replica are neither disturbed nor near the start or the end of a disturbance."""
    since = np.arange(len(batches)) - np.maximum.accumulate(np.where(batches.disturbed, np.arange(len(batches)) + 1, 0))
    return ~batches.disturbed & (since >= settle)


def _adaptation(batches: BatchRecords, lates: Flags, calm: Flags) -> dict[str, float]:
    """Return how many batches a worker needs when its first disturbance begins, and when it ends.

    It has adapted with the first batch in time, and recovered when its limit is back at nine tenths of its calm mean.
    """
    disturbed = np.flatnonzero(batches.disturbed)
    if not len(disturbed):
        return {}
    start = int(disturbed[0])
    end = start + int(np.argmin(np.append(batches.disturbed[start:], False)))
    level = batches.limit[calm].mean() if calm.any() else np.nan
    return {
        "adapt_batches": _first(~lates[start:end]),
        "recover_batches": _first(batches.limit[end:] >= 0.9 * level),
    }


def _first(holds: Flags) -> float:
    """Return the position of the first True, NaN for none."""
    return float(np.argmax(holds)) if holds.any() else np.nan


def _selection(ballots: Ballots) -> dict[str, float]:
    """Return how well models were chosen and combined."""
    size = len(ballots.correct)
    last = slice(size - max(1, round(size * LATE_PART)), size)
    members = ballots.model_correct[:, last].mean(axis=1)
    alone = ballots.asked[last] == 1
    regret = regrets(ballots)[: _before_drift(ballots)]
    total, half = regret[-1], regret[(len(regret) - 1) // 2]
    voted = ballots.arrived > 0
    return {
        "accuracy": ballots.correct.mean(),
        "accuracy_late": ballots.correct[last].mean(),
        "best_model_accuracy_late": members.max(),
        "accuracy_shortfall_late": members.max() - ballots.correct[last].mean(),
        "best_model_share_late": float((ballots.first_asked == ballots.best_model)[last].mean())
        if alone.all()
        else np.nan,
        "regret": total,
        "regret_second_half_share": ratio(total - half, total),
        "missing_vote_share": 1 - ballots.arrived.sum() / ballots.asked.sum(),
        "agreement": ballots.agrees.mean(),
        "support_mean": float((ballots.supporters[voted] / ballots.asked[voted]).mean()) if voted.any() else np.nan,
    }


def _before_drift(ballots: Ballots) -> int:
    """Return how many queries come before another model becomes the best."""
    changes = np.flatnonzero(np.diff(ballots.best_model))
    return int(changes[0]) + 1 if len(changes) else len(ballots.best_model)


def regrets(ballots: Ballots) -> Ints:
    """Return, query by query, how many more answers were wrong so far than those of the best model at the time."""
    best = np.take_along_axis(ballots.model_correct, ballots.best_model[np.newaxis], axis=0)[0]
    return np.cumsum(best.astype(np.int64) - ballots.correct)


def learning_table(records: QueryRecords) -> pd.DataFrame | None:
    """Return how a selection layer did along the run, in the columns of learning.csv; None without one."""
    ballots = records.ballots
    if ballots is None:
        return None
    size = len(ballots.correct)
    edges = np.unique(np.linspace(0, size, LEARNING_POINTS + 1).astype(np.int64))
    spans = np.diff(edges)
    best = np.take_along_axis(ballots.model_correct, ballots.best_model[np.newaxis], axis=0)[0]

    def over_spans(flags: Flags) -> Floats:
        return np.add.reduceat(flags.astype(np.float64), edges[:-1]) / spans

    columns = {
        "query": edges[1:],
        "accuracy": over_spans(ballots.correct),
        "best_model_accuracy": over_spans(best),
        "best_model_share": over_spans(ballots.first_asked == ballots.best_model),
        "regret": regrets(ballots)[edges[1:] - 1],
    }
    return pd.DataFrame(columns, columns=list(LEARNING_COLUMNS))
