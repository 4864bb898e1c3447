"""Columns of the CSV files that scenarios name."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simserve.spec import nearest


@lru_cache(maxsize=32)
def _column_of(path: str, column: str, changed_ns: int) -> NDArray[np.float64]:
    try:
        table = pd.read_csv(path, index_col=False)
    except (OSError, ValueError) as fault:
        raise ValueError(f"cannot read {path!r} as CSV: {fault}") from None
    if column not in table:
        hint = nearest(str(column), table.columns)
        raise ValueError(f"{path!r} has no column {column!r}{hint} It has: {', '.join(table.columns)}")
    return pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float64)


def read_column(path: str, column: str) -> NDArray[np.float64]:
    """Return a column of numbers of a CSV file with a header, NaN for what is none; read again when the file changed.

    Raises:
        ValueError: the file cannot be read, or has no such column.
    """
    try:
        changed_ns = Path(path).stat().st_mtime_ns
    except OSError as fault:
        raise ValueError(f"cannot read {path!r} as CSV: {fault.strerror}") from None
    return _column_of(path, column, changed_ns)
