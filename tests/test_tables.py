import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.report import tables
from simserve.report.tables import read_csv, write_csv


def text(table: pd.DataFrame, folder: Path) -> str:
    write_csv(table, folder / "table.csv")
    return (folder / "table.csv").read_bytes().decode()


def test_each_type_has_one_form(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "system": ["orca", "static"],
            "count": [3, 1_000_000],
            "time_s": [0.1, math.nan],
            "met": [True, False],
            "maybe": pd.array([7, None], dtype="Int64"),
            "mixed": pd.Series([np.float64(0.3), None], dtype=object),
        }
    )
    assert text(table, tmp_path) == (
        "system,count,time_s,met,maybe,mixed\norca,3,0.1,true,7,0.3\nstatic,1000000,,false,,\n"
    )


@pytest.mark.parametrize("value", [np.bool_(True), True])
def test_booleans_among_other_objects(value: Any, tmp_path: Path) -> None:
    assert text(pd.DataFrame({"a": pd.Series([value, None, 2], dtype=object), "b": 1}), tmp_path) == (
        "a,b\ntrue,1\n,1\n2,1\n"
    )


def test_missing_values_of_every_kind_are_empty(tmp_path: Path) -> None:
    missing = pd.Series([None, math.nan, np.float64("nan"), pd.NA, pd.NaT], dtype=object)
    assert text(pd.DataFrame({"a": missing, "b": 1}), tmp_path) == "a,b\n" + ",1\n" * 5


def test_a_line_with_nothing_in_it_is_kept(tmp_path: Path) -> None:
    written = text(pd.DataFrame({"a": [1.5, math.nan]}), tmp_path)
    assert written == 'a\n1.5\n""\n'
    assert read_csv(tmp_path / "table.csv")["a"].tolist() == pytest.approx([1.5, math.nan], nan_ok=True)


def test_an_empty_table_is_its_header(tmp_path: Path) -> None:
    assert text(pd.DataFrame(columns=["a", "b"]), tmp_path) == "a,b\n"


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_any_text_comes_back_through_the_csv_module(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("text") / "table.csv"
    write_csv(pd.DataFrame(rows, columns=["a", "b"]), path)
    with path.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["a", "b"], *(list(row) for row in rows)]


def test_names_with_commas_and_quotes_are_quoted(tmp_path: Path) -> None:
    table = pd.DataFrame({"order, kind": ['{"kind": "sjf"}', "fcfs"], "n": [1, 2]})
    assert text(table, tmp_path) == '"order, kind",n\n"{""kind"": ""sjf""}",1\nfcfs,2\n'


def test_floats_come_back_to_the_last_digit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.random(5000) * 10.0 ** rng.integers(-12, 12, 5000)
    values[:3] = [1 / 3, 5e-324, math.inf]
    write_csv(pd.DataFrame({"a": values, "b": 1}), tmp_path / "table.csv")
    lines = (tmp_path / "table.csv").read_text().splitlines()[1:]
    assert [float(line.split(",")[0]) for line in lines] == values.tolist()
    assert max(len(line) for line in lines) <= len("-1.2345678901234567e-308,1")


def test_chunks_join_without_a_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({"a": range(10), "b": np.arange(10) / 7})
    whole = text(table, tmp_path)
    monkeypatch.setattr(tables, "CHUNK_ROWS", 3)
    assert text(table, tmp_path) == whole
    assert whole.count("\n") == 11


def test_reading_keeps_names_as_names(tmp_path: Path) -> None:
    table = pd.DataFrame({"system": ["007", "NA", "nan"], "value": [1.5, math.nan, 2.0], "holds": [True, False, True]})
    write_csv(table, tmp_path / "table.csv")
    back = read_csv(tmp_path / "table.csv")
    assert back["system"].tolist() == ["007", "NA", "nan"]
    assert back["holds"].tolist() == [True, False, True]
    assert back["value"].tolist() == pytest.approx([1.5, math.nan, 2.0], nan_ok=True)


def test_an_absent_source_is_empty_text(tmp_path: Path) -> None:
    write_csv(pd.DataFrame({"id": ["a"], "source": [""], "expected": ["0.10"]}), tmp_path / "table.csv")
    assert read_csv(tmp_path / "table.csv").iloc[0].tolist() == ["a", "", "0.10"]


def test_tables_without_text_can_be_read(tmp_path: Path) -> None:
    write_csv(pd.DataFrame({"iteration": [0, 1], "start_s": [0.0, 0.5]}), tmp_path / "table.csv")
    assert read_csv(tmp_path / "table.csv")["start_s"].tolist() == [0.0, 0.5]
