"""report.html: the whole result on one page that needs nothing else, neither files nor network nor scripts."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from simserve.report.labels import entry, label, number, path_label
from simserve.report.series import GoodputBar, goodput_bars, swept_columns, variant
from simserve.report.tables import read_csv

MAIN_METRICS = (
    "throughput_tok_per_s",
    "slo_attainment",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_p50_s",
    "itl_p99_s",
    "itl_max_s",
    "batch_mean",
)
"""What the summary of a serving study shows; the rest is in summary.csv."""

CLAIM_HEADS = ("", "id", "source", "statement", "expected", "measured", "low", "high", "rule")

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ margin-bottom: 0; }}
h2 {{ margin-top: 2.5rem; }}
.source, footer {{ color: #555; }}
footer {{ margin-top: 3rem; border-top: 1px solid #ccc; font-size: 0.9rem; white-space: pre-line; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.9rem; }}
th, td {{ padding: 0.3rem 0.8rem 0.3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.holds {{ color: #00704f; font-weight: bold; }}
.fails {{ color: #b34700; font-weight: bold; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
<footer>{footer}</footer>
</body>
</html>
"""


def write_page(folder: Path, title: str, source: str, footer: str, main_metrics: Sequence[str] = MAIN_METRICS) -> None:
    """Write report.html from what is in `folder`: claims.csv, figure.svg, and goodput.csv or summary.csv.

    What is missing is left out. `source` says where the question comes from, `footer` how the numbers came about;
    `main_metrics` are what the summary shows.

    Raises:
        OSError: a file cannot be read or written.
    """
    claims = _table(folder / "claims.csv")
    goodput = _table(folder / "goodput.csv")
    summary = _table(folder / "summary.csv")
    parts = [f'<p class="source">{escape(source)}</p>' if source else ""]
    if claims is not None and len(claims):
        parts.append(_claims(claims))
    if (folder / "figure.svg").exists():
        parts.append(_figure((folder / "figure.svg").read_text(encoding="utf-8"), title))
    if goodput is not None:
        parts.append(_goodput(goodput_bars(goodput, claims), summary))
    elif summary is not None:
        parts.append(_summary(summary, main_metrics))
    body = "\n".join(part for part in parts if part)
    page = PAGE.format(title=escape(title), body=body, footer=escape(footer))
    (folder / "report.html").write_text(page, encoding="utf-8", newline="\n")


def _table(path: Path) -> pd.DataFrame | None:
    return read_csv(path) if path.exists() else None


def _claims(claims: pd.DataFrame) -> str:
    holds = [str(value).lower() == "true" for value in claims["holds"]]
    rows = []
    for held, (_, claim) in zip(holds, claims.iterrows(), strict=True):
        mark = '<td class="holds">✓ holds</td>' if held else '<td class="fails">✗ fails</td>'
        # What is expected may be words: the times of another system.
        texts = [*(_text(claim[name]) for name in ("id", "source", "statement")), _text(entry(claim["expected"]))]
        numbers = [_number(claim[name]) for name in ("measured", "low", "high")]
        rows.append("".join([mark, *texts, *numbers, _text(claim["rule"])]))
    aligned = [False] * 5 + [True] * 3 + [False]
    return _section(f"Claims: {sum(holds)} of {len(holds)} hold", _html_table(CLAIM_HEADS, aligned, rows))


def _figure(svg: str, title: str) -> str:
    # The XML declaration and DOCTYPE of a file have no place inside HTML.
    picture = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)
    return _section("Figure", picture)


def _goodput(bars: Sequence[GoodputBar], summary: pd.DataFrame | None) -> str:
    gpus = {} if summary is None else _gpus(summary)
    heads = ["system", label("goodput_per_s"), "lowest", "highest", "source's value", "replications"]
    heads += [label("gpus_for_demand")] if gpus else []
    rows = []
    for bar in bars:
        source = "" if bar.source_value is None else bar.source_value
        numbers = [bar.mean, bar.low, bar.high, source, bar.replications]
        numbers += [gpus.get((bar.system, bar.variant), "")] if gpus else []
        rows.append("".join([_text(bar.label), *map(_number, numbers), _text(bar.note)]))
    return _section("Goodput", _html_table([*heads, "at a bound"], [False, *[True] * (len(heads) - 1), False], rows))


def _gpus(summary: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return how many GPUs each system (and point) needs for the demand, on average; nothing if the search had none."""
    rows = summary[summary["metric"] == "gpus_for_demand"]
    swept = swept_columns(summary)
    return {
        (row["system"], variant(row["system"], {path: row[path] for path in swept})): row["mean"]
        for _, row in rows.iterrows()
    }


def _summary(summary: pd.DataFrame, main_metrics: Sequence[str]) -> str:
    swept = swept_columns(summary)
    known = list(pd.unique(summary.loc[summary["mean"].notna(), "metric"]))
    metrics = [name for name in main_metrics if name in known] or known
    units = dict(zip(summary["metric"], summary["unit"], strict=True))
    rows = []
    for point, values in summary.groupby(["system", *swept], sort=False, dropna=False):
        shown = {str(row["metric"]): row for _, row in values.iterrows()}
        measured = [_with_interval(shown[metric]) if metric in shown else "" for metric in metrics]
        rows.append("".join([*map(_text, map(entry, point)), *map(_number, measured)]))
    heads = ["system", *map(path_label, swept), *(label(metric, units[metric]) for metric in metrics)]
    aligned = [False] * (1 + len(swept)) + [True] * len(metrics)
    return _section("Summary", _html_table(heads, aligned, rows) + _interval_note(summary))


def _with_interval(row: "pd.Series[Any]") -> str:
    mean, half = float(row["mean"]), float(row["ci_high"] - row["ci_low"]) / 2
    return entry(mean) + (f" ± {number(float(f'{half:.2g}'))}" if half > 0 else "")


def _interval_note(summary: pd.DataFrame) -> str:
    most = int(summary["n"].max())
    return f"<p>Mean ± half the confidence interval over {most} replications.</p>" if most > 1 else ""


def _text(value: object) -> str:
    return f"<td>{escape(str(value))}</td>"


def _number(value: object) -> str:
    return f'<td class="number">{escape(entry(value))}</td>'


def _html_table(heads: Sequence[str], numbers: Sequence[bool], rows: Iterable[str]) -> str:
    cells = (
        f'<th class="number">{escape(head)}</th>' if is_number else f"<th>{escape(head)}</th>"
        for head, is_number in zip(heads, numbers, strict=True)
    )
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{"".join(cells)}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>'
    )


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"
