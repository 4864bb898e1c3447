"""The kind `cpu_timing`: wall time of decodes on this machine, one by one and in one batch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from simserve.numerics import MINI_13M
from simserve.scenario.forward_pass import NamedConfig
from simserve.scenario.study import Study
from simserve.spec import Count, Name, Spec


class TimedSystem(Spec):
    """What computes."""

    threads: Annotated[Count, Field(le=1024)] = 1
    """Threads of the matrix products."""


class CpuTimingScenario(Study):
    """Decodes timed on the machine that runs the study: the numbers are its own."""

    MEASURES: ClassVar = {"runs": ("one_by_one_s", "batched_s", "speedup", "batched_throughput_tok_per_s")}
    HEADLINES: ClassVar = MEASURES["runs"]
    DRAWN: ClassVar = ("one_by_one_s", "batched_s", "speedup", "batched_throughput_tok_per_s")
    MACHINE_DEPENDENT: ClassVar = MEASURES["runs"]
    VARYING: ClassVar = ("model", "batch_size", "context_tokens", "systems")

    kind: Literal["cpu_timing"] = "cpu_timing"
    model: NamedConfig = MINI_13M
    """With random weights, in float32."""
    batch_size: Annotated[Count, Field(le=4096)] = 64
    """Decodes; usually swept."""
    context_tokens: Count = 64
    """Past tokens of each."""
    repeats: Annotated[Count, Field(le=1000)] = 7
    """Measurements, of which the median counts."""
    systems: Annotated[dict[Name, TimedSystem], Field(min_length=1)]

    @model_validator(mode="after")
    def _within_the_model(self) -> Self:
        if self.context_tokens >= self.model.max_positions:
            raise ValueError(
                f"context_tokens ({self.context_tokens}) must be below the model's {self.model.max_positions} positions"
            )
        return self
