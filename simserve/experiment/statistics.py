"""Means and intervals over replications. Requests of one run are not independent, so they give none."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

CONFIDENCE = 0.95

SHARES = re.compile(
    r"slo_attainment|utilization|kv_(?:reserved|stored)_mean|support_mean|agreement"
    r"|(?:\w+_)?accuracy(?:_\w+)?|\w+_share(?:_\w+)?"
)
"""The measures that are shares of something."""


def summarise(table: pd.DataFrame, keys: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Return one row for each group of `keys` and each metric: mean, spread and Student-t interval over its rows.

    Empty values are left out, and `n` counts what is in; an interval needs two.
    """
    long = table.melt(id_vars=list(keys), value_vars=list(metrics), var_name="metric").astype({"value": np.float64})
    groups = long.groupby([*keys, "metric"], sort=False, dropna=False)["value"]
    summary = groups.agg(["mean", "std", "min", "max", "count"]).rename(columns={"count": "n"}).reset_index()
    half = stdtrit(np.maximum(summary["n"] - 1, 1), (1 + CONFIDENCE) / 2) * summary["std"] / np.sqrt(summary["n"])
    summary["ci_low"], summary["ci_high"] = summary["mean"] - half, summary["mean"] + half
    summary["unit"] = summary["metric"].map(unit)
    return summary[[*keys, "metric", "unit", "mean", "std", "ci_low", "ci_high", "min", "max", "n"]]


def unit(metric: str) -> str:
    """Return the unit that a metric's name carries."""
    for suffix, name in (("_tok_per_s", "tok/s"), ("_per_s", "1/s"), ("_s", "s"), ("_tokens", "tokens")):
        if metric.endswith(suffix):
            return name
    return "share" if SHARES.fullmatch(metric) else "count"
