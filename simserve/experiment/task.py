"""What a worker process is asked for, and what it hands back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pandas as pd

from simserve.records import Floats


@dataclass(frozen=True, slots=True)
class Task:
    """What to compute: a system at a point of the sweep, in one replication."""

    system: str
    point: Mapping[str, Any]
    replication: int


@dataclass(frozen=True, slots=True)
class RunResult:
    """What is kept of one run."""

    task: Task
    measures: Mapping[str, float]
    """The columns of the tables with a row for each run."""
    times_digest: str = ""
    """A hash of all times: two runs that agree to the last digit have the same."""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """The large tables, where wanted."""


def digest(times_s: Floats) -> str:
    """Return a hash of times that is the same for equal ones only."""
    return sha256(times_s.tobytes()).hexdigest()


def is_wanted(choice: bool | str, task: Task) -> bool:
    """Whether a table that is written by this choice is written for this task."""
    return task.replication == 0 if choice == "first" else bool(choice)
