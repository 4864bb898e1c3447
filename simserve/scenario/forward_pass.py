"""The kinds `padding` and `selective_batching`: one step of a real, small model, laid out in several ways."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from simserve.numerics import CONFIG_BY_NAME, MINI, LlamaConfig
from simserve.scenario.study import Study
from simserve.spec import Count, Name, Spec, Whole, nearest


def _by_name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in CONFIG_BY_NAME:
        raise ValueError(
            f"unknown model {value!r}{nearest(value, CONFIG_BY_NAME)} There are: {', '.join(CONFIG_BY_NAME)}"
        )
    return CONFIG_BY_NAME[value]


NamedConfig = Annotated[LlamaConfig, BeforeValidator(_by_name)]
"""A small model by its name, or spelled out."""


def check_fits(model: LlamaConfig, tokens: int) -> None:
    """Raise ValueError for a request longer than the model has positions."""
    if tokens > model.max_positions:
        raise ValueError(f"a request of {tokens} tokens is longer than the model's {model.max_positions} positions")


class Shape(Spec):
    """What one request computes in the step."""

    new: Count = 1
    """Tokens to compute: a prompt, a piece of one, or 1 for a decode."""
    past: Annotated[int, Whole, Field(ge=0)] = 0
    """Tokens whose KV is there already."""


class Layout(Spec):
    """How the requests of the step are put into tensors."""

    layout: Literal["ragged", "padded", "one_by_one"]
    """`ragged`: all tokens end to end, attention by request (selective batching); `padded`: a rectangle, short requests
    filled up; `one_by_one`: a forward pass for each request."""
    block_tokens: Annotated[Count, Field(le=65_536)] | None = None
    """Size of the pages of the KV cache; contiguous if left out."""


class ForwardPassStudy(Study):
    """One step with the same requests under several layouts."""

    VARYING: ClassVar = ("model", "requests", "precision", "systems")

    model: NamedConfig = MINI
    """With random weights."""
    precision: Literal["float32", "float64"] = "float32"
    requests: Annotated[tuple[Shape, ...], Field(strict=False, min_length=1)]
    systems: Annotated[dict[Name, Layout], Field(min_length=1)]

    @model_validator(mode="after")
    def _within_the_model(self) -> Self:
        check_fits(self.model, max(shape.new + shape.past for shape in self.requests))
        return self


class PaddingScenario(ForwardPassStudy):
    """What padding wastes, counted in the forward pass."""

    MEASURES: ClassVar = {
        "runs": (
            *("computed_tokens", "useful_tokens", "wasted_tokens_share"),
            *("computed_pairs", "useful_pairs", "pairs_ratio"),
        )
    }
    HEADLINES: ClassVar = MEASURES["runs"]
    DRAWN: ClassVar = ("computed_tokens", "computed_pairs")

    kind: Literal["padding"] = "padding"


class SelectiveBatchingScenario(ForwardPassStudy):
    """What batching saves and what it leaves as it is: bytes of weights, and logits."""

    MEASURES: ClassVar = {
        "runs": (
            *("passes", "flop", "weight_bytes", "linear_bytes", "embedding_bytes", "head_bytes", "kv_bytes"),
            *("logits_difference", "tokens_differing", "ledger_mismatches"),
        )
    }
    HEADLINES: ClassVar = ("passes", "flop", "weight_bytes", "kv_bytes", "logits_difference", "tokens_differing")
    DRAWN: ClassVar = ("weight_bytes", "flop", "kv_bytes", "logits_difference")

    kind: Literal["selective_batching"] = "selective_batching"
