"""A Llama in NumPy: one flat pass over the new tokens of any mixture of prompts, chunks of prompts and decodes.

Touvron et al., LLaMA, arXiv 2302.13971, with the layer conventions of Hugging Face's `LlamaForCausalLM`.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np

from simserve.numerics.arrays import Array, Ints, Precision
from simserve.numerics.attention import Attention, RaggedAttention
from simserve.numerics.config import LlamaConfig
from simserve.numerics.kv_cache import KVCache
from simserve.numerics.layers import linear, rms_norm, swiglu
from simserve.numerics.ledger import Ledger
from simserve.numerics.rotary import Rotation, frequencies, rotate, rotation
from simserve.numerics.segment import Segment, prepare_step
from simserve.numerics.weights import LayerWeights, Weights, random_weights


class Llama:
    """A decoder with its weights. It has no state: what is past is in the KV cache."""

    def __init__(self, config: LlamaConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self._turns = frequencies(config)

    @classmethod
    def random(cls, config: LlamaConfig, seed: int = 0, precision: Precision = np.float32) -> Self:
        """Return a model whose weights are drawn from `seed`."""
        return cls(config, random_weights(config, seed, precision))

    @property
    def precision(self) -> Precision:
        """The type of its weights and activations."""
        return np.float64 if self.weights.norm.dtype == np.float64 else np.float32

    def forward(self, segments: Sequence[Segment], cache: KVCache, ledger: Ledger | None = None) -> Array:
        """Compute the segments in one ragged pass, put their KV into the cache, and enter what it took in the ledger.

        Returns:
            The logits behind the last token of every segment that emits, in their order: [emitting, vocab].

        Raises:
            ValueError: the segments do not fit the model or the cache (see `prepare_step`); nothing has changed then.
        """
        ledger = Ledger() if ledger is None else ledger
        step = prepare_step(segments, self.config, self.precision, cache)
        ends = np.cumsum(step.new)
        spans = [
            (segment.request_id, slice(end - new, end))
            for segment, new, end in zip(segments, step.new, ends.tolist(), strict=True)
        ]
        positions = np.concatenate([np.arange(p, p + n) for p, n in zip(step.past, step.new, strict=True)])
        tokens = self.transform(step.tokens, positions, RaggedAttention(cache, spans, ledger), ledger)
        return self.logits(tokens[ends[[segment.emits for segment in segments]] - 1], ledger)

    def transform(self, token_ids: Ints, positions: Ints, attend: Attention, ledger: Ledger) -> Array:
        """Embed the tokens, [N], and pass them through all blocks: [N, H]. Only `attend` knows whose they are."""
        tokens = self.weights.embedding[token_ids]
        turned = rotation(positions, self._turns, self.precision)
        ledger.embedding_bytes += tokens.nbytes
        for index, layer in enumerate(self.weights.layers):
            ledger.layer_tokens += len(tokens)
            normed = rms_norm(tokens, layer.attention_norm, self.config.norm_eps, ledger)
            tokens += self._attention(index, layer, normed, turned, attend, ledger)
            normed = rms_norm(tokens, layer.mlp_norm, self.config.norm_eps, ledger)
            tokens += linear(swiglu(linear(normed, layer.gate_up, ledger)), layer.down, ledger)
        return tokens

    def _attention(
        self, index: int, layer: LayerWeights, normed: Array, turned: Rotation, attend: Attention, ledger: Ledger
    ) -> Array:
        """Return what attention adds to each token, [N, H]."""
        heads, kv_heads, head_dim = self.config.heads, self.config.kv_heads, self.config.head_dim
        qkv = linear(normed, layer.qkv, ledger).reshape(len(normed), heads + 2 * kv_heads, head_dim)
        rotate(qkv[:, : heads + kv_heads], turned)
        merged = attend(index, qkv[:, :heads], qkv[:, heads:])
        return linear(merged, layer.output, ledger)

    def logits(self, tokens: Array, ledger: Ledger) -> Array:
        """Return the logits of the rows that emit: [rows, H] to [rows, vocab]. No rows, no LM head."""
        head = self.weights.head
        if not len(tokens):
            return np.empty((0, head.shape[1]), tokens.dtype)
        normed = rms_norm(tokens, self.weights.norm, self.config.norm_eps, ledger)
        ledger.enter_head(len(tokens), head)
        logits: Array = normed @ head
        return logits
