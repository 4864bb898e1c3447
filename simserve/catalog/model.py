"""A decoder-only Transformer, by its architecture; every count below follows from it."""

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from simserve.spec import Count, Spec, Whole


class Model(Spec):
    """A dense decoder, by default as Llama is: grouped-query attention, SwiGLU MLP, RMSNorm, rotary positions.

    One multiply-add is two FLOP. Norms, biases, positions, softmax and activation are left out: under 1 % of the FLOP.
    """

    name: str
    source: str = ""
    """Where the architecture is published."""
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    """Width of the MLP between its gate/up and down projections."""
    gated_mlp: bool = True
    """Whether the MLP has three matrices, as in SwiGLU; else it has two, up and down."""
    vocab: Count
    tied_embeddings: bool = False
    """Whether the LM head is the embedding table itself."""
    learned_positions: Annotated[int, Whole, Field(ge=0)] = 0
    """Rows of a table of learned positions; none with rotary ones."""
    qkv_bias: bool = False
    biases: bool = False
    """Whether all linear layers have biases, and the norms too (LayerNorm)."""
    bytes_per_value: Count = 2
    """Bytes of one weight and of one KV value: 2 for bfloat16."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self

    @cached_property
    def linear_parameters(self) -> int:
        """Weights of the linear layers inside the Transformer blocks: QKV and output projections, MLP."""
        mlp = (3 if self.gated_mlp else 2) * self.hidden * self.ffn
        return self.layers * (self.hidden * self._qkv_width + self.heads * self.head_dim * self.hidden + mlp)

    @property
    def _qkv_width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def _bias_parameters(self) -> int:
        """Biases of the linear layers, one for each value that comes out."""
        mlp = self.ffn * (2 if self.gated_mlp else 1) + self.hidden
        return self.layers * (self._qkv_width * (self.qkv_bias or self.biases) + (self.hidden + mlp) * self.biases)

    @cached_property
    def embedding_parameters(self) -> int:
        """Weights of the embedding table, and as many again of the LM head."""
        return self.vocab * self.hidden

    @cached_property
    def parameters(self) -> int:
        """All weights: linear layers, embedding, LM head unless tied, positions, norms, and biases if there are any."""
        norms = (2 * self.layers + 1) * self.hidden * (2 if self.biases else 1)
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2) + self.learned_positions * self.hidden
        return self.linear_parameters + tables + norms + self._bias_parameters

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return self.parameters * self.bytes_per_value

    @cached_property
    def streamed_weight_bytes(self) -> int:
        """Bytes of the weights that every iteration reads whole: linear layers and LM head."""
        return (self.linear_parameters + self.embedding_parameters) * self.bytes_per_value

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Bytes of key and value of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_value

    @cached_property
    def linear_flop_per_token(self) -> int:
        """FLOP of the linear layers for one token."""
        return 2 * self.linear_parameters

    @cached_property
    def attention_flop_per_pair(self) -> int:
        """FLOP of one (query, key) pair in all layers: score and weighted value, two FLOP each per dimension."""
        return 4 * self.layers * self.heads * self.head_dim

    @cached_property
    def head_flop_per_token(self) -> int:
        """FLOP of the LM head for one emitted token."""
        return 2 * self.embedding_parameters
