"""The kind `latency_profile`: how long batches take by size, and the largest within a target. Nothing runs."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simserve.cost import ProfileSpec
from simserve.cost.profile import LARGEST_BATCH
from simserve.scenario.study import Study
from simserve.spec import Count, Name, Positive, Spec


class ProfiledSystem(Spec):
    """A model by its latency profile."""

    profile: ProfileSpec


class LatencyProfileScenario(Study):
    """Latency profiles side by side."""

    MEASURES: ClassVar = {
        "runs": (
            *("latency_s", "throughput_per_s", "largest_batch", "largest_batch_latency_s"),
            *("largest_batch_throughput_per_s", "unbatched_throughput_per_s"),
        )
    }
    HEADLINES: ClassVar = MEASURES["runs"]
    DRAWN: ClassVar = ("latency_s", "throughput_per_s")
    VARYING: ClassVar = ("target_s", "batch_size", "systems")

    kind: Literal["latency_profile"] = "latency_profile"
    target_s: Positive
    """What a batch may take: `largest_batch` is the largest that does."""
    batch_size: Annotated[Count, Field(le=LARGEST_BATCH)] = 1
    """The batch that `latency_s` and `throughput_per_s` are of; usually swept."""
    systems: Annotated[dict[Name, ProfiledSystem], Field(min_length=1)]
