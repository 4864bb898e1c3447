"""CSV tables: the same table is always the same bytes, and every float comes back as it was."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pandas as pd

if TYPE_CHECKING:
    Column = pd.Series[Any]

CHUNK_ROWS = 16_384
"""Rows put into text at a time: enough to be fast, few enough for tables of millions of rows."""

SPECIAL = re.compile(r'[,"\n\r]').search

TEXT_COLUMNS = ("system", "metric", "unit", "status", "id", "source", "statement", "expected", "rule", "model")
"""Columns that are text even where every entry looks like a number."""


def write_csv(table: pd.DataFrame, path: Path) -> None:
    r"""Write the columns of `table`, without its index, to `path`.

    Floats have the fewest digits that give the same float again, whole numbers no point, missing values nothing at all,
    booleans are `true` and `false`; lines end in `\n`.

    Raises:
        OSError: the file cannot be written.
    """
    # Four times as fast as `DataFrame.to_csv`: orjson finds the digits of a whole column at once.
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(",".join(_lone([_quoted(str(name)) for name in table.columns])) + "\n")
        for start in range(0, len(table), CHUNK_ROWS):
            chunk = table.iloc[start : start + CHUNK_ROWS]
            cells = [_cells(column) for _, column in chunk.items()]
            rows = zip(*cells, strict=True) if len(cells) > 1 else map(_lone, zip(*cells, strict=True))
            file.write("\n".join(map(",".join, rows)) + "\n")


def read_csv(path: Path) -> pd.DataFrame:
    """Read what `write_csv` wrote; names are text even if they are `NA` or `007`."""
    with path.open(encoding="utf-8") as file:  # pandas would expand a `~` in the path
        table = pd.read_csv(
            file,
            dtype=dict.fromkeys(TEXT_COLUMNS, str),
            keep_default_na=False,
            na_values=[""],
            low_memory=False,
        )
    text = [name for name in TEXT_COLUMNS if name in table]
    table[text] = table[text].fillna("")
    return table


def _cells(column: "Column") -> Iterable[str]:
    """Return each entry as it stands in the file."""
    dtype = column.dtype
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
        return map(_cell, column.tolist())
    if dtype.kind == "b":
        return map(("false", "true").__getitem__, column.tolist())
    if dtype.kind != "f":
        return map(str, column.tolist())
    values = np.ascontiguousarray(column)
    if np.isinf(values).any():  # which orjson does not tell from NaN
        return ["" if value != value else repr(value) for value in values.tolist()]
    cells = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode().split(",")
    return ["" if cell == "null" else cell for cell in cells] if column.hasnans else cells


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float):
        # NumPy's floats are floats whose own repr names their type.
        return "" if value != value else float.__repr__(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    if SPECIAL(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _lone(row: Iterable[str]) -> Iterable[str]:
    """Quote an empty cell that is a line of its own; readers skip empty lines."""
    cells = list(row)
    return cells if cells != [""] else ['""']
