"""A decoder-only Transformer, by its architecture; every count below follows from it."""

from functools import cached_property
from typing import Self

from pydantic import model_validator

from simserve.spec import Count, Spec


class Model(Spec):
    """A Llama-style dense decoder: grouped-query attention, SwiGLU MLP, RMSNorm, rotary positions.

    One multiply-add is two FLOP. Norms, rotary embedding, softmax and activation are left out: under 1 % of the FLOP.
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
    vocab: Count
    tied_embeddings: bool = False
    """Whether the LM head is the embedding table itself."""
    qkv_bias: bool = False
    bytes_per_value: Count = 2
    """Bytes of one weight and of one KV value: 2 for bfloat16."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self

    @cached_property
    def linear_parameters(self) -> int:
        """Weights of the linear layers inside the Transformer blocks: QKV, output, gate, up and down projections."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.layers * (self.hidden * (q + 2 * kv) + q * self.hidden + 3 * self.hidden * self.ffn)

    @cached_property
    def embedding_parameters(self) -> int:
        """Weights of the embedding table, and as many again of the LM head."""
        return self.vocab * self.hidden

    @cached_property
    def parameters(self) -> int:
        """All weights: linear layers, embedding, LM head unless tied, norms, and biases where there are any."""
        norms = (2 * self.layers + 1) * self.hidden
        biases = self.layers * (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return self.linear_parameters + tables + norms + biases

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
