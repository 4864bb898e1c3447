import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from simserve.report import draw, write_csv, write_page
from simserve.scenario.study import Figure

RATE = "workload.arrivals.rate_per_s"
VOID = {"meta", "br"}
EXTERNAL = re.compile(r"""(?:src|href|data)\s*=\s*["'](?!#)|url\((?!#|["']?#)|@import|<script|<link""")


class Page(HTMLParser):
    """The page as its cells, row by row, and its text; checks that every element is closed in its turn."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.words: dict[str, str] = {}
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.open:
            self.words[self.open[-1]] = self.words.get(self.open[-1], "") + data


def save_claims(folder: Path, statement: str = "orca: goodput_per_s") -> None:
    rows = [
        ("goodput/orca", "§5.3", statement, "20.34", 20.5123, 18.0, 23.0, "range or 10 %", True),
        ("same-times", "", "a: times of every request, as b", "the same", 0.5, 0.0, 1.0, "exact in every run", False),
    ]
    columns = ["id", "source", "statement", "expected", "measured", "low", "high", "rule", "holds"]
    write_csv(pd.DataFrame(rows, columns=columns), folder / "claims.csv")


def save_search(folder: Path) -> None:
    rows = [
        ("orca", 0, 18.0, 17.9, 18.1, "bracketed", 12),
        ("orca", 1, 23.0, 22.9, 23.1, "bracketed", 12),
        ("static", 0, 0.5, 0.49, 0.51, "bracketed", 12),
        ("static", 1, math.nan, math.nan, 0.02, "below_low", 1),
    ]
    columns = ["system", "replication", "goodput_per_s", "low_per_s", "high_per_s", "status", "evaluations"]
    write_csv(pd.DataFrame(rows, columns=columns), folder / "goodput.csv")


def save_summary(folder: Path, n: int = 2) -> None:
    rows = []
    for k, (system, rate) in enumerate([("orca", 1), ("orca", 2.5), ("static", 1), ("static", 2.5)]):
        for metric, unit in [("throughput_tok_per_s", "tok/s"), ("unusual", "count"), ("ttft_p50_s", "s")]:
            mean = (k + 1) * (4516.0 if unit == "tok/s" else 0.012)
            half = math.nan if n == 1 else mean / 10
            rows.append((system, rate, metric, unit, mean, half, mean - half, mean + half, mean, mean, n))
    columns = ["system", RATE, "metric", "unit", "mean", "std", "ci_low", "ci_high", "min", "max", "n"]
    write_csv(pd.DataFrame(rows, columns=columns), folder / "summary.csv")


def page(folder: Path, title: str = "A title", source: str = "§5.3", footer: str = "Seed 1") -> Page:
    write_page(folder, title, source, footer)
    return Page(folder / "report.html")


def test_a_sweep_has_a_row_for_each_system_and_point(tmp_path: Path) -> None:
    save_summary(tmp_path)
    read = page(tmp_path)
    assert read.rows == [
        ["system", "arrival rate (req/s)", "throughput (tok/s)", "TTFT p50 (s)"],
        ["orca", "1", "4,516 ± 450", "0.012 ± 0.0012"],
        ["orca", "2.5", "9,032 ± 900", "0.024 ± 0.0024"],
        ["static", "1", "13,548 ± 1,400", "0.036 ± 0.0036"],
        ["static", "2.5", "18,064 ± 1,800", "0.048 ± 0.0048"],
    ]
    assert "over 2 replications" in read.words["p"]


def test_a_single_replication_has_no_interval(tmp_path: Path) -> None:
    save_summary(tmp_path, n=1)
    read = page(tmp_path)
    assert read.rows[1] == ["orca", "1", "4,516", "0.012"]
    assert "±" not in read.source


def test_a_search_has_goodput_with_its_range_and_no_summary(tmp_path: Path) -> None:
    save_search(tmp_path)
    save_summary(tmp_path)
    save_claims(tmp_path)
    read = page(tmp_path)
    assert read.rows[3:] == [
        ["system", "goodput (req/s)", "lowest", "highest", "source's value", "replications", "at a bound"],
        ["orca", "20.5", "18", "23", "20.34", "2", ""],
        ["static", "0.5", "0.5", "0.5", "", "2", "< 0.02 in 1 of 2"],
    ]
    assert "Summary" not in read.words["h2"]


def test_a_search_for_a_demand_says_how_many_gpus(tmp_path: Path) -> None:
    save_search(tmp_path)
    rows = [("orca", "gpus_for_demand", "count", 5.0), ("orca", "goodput_per_s", "1/s", 20.5)]
    write_csv(pd.DataFrame(rows, columns=["system", "metric", "unit", "mean"]), tmp_path / "summary.csv")
    heads, orca, static = page(tmp_path).rows
    assert (heads[6], orca[6], static[6]) == ("GPUs for the demand", "5", "")


def test_claims_say_whether_they_hold(tmp_path: Path) -> None:
    save_claims(tmp_path)
    read = page(tmp_path)
    assert read.words["h2"] == "Claims: 1 of 2 hold"
    assert read.rows[1:] == [
        ["✓ holds", "goodput/orca", "§5.3", "orca: goodput_per_s", "20.34", "20.51", "18", "23", "range or 10 %"],
        [
            "✗ fails",
            "same-times",
            "",
            "a: times of every request, as b",
            "the same",
            "0.5",
            "0",
            "1",
            "exact in every run",
        ],
    ]


def test_a_page_of_nothing_is_a_title_and_a_footer(tmp_path: Path) -> None:
    write_csv(pd.DataFrame(columns=["id", "holds"]), tmp_path / "claims.csv")
    read = page(tmp_path, source="")
    assert (read.words["title"], read.words["h1"], read.words["footer"]) == ("A title", "A title", "Seed 1")
    assert "section" not in read.tags
    assert 'class="source"' not in read.source


def test_what_comes_from_the_scenario_is_text(tmp_path: Path) -> None:
    evil = """<script>alert("1 & '2'")</script> {title} --> ]]>"""
    save_claims(tmp_path, statement=evil)
    save_search(tmp_path)
    draw(tmp_path, evil, Figure(), None, search=True)
    read = page(tmp_path, title=evil, source=evil, footer=evil)
    assert "<script" not in read.source
    assert (read.words["title"], read.words["h1"], read.words["footer"], read.words["p"]) == (evil,) * 4
    assert read.rows[1][3] == evil


@pytest.mark.parametrize("search", [True, False])
def test_the_page_needs_nothing_else_and_is_always_the_same(tmp_path: Path, search: bool) -> None:
    save_summary(tmp_path)
    save_claims(tmp_path)
    if search:
        save_search(tmp_path)
    draw(tmp_path, "A title", Figure(metrics=("throughput_tok_per_s", "ttft_p50_s")), None, search=search)
    read = page(tmp_path)
    assert EXTERNAL.findall(read.source) == []
    assert read.tags.count("svg") == 1
    assert '<svg role="img" aria-label="A title"' in read.source
    assert "<?xml" not in read.source
    assert read.source.count("<!DOCTYPE") == 1
    first = (tmp_path / "report.html").read_bytes()
    page(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == first
