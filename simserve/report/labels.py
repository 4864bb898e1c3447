"""How metrics, swept paths and numbers are written for people."""

import json
import math
import re
from typing import Any

NAMES = {
    "accuracy": ("accuracy", "share"),
    "accuracy_late": ("accuracy in the last tenth", "share"),
    "accuracy_shortfall_late": ("accuracy below the best model's in the last tenth", "share"),
    "adapt_batches": ("batches to adapt", ""),
    "agreement": ("agreement with all votes", "share"),
    "batch_mean": ("mean batch", "sequences"),
    "batch_size": ("batch size", "queries"),
    "batch_throughput_per_s": ("batch throughput", "queries/s"),
    "blocks_per_request": ("blocks in use by a request, mean", ""),
    "blocks_without_sharing": ("blocks it would take without sharing, mean", ""),
    "best_model_accuracy": ("accuracy of the best model", "share"),
    "best_model_accuracy_late": ("accuracy of the best model in the last tenth", "share"),
    "best_model_share": ("queries to the best model", "share"),
    "best_model_share_late": ("queries to the best model in the last tenth", "share"),
    "busy_s": ("busy time", "s"),
    "cached_share": ("answered from the cache", "share"),
    "duration_s": ("duration", "s"),
    "expired_share": ("expired", "share"),
    "goodput_per_s": ("goodput", "req/s"),
    "gpus_for_demand": ("GPUs for the demand", ""),
    "joined_share": ("joined a query under way", "share"),
    "kv_bytes": ("KV memory", "bytes"),
    "kv_reserved_mean": ("KV memory reserved, mean", "share"),
    "kv_stored_mean": ("KV memory stored, mean", "share"),
    "largest_batch": ("largest batch in time", "queries"),
    "largest_batch_latency_s": ("latency of the largest batch in time", "s"),
    "largest_batch_throughput_per_s": ("throughput of the largest batch in time", "queries/s"),
    "late_share": ("late batches", "share"),
    "late_share_disturbed": ("late batches while disturbed", "share"),
    "latency_s": ("latency", "s"),
    "limit": ("batch size limit", ""),
    "limit_max": ("batch size limit, max", ""),
    "limit_mean": ("batch size limit, mean", ""),
    "limit_min": ("batch size limit, min", ""),
    "missing_vote_share": ("missing votes", "share"),
    "output_tokens": ("output", "tokens"),
    "prefix_hit_share": ("prompt tokens found in the cache", "share"),
    "rate_per_s": ("arrival rate", "req/s"),
    "recover_batches": ("batches to recover", ""),
    "regret": ("regret", "wrong answers"),
    "regret_second_half_share": ("regret from the second half", "share"),
    "request_throughput_per_s": ("request throughput", "req/s"),
    "running_max": ("most running", "sequences"),
    "saved_share": ("blocks saved by sharing", "share"),
    "size": ("batch size", "queries"),
    "slo_attainment": ("SLO attainment", ""),
    "steady_throughput_tok_per_s": ("steady throughput", "tok/s"),
    "support_mean": ("votes for the answer, mean", "share"),
    "throughput_per_s": ("throughput", "queries/s"),
    "throughput_tok_per_s": ("throughput", "tok/s"),
    "unbatched_throughput_per_s": ("throughput without batching", "queries/s"),
}
"""Name and unit of what does not follow from its column name."""

UNITS = {"_tok_per_s": "tok/s", "_per_s": "1/s", "_tokens": "tokens", "_bytes": "bytes", "_s": "s"}
"""The unit a column name ends in; the longer endings first."""

PART_FIELDS = frozenset({"max", "mean", "min", "sigma", "value"})
"""Fields that say nothing without the part they belong to: the `mean` of `prompt_tokens`."""

LATENCY = re.compile(r"(ttft|tpot|itl|e2e)(?:_(\w+))?_s")


def name_and_unit(column: str) -> tuple[str, str]:
    """Return what a column or a field is called, and its unit: `ttft_p50_s` is a `TTFT p50` in `s`."""
    if column in NAMES:
        return NAMES[column]
    if match := LATENCY.fullmatch(column):
        return f"{match[1].upper()} {match[2] or ''}".rstrip(), "s"
    for ending, unit in UNITS.items():
        if column.endswith(ending) and column != ending:
            return column.removesuffix(ending).replace("_", " "), unit
    return column.replace("_", " "), ""


def label(column: str, unit: str = "") -> str:
    """Return the label of an axis or of a table's column: `TTFT p50 (s)`; `unit` is for names that tell none."""
    name, known = name_and_unit(column)
    unit = known or unit
    return name if unit in ("", "count") else f"{name} ({unit})"


def path_name(path: str) -> str:
    """Return what a dotted path of the scenario is called: its field, behind the system that it belongs to."""
    return _of_path(path, name_and_unit(path.split(".")[-1])[0])


def path_label(path: str) -> str:
    """Return `path_name` with the unit."""
    return _of_path(path, label(path.split(".")[-1]))


def _of_path(path: str, field: str) -> str:
    *parents, last = path.split(".")
    owner = f"{parents[1]}: " if parents[:1] == ["systems"] and parents[1:2] not in ([], ["*"]) else ""
    if parents and last == "kind":
        return owner + name_and_unit(parents[-1])[0]
    if parents and last in PART_FIELDS:
        return owner + f"{name_and_unit(parents[-1])[0]} {field}"
    return owner + field


def number(value: float) -> str:
    """Return four digits of a number, as many as one compares by eye; all digits before the point of a large one."""
    if math.isfinite(value) and 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def entry(value: object) -> str:
    """Return an entry of a table: a number shortened, nothing for NaN, a part in words, anything else as it is."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        read = json.loads(text) if text.startswith("{") else float(text)
    except ValueError:
        return text
    if isinstance(read, dict):
        return _part(read)
    return "" if math.isnan(read) else number(read)


def _part(fields: dict[str, Any]) -> str:
    """Put a part in words: `{"kind": "sjf", "predictor": {"kind": "noisy"}}` is `sjf, predictor noisy`."""
    words = [str(fields["kind"])] if "kind" in fields else []
    for key, value in fields.items():
        if key != "kind":
            words.append(f"{key.replace('_', ' ')} {_part(value) if isinstance(value, dict) else entry(value)}")
    return ", ".join(words)
