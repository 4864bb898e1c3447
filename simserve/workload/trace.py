"""A trace of prompts as lists of block hashes, in the format of Mooncake (Qin et al., FAST 2025).

Each request has the ids of the blocks of its prompt; equal ids mean equal text up to the end of the block. The last
block may be filled in part. Outputs have no ids, so that what the next turn of a conversation repeats of them is new.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import orjson
import pandas as pd
from pydantic import model_validator

from simserve.content import Content
from simserve.spec import Count, FilePath
from simserve.workload.lengths import MOST_TOKENS
from simserve.workload.prefixes import Floats, Ints, Prefixes, Schedule, Texts, shortened
from simserve.workload.streams import Streams

COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The requests of a trace, as columns."""

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    content: tuple[Content, ...]

    def __len__(self) -> int:
        return len(self.arrival_s)


class TracePrefixes(Prefixes):
    """Prompts of a trace, in its order. Arrivals and outputs are those of the trace where the workload has none."""

    kind: Literal["trace"] = "trace"
    path: FilePath
    """A JSONL or CSV file with `timestamp` (milliseconds), `input_length`, `output_length` and `hash_ids`, which a CSV
    file writes as a list in brackets."""
    block_tokens: Count = 512
    """Tokens of a block of the trace."""

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        self.trace()
        return self

    def trace(self) -> Trace:
        """Return the trace, read again when the file has changed.

        Raises:
            ValueError: it cannot be read, or does not hold what it should.
        """
        try:
            changed_ns = Path(self.path).stat().st_mtime_ns
        except OSError as fault:
            raise ValueError(f"cannot read {self.path!r}: {fault.strerror}") from None
        return _read(self.path, self.block_tokens, changed_ns)

    def write(
        self, schedule: Schedule, new_tokens: Ints, output_tokens: Ints, max_total_tokens: int | None, streams: Streams
    ) -> Texts:
        """Return the prompts as they are; all of a prompt is new only to those who do not know its blocks."""
        content = self.trace().content[: len(new_tokens)]
        return Texts(new_tokens, shortened(output_tokens, new_tokens, max_total_tokens), content)


@lru_cache(maxsize=4)
def _read(path: str, block_tokens: int, changed_ns: int) -> Trace:
    try:
        rows = _csv_rows(path) if path.endswith(".csv") else _jsonl_rows(path)
    except (OSError, ValueError) as fault:
        raise ValueError(f"cannot read {path!r} as a trace: {fault}") from None
    if not rows:
        raise ValueError(f"{path!r} holds no requests")
    shared: dict[tuple[int, int], tuple[int, int]] = {}
    """Segments that have come before: the same object again, for a trace repeats most of them."""
    content = tuple(
        tuple(shared.setdefault(segment, segment) for segment in _segments(f"{path!r}, request {i}", row, block_tokens))
        for i, row in enumerate(rows)
    )
    arrival_s = np.array([row["timestamp"] for row in rows], dtype=np.float64) / 1000
    if np.any(np.diff(arrival_s) < 0) or not np.all(np.isfinite(arrival_s)):
        raise ValueError(f"{path!r} must be in order of timestamp")
    prompt, output = (np.array([row[f"{name}_length"] for row in rows], dtype=np.int64) for name in ("input", "output"))
    return Trace(arrival_s - arrival_s[0], prompt, output, content)


def _jsonl_rows(path: str) -> list[dict[str, Any]]:
    with open(path, "rb") as lines:
        return [orjson.loads(line) for line in lines if line.strip()]


def _csv_rows(path: str) -> list[dict[str, Any]]:
    table = pd.read_csv(path, index_col=False)
    if "hash_ids" in table:
        table["hash_ids"] = [orjson.loads(str(ids)) for ids in table["hash_ids"]]
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _segments(place: str, row: dict[str, Any], block_tokens: int) -> Iterable[tuple[int, int]]:
    """Return what a row says; raise ValueError where it contradicts itself."""
    if missing := [name for name in COLUMNS if name not in row]:
        raise ValueError(f"{place} has no {', '.join(missing)}")
    for name in ("input_length", "output_length"):
        if not isinstance(row[name], int) or not 1 <= row[name] <= MOST_TOKENS:
            raise ValueError(f"{place}: {name} must be a whole number from 1 to {MOST_TOKENS:,}; got {row[name]!r}")
    tokens, ids = row["input_length"], row["hash_ids"]
    if len(ids) != -(-tokens // block_tokens):
        raise ValueError(f"{place} has {len(ids)} hash_ids, but {tokens} tokens in blocks of {block_tokens}")
    if not all(isinstance(block, int) and block >= 0 for block in ids):
        raise ValueError(f"{place}: hash_ids must be whole numbers of at least 0")
    return ((block, min(block_tokens, tokens - i * block_tokens)) for i, block in enumerate(ids))
