"""A claim: a number or relation that a scenario must show, as its YAML states it. `experiment.claims` judges it."""

from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from simserve.spec import NonNegative, Spec

FORMS = (("value",), ("low", "high"), ("exactly",), ("same_as",))
"""The ways to state what is expected; a claim uses one."""


class Claim(Spec):
    """One line of the ledger: which number, and what it must be.

    Exactly one of `value`, `low` with `high`, `exactly` and `same_as` says what is expected.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+(/[A-Za-z0-9._-]+)*$")]
    source: str = ""
    statement: str = ""
    system: str
    at: dict[str, Any] = Field(default_factory=dict)
    """The swept point: a value for each swept path that the claim is about. Paths left out match every value."""
    metric: str = ""
    """A column of runs.csv, diagnostics.csv or goodput.csv, or `gpus_for_demand`."""
    over: str = ""
    """Another column that divides the first, run by run."""
    value: float | None = None
    """Holds where it lies in the range of the replications, or within 10 % of their mean."""
    printed_to: NonNegative = 0.0
    """The place of the last digit printed: 12 printed to 1 stands for 11.5 to 12.5."""
    low: float | None = None
    """With `high`: holds where the mean over the replications lies between the two."""
    high: float | None = None
    exactly: float | None = None
    """Holds where every replication has this value."""
    same_as: str | None = None
    """Another system: holds where every request has the same times as there, in every replication."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [name for form in FORMS for name in form if getattr(self, name) is not None]
        if tuple(given) not in FORMS:
            raise ValueError("give one of: value; low and high; exactly; same_as")
        if bool(self.metric) == bool(self.same_as):
            raise ValueError("give a metric, unless the claim is same_as another system")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low ({self.low:g}) is above high ({self.high:g})")
        return self
