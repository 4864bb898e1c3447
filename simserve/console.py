"""What the command line prints: progress on a terminal, tables of results, and the ledger of claims."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from simserve.catalog import GPU_BY_NAME, MODEL_BY_NAME, PRESET_BY_NAME
from simserve.report import read_csv
from simserve.report.gantt import chart_text, charts_of
from simserve.report.labels import label, number, path_label
from simserve.scenario import Study, available, load

TEXT_COLUMNS = ("system", "name", "title", "source")

_out = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)


@contextmanager
def progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal, nothing elsewhere, and return the function that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    error = Console(stderr=True)
    with Progress(*columns, console=error, transient=True, auto_refresh=False, disable=not error.is_terminal) as bar:
        task = bar.add_task(name, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            bar.refresh()

        yield advance


def show_table(table: Table) -> None:
    """Print a table."""
    _out.print(table)


def shown(value: float) -> str:
    """Return a number, or `-` for what could not be measured."""
    return "-" if math.isnan(value) else number(value)


def plus_minus(mean: float, half: float) -> str:
    """Return a mean with half its interval, both to the second digit of the half: `4,616 ±181`, `0.220 ±0.016`."""
    if not half > abs(mean) * 1e-9:  # none, or rounding
        return shown(mean)
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{mean:,.{decimals}f} ±{half:,.{decimals}f}"


def show_results(scenario: Study, tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Print the outcome of a scenario: goodput or the main metrics, the claims that fail, and where the files are."""
    _out.print(_goodput(scenario, tables) if "goodput" in tables else _metrics(scenario, tables["summary"]))
    if "schedule" in tables:
        for system, chart in charts_of(tables["schedule"]):
            _out.print(f"{system}\n{chart_text(chart)}\n", soft_wrap=True)
    if "claims" in tables:
        claims = tables["claims"]
        for _, line in claims[~claims["holds"]].iterrows():
            _out.print(_claim_line(line), soft_wrap=True)
        _out.print(f"{claims['holds'].sum()} of {len(claims)} claims hold")
    _out.print(f"results in {folder}/", soft_wrap=True)


def _goodput(scenario: Study, tables: dict[str, pd.DataFrame]) -> Table:
    """Return one row for each system: mean and range over replications, next to the claimed value."""
    swept = list(scenario.sweep)
    claimed = {
        claim.system: claim.value
        for claim in scenario.claims
        if claim.metric == "goodput_per_s" and claim.value is not None and not (swept or claim.over or claim.baseline)
    }
    demand = scenario.searched.demand_per_s if scenario.searched else None
    headers = ["goodput (req/s)", "range", "95 % interval", "replications"]
    headers += [f"GPUs for {demand:g} req/s"] if demand else []
    headers += ["source's value"] if claimed else []
    table = _table(scenario.title or scenario.name, "system", *map(path_label, swept), *headers)
    summary = tables["summary"]
    status = tables["goodput"].groupby(["system", *swept], sort=False, dropna=False)["status"]
    rows = summary[summary["metric"] == "goodput_per_s"].iterrows()
    gpus = summary[summary["metric"] == "gpus_for_demand"].iterrows() if demand else repeat((0, None))
    for (_, row), (_, fleet), note in zip(rows, gpus, status.agg(_unbracketed), strict=False):
        table.add_row(
            row["system"],
            *(str(row[path]) for path in swept),
            shown(row["mean"]),
            _span(row["min"], row["max"]),
            _span(row["ci_low"], row["ci_high"]),
            f"{row['n']}{note}",
            *([] if fleet is None else [_span(fleet["min"], fleet["max"])]),
            *([shown(claimed.get(row["system"]) or math.nan)] if claimed else []),
        )
    return table


def _unbracketed(status: "pd.Series[str]") -> str:
    """Say how many searches ended at a bound."""
    others = status[status != "bracketed"].value_counts()
    return "".join(f" ({n} {str(kind).replace('_', ' ')})" for kind, n in others.items())


