"""The weights of a Llama, as the forward pass wants them.

A linear layer is stored [in, out], the layout in which BLAS is fastest for few rows. Projections of the same input
stand side by side in one matrix: one long product is faster than three short ones.
"""

from typing import NamedTuple

import numpy as np

from simserve.numerics.arrays import Array, Precision
from simserve.numerics.config import LlamaConfig


class LayerWeights(NamedTuple):
    """Weights of one Transformer block."""

    attention_norm: Array
    """[H]"""
    qkv: Array
    """[H, (heads + 2 kv_heads) * d]: queries, keys, values."""
    output: Array
    """[heads * d, H]"""
    mlp_norm: Array
    """[H]"""
    gate_up: Array
    """[H, 2F]: gate, up."""
    down: Array
    """[F, H]"""


class Weights(NamedTuple):
    """All weights of a model, of one precision."""

    embedding: Array
    """[vocab, H]"""
    layers: tuple[LayerWeights, ...]
    norm: Array
    """[H]"""
    head: Array
    """[H, vocab]; where embeddings are tied, a view of the embedding table."""


def random_weights(config: LlamaConfig, seed: int, precision: Precision = np.float32) -> Weights:
    """Return weights that keep activations near unit scale; both precisions get the same ones, but for rounding."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float) -> Array:
        return (rng.standard_normal((rows, columns)) * scale).astype(precision)

    def projection(inputs: int, outputs: int) -> Array:
        return matrix(inputs, outputs, inputs**-0.5)

    def norm() -> Array:
        return (1 + 0.1 * rng.standard_normal(config.hidden)).astype(precision)

    queries, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layers = tuple(
        LayerWeights(
            attention_norm=norm(),
            qkv=projection(config.hidden, queries + 2 * kv),
            output=projection(queries, config.hidden),
            mlp_norm=norm(),
            gate_up=projection(config.hidden, 2 * config.ffn),
            down=projection(config.ffn, config.hidden),
        )
        for _ in range(config.layers)
    )
    embedding = matrix(config.vocab, config.hidden, 1.0)
    head = embedding.T if config.tied_embeddings else projection(config.hidden, config.vocab)
    return Weights(embedding, layers, norm(), head)
