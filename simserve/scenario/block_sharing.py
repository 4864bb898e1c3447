"""The kind `block_sharing`: several outputs of one prompt in blocks of memory. No time passes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simserve.scenario.study import Study
from simserve.spec import Count, Name, Spec
from simserve.workload.lengths import LengthSpec

Samples = Annotated[Count, Field(le=1024)]


class Decoding(Spec):
    """How the outputs of a prompt come about."""

    resampled_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the outputs that in each step go on from one of them all, drawn at random, instead of from themselves.
    None in parallel sampling; a model of beam search otherwise."""


class BlockSharingScenario(Study):
    """Blocks that outputs of the same prompt have in common."""

    MEASURES: ClassVar = {
        "runs": ("saved_share", "blocks_per_request", "blocks_without_sharing", "copies_per_request"),
    }
    HEADLINES: ClassVar = MEASURES["runs"]
    DRAWN: ClassVar = ("saved_share", "copies_per_request")
    VARYING: ClassVar = ("num_requests", "samples", "block_tokens", "prompt_tokens", "output_tokens", "systems")

    kind: Literal["block_sharing"] = "block_sharing"
    num_requests: Count
    samples: Samples = 2
    """Outputs of each request, or beams; all are as long as the request's output."""
    block_tokens: Count = 16
    prompt_tokens: LengthSpec
    output_tokens: LengthSpec
    systems: Annotated[dict[Name, Decoding], Field(min_length=1)]
