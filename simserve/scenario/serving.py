"""The kind `serving`: a workload of text requests through engines on a GPU. Its schema, with defaults and meaning.

The parts of a system are told apart by their own `kind` and live with what they configure: lengths in `workload`,
memory managers in `memory`, and so on.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ModelWrapValidatorHandler, model_validator

from simserve import diagnostics, metrics
from simserve.catalog import PRESET_BY_NAME, Hardware, NamedModel
from simserve.cost import CostSpec, Roofline
from simserve.memory import MemorySpec, PreemptionSpec, PrefixSpec, Recompute, Reservation, Unlimited
from simserve.scenario.errors import among
from simserve.scenario.study import Choice, Promise, TrafficStudy
from simserve.scheduling import FCFS, Chunked, Mixed, OrderSpec, PrefillSpec
from simserve.spec import Count, Name, Positive, Spec
from simserve.workload import WorkloadSpec


class SLO(Promise):
    """What a user is promised: bounds on latency, and the share of requests that must keep all of them."""

    ttft_s: Positive | None = None
    """Longest time to first token."""
    tpot_s: Positive | None = None
    """Longest time per output token after the first."""

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
    prefix: PrefixSpec | None = None
    """A cache in which requests find the KV of what others have computed; needs paged memory."""
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


class Output(Spec):
    """Which large tables are written: of every replication (`true`), of none (`false`), or of the `first` alone."""

    requests: Choice = "first"
    """requests.csv"""
    iterations: Choice = False
    """iterations.csv"""
    preemptions: Choice = False
    """preemptions.csv"""


class ServingScenario(TrafficStudy):
    """A workload that goes through one or more systems on a GPU."""

    MEASURES: ClassVar = {"runs": metrics.COLUMNS, "diagnostics": diagnostics.COLUMNS}
    HEADLINES: ClassVar = (
        *("throughput_tok_per_s", "slo_attainment"),
        *("ttft_p50_s", "ttft_p99_s", "itl_p99_s", "batch_mean"),
    )
    SUMMARISED: ClassVar = (
        *("throughput_tok_per_s", "slo_attainment", "ttft_p50_s", "ttft_p99_s"),
        *("tpot_p50_s", "itl_p99_s", "itl_max_s", "batch_mean"),
    )
    DRAWN: ClassVar = ("throughput_tok_per_s", "slo_attainment", "ttft_p50_s", "itl_p99_s")
    TABLES: ClassVar = {
        "requests": metrics.REQUEST_COLUMNS,
        "iterations": metrics.ITERATION_COLUMNS,
        "preemptions": metrics.PREEMPTION_COLUMNS,
    }
    VARYING: ClassVar = ("model", "hardware", "workload", "slo", "systems")

    kind: Literal["serving"] = "serving"
    model: NamedModel
    hardware: Hardware = Hardware()
    workload: WorkloadSpec
    slo: SLO | None = None
    systems: Annotated[dict[Name, SystemSpec], Field(min_length=1)]
    output: Output = Output()

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        self.hardware.check_fits(self.model)
        return self