def _metrics(scenario: Study, summary: pd.DataFrame) -> Table:
    """Return one row for each system and point: the means of the main metrics, with half their interval."""
    keys = ["system", *scenario.sweep]
    known = set(summary.loc[summary["mean"].notna(), "metric"])
    headlines = [metric for metric in scenario.HEADLINES if metric in known]  # not what applies to no system
    table = _table(scenario.title or scenario.name, "system", *map(path_label, scenario.sweep), *map(label, headlines))
    for point, rows in summary.groupby(keys, sort=False, dropna=False):
        by_metric = rows.set_index("metric")
        halves = (by_metric["ci_high"] - by_metric["ci_low"]) / 2
        cells = [plus_minus(by_metric["mean"][metric], halves[metric]) for metric in headlines]
        table.add_row(*("" if value != value else str(value) for value in point), *cells)
    return table


def _span(low: float, high: float) -> str:
    if math.isnan(low):
        return "-"
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column in TEXT_COLUMNS else "right", overflow="fold")
    return table


def _claim_line(line: "pd.Series[Any]") -> str:
    mark = "holds" if line["holds"] else "FAILS"
    spread = "" if line["low"] == line["high"] else f" ({_span(line['low'], line['high'])})"
    measured = f"{shown(line['measured'])}{spread}"
    return (
        f"{mark}  {line['id']}: {line['statement']}: expected {line['expected']}, measured {measured}; {line['rule']}"
    )


def _read_claims(path: Path) -> pd.DataFrame:
    """Return a claims.csv; one that is broken counts as a claim that fails."""
    try:
        claims = read_csv(path)
        return claims.astype({"measured": float, "low": float, "high": float, "holds": bool})
    except (ValueError, KeyError, OSError):
        columns = ("id", "source", "statement", "expected", "rule")
        broken = {name: ["unreadable; run the scenario again" if name == "id" else ""] for name in columns}
        return pd.DataFrame({**broken, "measured": [math.nan], "low": [math.nan], "high": [math.nan], "holds": [False]})


def show_ledger(results: Path) -> int:
    """Print every claim of every result in the folder and a count; return 0 if there are some and all hold, else 1."""
    ledgers = {path.parent.name: _read_claims(path) for path in sorted(results.glob("*/claims.csv"))}
    for name, claims in ledgers.items():
        _out.print(name, style="bold")
        for _, line in claims.iterrows():
            _out.print("  " + _claim_line(line), soft_wrap=True)
    missing = [
        name
        for path in available().values()
        if (scenario := load(path)).claims and (name := scenario.name) not in ledgers
    ]
    if missing:
        _out.print(f"not run: {', '.join(missing)}")
    total = sum(len(claims) for claims in ledgers.values())
    hold = sum(int(claims["holds"].sum()) for claims in ledgers.values())
    _out.print(f"{hold} of {total} claims hold")
    return 0 if total and hold == total and not missing else 1


def scenario_shelf() -> Table:
    """Return the scenarios that can be named."""
    table = _table("scenarios", "name", "title", "source")
    for name, path in available().items():
        scenario = load(path)
        table.add_row(name, scenario.title, scenario.source)
    return table


def model_shelf() -> Table:
    """Return the models of the catalog."""
    table = _table("models", "name", "parameters", "KV bytes per token", "source")
    for model in MODEL_BY_NAME.values():
        table.add_row(model.name, f"{model.parameters:,}", f"{model.kv_bytes_per_token:,}", model.source)
    return table


def gpu_shelf() -> Table:
    """Return the GPUs of the catalog."""
    table = _table("GPUs", "name", "TFLOP/s", "TB/s", "GB", "source")
    for gpu in GPU_BY_NAME.values():
        rates = (gpu.flop_per_s / 1e12, gpu.bytes_per_s / 1e12, gpu.memory_bytes / 1e9)
        table.add_row(gpu.name, *(f"{rate:g}" for rate in rates), gpu.source)
    return table


def preset_shelf() -> Table:
    """Return the presets of the catalog."""
    table = _table("presets", "name", "version", "source")
    for preset in PRESET_BY_NAME.values():
        table.add_row(preset.name, preset.version, preset.source)
    return table
