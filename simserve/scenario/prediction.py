"""The kind `prediction`: queries through the workers of a prediction service (Clipper, NSDI 2017)."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from simserve import metrics, query_metrics
from simserve.cost import Disturbance, Factor, NoiseSpec, NoNoise, ProfileSpec
from simserve.memory import Clock
from simserve.scenario.study import Choice, Promise, TrafficStudy
from simserve.scheduling import AIMD, ControllerSpec, Exp3, SelectionSpec, Single
from simserve.scheduling.controller import Fixed
from simserve.spec import BareName, Count, Duration, Name, Positive, Spec, Whole
from simserve.workload import ArrivalSpec, QuerySpec

MOST_REPLICAS = 10_000

Speeds = Annotated[tuple[Factor, ...], Field(strict=False, min_length=1, max_length=MOST_REPLICAS)]


class LatencySLO(Promise):
    """What a query is promised."""

    latency_s: Positive
    """Longest time from arrival to answer; for a batch, longest service time."""

    def bound_on(self, latency: str) -> float | None:
        """Return the bound: a query's first token is its answer."""
        return self.latency_s if latency in ("ttft_s", "e2e_s") else None


class ModelSpec(Spec):
    """A model behind workers: how long batches take, and how they are put together."""

    profile: ProfileSpec
    noise: NoiseSpec = NoNoise()
    disturbances: Annotated[tuple[Disturbance, ...], Field(strict=False)] = ()
    controller: ControllerSpec = AIMD()
    """Each replica has its own."""
    max_delay_s: Duration = 0.0
    """How long an idle worker with fewer queries than its limit waits for more, from when it is idle and one waits."""
    replicas: Annotated[Count, Field(le=MOST_REPLICAS)] | Speeds = 1
    """How many workers take from the model's queue, or the speed of each as a multiple of the profile's."""

    @property
    def speeds(self) -> tuple[float, ...]:
        """The speed of each replica."""
        return (1.0,) * self.replicas if isinstance(self.replicas, int) else self.replicas


class _System(Spec):
    """What both kinds of system have."""

    arrivals: ArrivalSpec | None = None
    """When its queries arrive, instead of the workload's arrivals: a load of its own."""


class PredictiveSystem(ModelSpec, _System):
    """One model, its workers, and perhaps a cache of predictions before them."""

    engine: Literal["predictive"] = "predictive"
    cache: Annotated[Clock, BareName] | None = None


class Drift(Spec):
    """A change of the world: from then on a model is right more or less often than before."""

    at: Annotated[float, Field(ge=0, le=1)]
    """Where in the run, as a share of its queries."""
    accuracy: Annotated[float, Field(ge=0, le=1)]


class Member(ModelSpec):
    """One of several models for the same question."""

    accuracy: Annotated[float, Field(ge=0, le=1)]
    """How often it is right; independent of the other models."""
    drift: Drift | None = None


class EnsembleSystem(_System):
    """Several models, and a selection layer that sends each query to one or more of them."""

    engine: Literal["ensemble"] = "ensemble"
    models: Annotated[dict[Name, Member], Field(min_length=1)]
    selection: SelectionSpec = Exp3()
    deadline_s: Positive | None = None
    """When a query is answered with the votes that are in, in seconds from its arrival; else when all are in."""
    num_labels: Annotated[int, Whole, Field(ge=2, le=1_000_000)] = 10
    """How many answers there are; a model that is wrong says any of the others."""

    @model_validator(mode="after")
    def _chosen_are_there(self) -> Self:
        selection = self.selection
        named = [selection.model] if isinstance(selection, Single) else list(getattr(selection, "weights", ()))
        if unknown := [name for name in named if name not in self.models]:
            raise ValueError(f"selection names unknown models {', '.join(unknown)}; there are {', '.join(self.models)}")
        return self


PredictionSystem = Annotated[PredictiveSystem | EnsembleSystem, Field(discriminator="engine")]
"""The systems, told apart by `engine`."""


class QueryOutput(Spec):
    """Which large tables are written: of every replication (`true`), of none (`false`), or of the `first` alone."""

    requests: Choice = "first"
    """requests.csv; a query is a request with one output."""
    batches: Choice = "first"
    """batches.csv"""
    learning: Choice = "first"
    """learning.csv, where models are selected: how accuracy and regret go along the queries."""


class PredictionScenario(TrafficStudy):
    """Queries that go through one or more prediction services."""

    MEASURES: ClassVar = {"runs": metrics.COLUMNS, "diagnostics": query_metrics.DIAGNOSTICS}
    HEADLINES: ClassVar = (
        *("request_throughput_per_s", "slo_attainment", "e2e_mean_s", "e2e_p99_s"),
        *("utilization", "late_share", "late_share_disturbed", "accuracy", "regret"),
    )
    DRAWN: ClassVar = ("request_throughput_per_s", "slo_attainment", "e2e_p99_s", "utilization")
    TABLES: ClassVar = {
        "requests": metrics.REQUEST_COLUMNS,
        "batches": query_metrics.BATCH_COLUMNS,
        "learning": query_metrics.LEARNING_COLUMNS,
    }

    kind: Literal["prediction"] = "prediction"
    workload: QuerySpec
    slo: LatencySLO | None = None
    systems: Annotated[dict[Name, PredictionSystem], Field(min_length=1)]
    output: QueryOutput = QueryOutput()
    settle_batches: Annotated[int, Whole, Field(ge=0)] = 100
    """Batches after the start and after the end of a disturbance in which a controller finds its size: `late_share` and
    the like leave them out."""

    def gpus_of(self, system: str) -> int:
        """Return how many replicas a system's models have together."""
        chosen = self.systems[system]
        models = [chosen] if isinstance(chosen, PredictiveSystem) else list(chosen.models.values())
        return sum(len(model.speeds) for model in models)

    def queries_for(self, system: str) -> QuerySpec:
        """Return the workload as a system sees it.

        Raises:
            ValueError: the system's own arrivals are too few.
        """
        arrivals = self.systems[system].arrivals
        return self.workload if arrivals is None else QuerySpec(**{**dict(self.workload), "arrivals": arrivals})

    @model_validator(mode="after")
    def _arrivals_suffice(self) -> Self:
        for name in self.systems:
            try:
                self.queries_for(name)
            except ValidationError as fault:
                raise ValueError(f"systems.{name}.arrivals: {fault.errors()[0]['ctx']['error']}") from None
        return self

    @model_validator(mode="after")
    def _nobody_is_dropped_from_an_ensemble(self) -> Self:
        ensembles = [name for name, system in self.systems.items() if isinstance(system, EnsembleSystem)]
        if ensembles and self.workload.deadline_s is not None:
            own = f"systems.{ensembles[0]}.deadline_s"
            raise ValueError(f"workload.deadline_s: an ensemble drops no queries; its own is {own}")
        return self

    @model_validator(mode="after")
    def _controllers_have_a_target(self) -> Self:
        if self.slo is not None:
            return self
        for name, system in self.systems.items():
            models = {name: system} if isinstance(system, PredictiveSystem) else system.models
            for model in models.values():
                if not isinstance(model.controller, Fixed):
                    raise ValueError(f"systems.{name}: a controller that learns aims at slo.latency_s: give slo")
        return self
