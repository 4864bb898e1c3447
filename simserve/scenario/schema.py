"""The schema of a scenario: what may stand in its YAML, with defaults and meaning. Values, and checks between values.

A scenario is one *kind* of study; `KINDS` names them. The parts of a system are told apart by their own `kind` and live
with what they configure: lengths in `workload`, memory managers in `memory`, and so on.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    model_validator,
)

from simserve.catalog import PRESET_BY_NAME, Hardware, NamedModel
from simserve.cost import CostSpec, Roofline
from simserve.memory import MemorySpec, PreemptionSpec, Recompute, Reservation, Unlimited
from simserve.scenario.claims import Claim
from simserve.scenario.errors import among
from simserve.scheduling import FCFS, Chunked, Mixed, OrderSpec, PrefillSpec
from simserve.spec import Count, Fraction, Name, Positive, Spec, Whole
from simserve.workload import WorkloadSpec

DottedPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]
"""A place in the scenario: `workload.arrivals.rate_per_s`."""


class SLO(Spec):
    """What a user is promised: bounds on latency, and the share of requests that must keep all of them."""

    ttft_s: Positive | None = None
    """Longest time to first token."""
    tpot_s: Positive | None = None
    """Longest time per output token after the first."""
    attainment: Fraction = 0.90
    """Share of the requests offered that must keep the bounds for a rate to count as served."""

    @model_validator(mode="after")
    def _some_bound(self) -> Self:
        if self.ttft_s is None and self.tpot_s is None:
            raise ValueError("give at least one of ttft_s and tpot_s")
        return self


def _known_preset(name: str) -> str:
    if name not in PRESET_BY_NAME:
        raise ValueError(f"unknown preset {name!r}{among(name, PRESET_BY_NAME, 'There are')}")
    return name


class ContinuousSystem(Spec):
    """Iteration-level scheduling (Orca): requests come and go at every iteration."""

    engine: Literal["continuous"] = "continuous"
    preset: Annotated[str, AfterValidator(_known_preset)] | None = None
    """A preset of the catalog, whose settings hold where none are given."""
    max_batch_size: Count = 256
    order: OrderSpec = FCFS()
    memory: MemorySpec = Reservation()
    preemption: PreemptionSpec = Recompute()
    prefill: PrefillSpec = Mixed()
    cost: CostSpec = Roofline()

    @model_validator(mode="wrap")
    @classmethod
    def _from_preset(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Take what is not given from the preset; it stays not given, so that a sweep can put another preset there."""
        name = given.get("preset") if isinstance(given, dict) else None
        if not isinstance(name, str) or name not in PRESET_BY_NAME:
            return validate(given)
        system = validate(PRESET_BY_NAME[name].with_changes(given))
        object.__setattr__(system, "__pydantic_fields_set__", set(given))
        return system

    @model_validator(mode="after")
    def _decodes_fit_the_budget(self) -> Self:
        if isinstance(self.prefill, Chunked) and self.prefill.budget_tokens < self.max_batch_size:
            raise ValueError(
                f"prefill.budget_tokens ({self.prefill.budget_tokens}) is below max_batch_size "
                f"({self.max_batch_size}): decodes alone could exceed it"
            )
        return self


class RequestLevelSystem(Spec):
    """Request-level (static) batching: a batch starts together and ends together."""

    engine: Literal["request_level"] = "request_level"
    max_batch_size: Count = 128
    order: OrderSpec = FCFS()
    memory: MemorySpec = Unlimited()
    cost: CostSpec = Roofline()


def _with_engine(system: Any) -> Any:
    """Presets are continuous systems: with one, the engine need not be given."""
    return {"engine": "continuous", **system} if isinstance(system, dict) and "preset" in system else system


_Engines = Annotated[ContinuousSystem | RequestLevelSystem, Field(discriminator="engine")]
SystemSpec = Annotated[_Engines, BeforeValidator(_with_engine)]
"""The systems, told apart by `engine`."""


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


class Output(Spec):
    """Which large tables are written: of every replication (`true`), of none (`false`), or of the `first` alone."""

    requests: bool | Literal["first"] = "first"
    """requests.csv"""
    iterations: bool | Literal["first"] = False
    """iterations.csv"""
    preemptions: bool | Literal["first"] = False
    """preemptions.csv"""


class Figure(Spec):
    """What the figure of a sweep or a single point shows; a search draws its goodput."""

    LATENCIES: ClassVar = ("ttft_s", "tpot_s", "e2e_s", "itl_max_s")
    """What can be in `distributions`."""

    metrics: Annotated[tuple[str, ...], Field(strict=False)] = (
        "throughput_tok_per_s",
        "slo_attainment",
        "ttft_p50_s",
        "itl_p99_s",
    )
    """Columns of runs.csv, one panel each, over the swept path."""
    against: str | None = None
    """A column of runs.csv that `metrics` are shown against, instead of the swept path."""
    distributions: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Latencies of requests.csv, a panel with their distribution each."""

    @model_validator(mode="after")
    def _something_to_show(self) -> Self:
        if not self.metrics and not self.distributions:
            raise ValueError("give at least one of metrics and distributions")
        if not self.metrics and self.against:
            raise ValueError("against needs metrics that are shown against it")
        return self


class ServingScenario(Spec):
    """A workload that goes through one or more systems on a GPU."""

    kind: Literal["serving"] = "serving"
    name: Name
    title: str = ""
    source: str = ""
    """Where the question comes from: the section of a lecture or a paper."""
    model: NamedModel
    hardware: Hardware = Hardware()
    workload: WorkloadSpec
    slo: SLO | None = None
    systems: Annotated[dict[Name, SystemSpec], Field(min_length=1)]
    seed: Annotated[int, Whole, Field(ge=0)] = 1
    replications: Count = 1
    search: Search | None = None
    sweep: dict[DottedPath, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]] = Field(default_factory=dict)
    """Values to try for each dotted path; several paths make a grid."""
    output: Output = Output()
    figure: Figure = Figure()
    claims: Annotated[tuple[Claim, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        hardware, need = self.hardware, self.model.weight_bytes
        if (missing := -hardware.usable_kv_bytes(self.model)) >= 0:
            raise ValueError(
                f"{self.model.name} does not fit on {hardware.gpu.name}: its weights take {need / 1e9:.2f} GB, "
                f"{missing / 1e9:.2f} GB more than memory_fraction {hardware.memory_fraction:g} "
                f"of {hardware.gpu.memory_bytes / 1e9:g} GB"
            )
        return self

    @model_validator(mode="after")
    def _search_needs_an_slo(self) -> Self:
        if self.search and self.slo is None:
            raise ValueError("search looks for the highest rate that attains the SLO: give slo")
        return self


Scenario = ServingScenario
KINDS: dict[str, type[ServingScenario]] = {"serving": ServingScenario}
"""The kinds of study, by the scenario's top-level `kind`."""
