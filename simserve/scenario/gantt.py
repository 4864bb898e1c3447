"""The kind `gantt`: who runs in which iteration, generated on a real, small model and simulated."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from simserve.numerics import MINI
from simserve.scenario.forward_pass import NamedConfig, check_fits
from simserve.scenario.study import Figure, Study
from simserve.spec import Count, Name, Spec, Whole

SCHEDULE_COLUMNS = ("request_id", "iteration", "phase", "new_tokens")


class Arrival(Spec):
    """A request; iterations take one second."""

    arrival: Annotated[int, Whole, Field(ge=0, le=100_000)] = 0
    """The iteration at whose start it is there."""
    prompt_tokens: Count = 4
    output_tokens: Count


class Schedule(Spec):
    """A way to schedule generation."""

    schedule: Literal["continuous", "static", "sequential"]
    max_batch_size: Count = 1
    chart: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What is expected: a row for each request, a character for each iteration. `P` prefill, `D` decode, `-` an idle
    seat, `.` waiting, blank before arrival."""

    @model_validator(mode="after")
    def _sequential_is_alone(self) -> Self:
        if self.schedule == "sequential" and self.max_batch_size > 1:
            raise ValueError("sequential serves one request at a time: max_batch_size 1, or static or continuous")
        return self


class GanttScenario(Study):
    """Charts of iterations."""

    MEASURES: ClassVar = {
        "runs": ("iterations", "idle_seats", "chart_differences", "simulator_differences", "tokens_differing")
    }
    HEADLINES: ClassVar = MEASURES["runs"]
    DRAWN: ClassVar = MEASURES["runs"]
    TABLES: ClassVar = {"schedule": SCHEDULE_COLUMNS}
    VARYING: ClassVar = ("model", "precision", "requests", "systems")

    @property
    def drawn(self) -> Figure:
        """The charts, unless other panels are asked for."""
        return super().drawn if self.figure.model_fields_set else Figure(gantt=True)

    kind: Literal["gantt"] = "gantt"
    model: NamedConfig = MINI
    """With random weights."""
    precision: Literal["float32", "float64"] = "float64"
    requests: Annotated[tuple[Arrival, ...], Field(strict=False, min_length=1)]
    systems: Annotated[dict[Name, Schedule], Field(min_length=1)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        arrivals = [request.arrival for request in self.requests]
        if arrivals != sorted(arrivals):
            raise ValueError("requests must be in order of arrival")
        check_fits(self.model, max(request.prompt_tokens + request.output_tokens for request in self.requests))
        for name, system in self.systems.items():
            if system.chart and len(system.chart) != len(self.requests):
                raise ValueError(
                    f"systems.{name}.chart: has {len(system.chart)} rows for {len(self.requests)} requests"
                )
        return self
