"""The architecture of a Llama-style decoder, and the two sizes that ship with simserve."""

from typing import Self

from pydantic import model_validator

from simserve.spec import Count, Positive, Spec


class Llama3Scaling(Spec):
    """Rotary frequencies stretched to a longer context, as Llama 3.1 does (`rope_type: llama3` in its config.json)."""

    factor: Positive
    """By how much the slow frequencies are slowed down."""
    low_freq_factor: Positive
    """Slow frequencies turn less than so often within `original_max_positions`."""
    high_freq_factor: Positive
    """Fast frequencies, which stay as they are, turn more than so often within it; those between are blended."""
    original_max_positions: Count

    @model_validator(mode="after")
    def _low_is_lower(self) -> Self:
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor ({self.low_freq_factor}) must be below high_freq_factor ({self.high_freq_factor})"
            )
        return self


class LlamaConfig(Spec):
    """Grouped-query attention, SwiGLU, RMSNorm, rotary positions; sizes are named as in `simserve.catalog.Model`."""

    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    """Width of the MLP between its gate/up and down projections."""
    vocab: Count
    tied_embeddings: bool = False
    """Whether the LM head is the embedding table itself."""
    max_positions: Count = 2048
    """Longest sequence, prompt and output together."""
    norm_eps: Positive = 1e-5
    rope_theta: Positive = 10_000.0
    rope_scaling: Llama3Scaling | None = None

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise ValueError(f"head_dim ({self.head_dim}) must be even: rotary embedding turns pairs of dimensions")
        return self


MINI = LlamaConfig(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=160, vocab=256)
"""119 thousand weights: small enough for thousands of forward passes in a test."""

MINI_13M = LlamaConfig(layers=4, hidden=512, heads=8, kv_heads=2, head_dim=64, ffn=1376, vocab=2048)
"""13.2 million weights: big enough that on a CPU, too, reading weights is most of a decode."""

CONFIG_BY_NAME = {"mini": MINI, "mini-13m": MINI_13M}
"""The configurations that ship with simserve."""
