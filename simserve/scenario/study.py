"""What every kind of study has: systems to compare, swept values, replications, a figure, claims."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from simserve.scenario.claims import Claim
from simserve.spec import Count, Fraction, Name, Positive, Spec, Whole
from simserve.workload import Traffic

DottedPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+(\.([A-Za-z0-9_-]+|\*))*$")]
"""A place in the scenario: `workload.arrivals.rate_per_s`; `systems.*` is every system."""


class Search(Spec):
    """Find the highest value of `parameter` at which a system still attains the SLO."""

    metric: Literal["goodput"] = "goodput"
    parameter: DottedPath = "workload.arrivals.rate_per_s"
    low: Positive
    high: Positive
    rel_tol: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """The search ends when the highest rate that attains and the lowest that does not are this close."""
    demand_per_s: Positive | None = None
    """A rate to be served by as many GPUs as it takes: adds `gpus_for_demand` to the summary."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        return self


Choice = bool | Literal["first"]
"""Whether a large table is written: of every replication (`true`), of none (`false`), or of the `first` alone."""


class Curves(Spec):
    """Columns of a large table against each other, a curve for each system, of the first replication."""

    table: str
    """Its name without `.csv`: `batches`, `iterations`, `requests`, `learning`."""
    x: str
    y: str
    reference: str | None = None
    """Another column, drawn once for each system as a thin dashed line: a ceiling, a best case."""


class Figure(Spec):
    """What the figure of a sweep or a single point shows; a search draws its goodput."""

    LATENCIES: ClassVar = ("ttft_s", "tpot_s", "e2e_s", "itl_max_s")
    """What can be in `distributions`."""

    metrics: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Measures, one panel each, over the swept path; the main ones of the kind of study if left out."""
    lines: dict[str, float] = Field(default_factory=dict)
    """Bounds to draw across the panels of measures."""
    against: str | None = None
    """A column of runs.csv that `metrics` are shown against, instead of the swept path."""
    distributions: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Latencies of requests.csv, a panel with their distribution each."""
    curves: Annotated[tuple[Curves, ...], Field(strict=False)] = ()
    """Columns of large tables, a panel each."""
    gantt: bool = False
    """A chart for each system of who runs in which iteration, from schedule.csv, and nothing else."""

    @model_validator(mode="after")
    def _something_to_show(self) -> Self:
        if self.metrics == () and not (self.distributions or self.curves or self.gantt):
            raise ValueError("give at least one of metrics, distributions, curves and gantt")
        if self.metrics == () and self.against:
            raise ValueError("against needs metrics that are shown against it")
        if self.gantt and (self.metrics or self.lines or self.distributions or self.curves):
            raise ValueError("gantt draws charts and nothing else: leave the other keys out, or gantt")
        return self


class Study(Spec):
    """A question with an answer in numbers: some systems, each measured at every point of a sweep."""

    MEASURES: ClassVar[Mapping[str, tuple[str, ...]]]
    """The columns of the tables that have a row for each run, by table."""
    HEADLINES: ClassVar[tuple[str, ...]]
    """The measures to look at first."""
    SUMMARISED: ClassVar[tuple[str, ...]] = ()
    """Those in the summary of the page, where that are others."""
    DRAWN: ClassVar[tuple[str, ...]]
    """The measures that a figure shows which names none."""
    TABLES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The columns of the large tables, by table."""
    MACHINE_DEPENDENT: ClassVar[tuple[str, ...]] = ()
    """Measures of wall time: another machine, or another run, gives others."""
    VARYING: ClassVar[tuple[str, ...]] = ("systems",)
    """The top-level keys whose values may differ from point to point; the others are about the study as a whole."""

    kind: str
    name: Name
    title: str = ""
    source: str = ""
    """Where the question comes from: the section of a lecture or a paper."""
    systems: Mapping[str, Any]
    seed: Annotated[int, Whole, Field(ge=0)] = 1
    replications: Count = 1
    sweep: dict[DottedPath, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]] = Field(default_factory=dict)
    """Values to try for each dotted path; several paths make a grid."""
    figure: Figure = Figure()
    claims: Annotated[tuple[Claim, ...], Field(strict=False)] = ()

    @property
    def searched(self) -> Search | None:
        """What is searched in place of single runs, if anything."""
        return None

    @property
    def drawn(self) -> Figure:
        """The figure with its measures filled in."""
        figure = self.figure
        return figure if figure.metrics is not None else figure.model_copy(update={"metrics": self.DRAWN})

    def gpus_of(self, system: str) -> int:
        """Return how many GPUs a system is made of."""
        return 1

    @property
    def measures(self) -> tuple[str, ...]:
        """All measures of a run."""
        return tuple(name for columns in self.MEASURES.values() for name in columns)


class Promise(Spec):
    """What users are promised, and the share of their requests that must get it."""

    attainment: Fraction = 0.90
    """Share of the requests offered that must keep the bounds for a rate to count as served."""

    def bound_on(self, latency: str) -> float | None:
        """Return the bound on a latency such as `ttft_s`, None where there is none."""
        bound: float | None = getattr(self, latency, None)
        return bound


class TrafficStudy(Study):
    """A study that sends requests through its systems."""

    VARYING: ClassVar[tuple[str, ...]] = ("workload", "slo", "systems")

    workload: Traffic
    slo: Promise | None = None
    search: Search | None = None
    output: Spec
    """Which of `TABLES` are written."""

    @property
    def searched(self) -> Search | None:
        """The search for the highest rate that attains the SLO."""
        return self.search

    @model_validator(mode="after")
    def _search_needs_an_slo(self) -> Self:
        if self.search and self.slo is None:
            raise ValueError("search looks for the highest rate that attains the SLO: give slo")
        return self
