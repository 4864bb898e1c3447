"""What every part of a scenario is made of: a frozen, strictly checked value with named fields.

A *spec* is the YAML of one part and, where the part has no state, the part itself (a length distribution samples, a
cost model prices). Parts with state (memory, queues, engines) are built from their spec for each run.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
)


class Spec(BaseModel):
    """A frozen mapping of named fields: unknown keys, wrong types, NaN and infinities are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _whole(value: Any) -> Any:
    """Accept `1e3` where a count is wanted: YAML reads it as a float, and it is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bare_name(value: Any) -> Any:
    """`order: fcfs` is short for `order: {kind: fcfs}`."""
    return {"kind": value} if isinstance(value, str) else value


def _from_scenario_folder(path: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    return str(Path(folder, path)) if path and folder else path


Whole = BeforeValidator(_whole)
BareName = BeforeValidator(_bare_name)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
"""Letters, digits, `-` and `_`."""

Count = Annotated[int, Whole, Field(ge=1)]
"""A whole number of at least 1."""

Positive = Annotated[float, Field(gt=0)]
"""A finite number above 0."""

NonNegative = Annotated[float, Field(ge=0)]
"""A finite number of at least 0."""

Rate = Annotated[float, Field(ge=1e-6, le=1e9)]
"""Something per second, within what time can be added up in."""

Duration = Annotated[float, Field(ge=0, le=1e9)]
"""Seconds: none, or up to thirty years."""

Fraction = Annotated[float, Field(gt=0, le=1)]
"""A share: above 0, at most 1."""


FilePath = Annotated[str, AfterValidator(_from_scenario_folder)]
"""A file; relative paths start at the scenario's folder."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the known name closest to `name`, or a full stop where none is close."""
    names = list(known)
    longer = [other for other in names if len(name) > 2 and other.startswith(name)]  # h100 is h100-sxm more than h200
    close = longer or get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."
