"""A claim: a number or relation that a scenario must show, as its YAML states it. `experiment.claims` judges it."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from simserve.spec import NonNegative, Spec

FORMS = (
    {"value"},
    {"low"},
    {"high"},
    {"low", "high"},
    {"exactly"},
    {"same_as"},
    {"above"},
    {"below"},
    {"trend"},
)
"""The ways to state what is expected; a claim uses one."""


class Operand(Spec):
    """A number of another run of the same replication; what is left out is as in the claim."""

    system: str | None = None
    at: dict[str, Any] = Field(default_factory=dict)
    """Swept values, in place of the claim's own."""
    metric: str | None = None


class Trend(Spec):
    """How the means over replications go as a swept value grows."""

    along: str
    """The swept path."""
    up_to: float | None = None
    """Values above are left out."""
    shape: Literal["rising", "falling", "concave"]
    """`concave`: the gain per unit of the swept value falls from step to step."""


class Condition(Spec):
    """Which replications a claim is about: those in which a metric of its run is at most a bound."""

    metric: str
    at_most: float


def _bare(field: str) -> BeforeValidator:
    """Let a bare name stand for a mapping with that one field."""
    return BeforeValidator(lambda value: {field: value} if isinstance(value, str) else value)


OtherSystem = Annotated[Operand, _bare("system")]
OtherMetric = Annotated[Operand, _bare("metric")]


class Claim(Spec):
    """One line of the ledger: which number, and what it must be.

    Exactly one of `value`, `low` and `high` (either or both), `exactly`, `same_as`, `above`, `below` and `trend` says
    what is expected.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+(/[A-Za-z0-9._-]+)*$")]
    source: str = ""
    statement: str = ""
    system: str
    at: dict[str, Any] = Field(default_factory=dict)
    """The swept point: a value for each swept path that the claim is about. Paths left out match every value."""
    metric: str = ""
    """A column of runs.csv, diagnostics.csv or goodput.csv, or `gpus_for_demand`."""
    over: OtherMetric | None = None
    """What divides it: another metric of the same run, or a number of another run."""
    baseline: OtherSystem | None = None
    """What is taken off first, above and below the line: `over` then gives the share of a gain that is kept."""
    value: float | None = None
    """Holds where it lies in the range of the replications, or within 10 % of their mean."""
    printed_to: NonNegative = 0.0
    """The place of the last digit printed: 12 printed to 1 stands for 11.5 to 12.5."""
    low: float | None = None
    """Holds where the mean over the replications is not below."""
    high: float | None = None
    """Holds where the mean over the replications is not above."""
    exactly: float | None = None
    """Holds where every replication has this value."""
    same_as: OtherSystem | None = None
    """Another run: holds where every request has the same times as there, in every replication."""
    above: OtherSystem | None = None
    """Another run: holds where nine in ten replications are above it."""
    below: OtherSystem | None = None
    """Another run: holds where nine in ten replications are below it."""
    trend: Trend | None = None
    when: Condition | None = None
    """Replications to which the claim applies; all, if left out."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        names = set().union(*FORMS)
        if {name for name in names if getattr(self, name) is not None} not in FORMS:
            raise ValueError("give one of: value; low, high or both; exactly; same_as; above; below; trend")
        if self.printed_to and self.value is None:
            raise ValueError("printed_to goes with value")
        if bool(self.metric) == bool(self.same_as):
            raise ValueError("give a metric, unless the claim is same_as another run")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low ({self.low:g}) is above high ({self.high:g})")
        return self
