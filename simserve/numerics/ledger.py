"""What forward passes did: operations, bytes and tokens, entered at the matrix product or cache access that did them.

Nothing here is computed from the sizes of a model. The simulator's cost model is: that both agree to the last digit is
what the ledger is for.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

from simserve.batch import Work
from simserve.numerics.arrays import Array


class Waste(NamedTuple):
    """What was computed and thrown away."""

    padding_tokens: int
    """Rows of padding that passed through the linear layers."""
    masked_pairs: int
    """(query, key) pairs whose score was computed and masked: keys to come, and padding."""


@dataclass(slots=True)
class Ledger:
    """Counts of one or several forward passes; one multiply-add is two FLOP.

    Fields named `layer_*` are added up over the layers; `work` and `waste` give them for one.
    """

    linear_flop: int = 0
    """Of the linear layers inside the Transformer blocks, rows of padding included."""
    attention_flop: int = 0
    """Scores and weighted values of the pairs that the causal mask allows."""
    masked_flop: int = 0
    """The same of the pairs that were computed in vain."""
    head_flop: int = 0

    linear_bytes: int = 0
    """Weights of the linear layers, read whole by every pass."""
    norm_bytes: int = 0
    embedding_bytes: int = 0
    """Rows of the embedding table, one for each token."""
    head_bytes: int = 0
    """Weights of the LM head; a pass out of which no token comes does not read them."""
    kv_read_bytes: int = 0
    kv_written_bytes: int = 0

    emitting: int = 0
    """Sequences that went through the LM head."""
    layer_tokens: int = 0
    layer_padding_tokens: int = 0
    layer_pairs: int = 0
    """Allowed (query, key) pairs."""
    layer_masked_pairs: int = 0
    layer_kv_read_tokens: int = 0
    layer_kv_written_tokens: int = 0

    def enter_linear(self, rows: int, weight: Array) -> None:
        """Enter a product of `rows` rows with the weight of a linear layer."""
        self.linear_flop += 2 * rows * weight.size
        self.linear_bytes += weight.nbytes

    def enter_head(self, rows: int, weight: Array) -> None:
        """Enter a product of `rows` rows, one for each emitting sequence, with the LM head."""
        self.head_flop += 2 * rows * weight.size
        self.head_bytes += weight.nbytes
        self.emitting += rows

    def enter_attention(self, computed_pairs: int, masked_pairs: int, heads: int, head_dim: int) -> None:
        """Enter attention in one layer: two products over `head_dim` for each head and computed (query, key) pair."""
        flop_per_pair = 2 * 2 * heads * head_dim
        allowed = computed_pairs - masked_pairs
        self.layer_pairs += allowed
        self.attention_flop += allowed * flop_per_pair
        self.layer_masked_pairs += masked_pairs
        self.masked_flop += masked_pairs * flop_per_pair

    def enter_kv(self, read: Array, written: Array) -> None:
        """Enter KV of one layer taken from the cache, and put into it; both [2 kv_heads, tokens, d]."""
        self.layer_kv_read_tokens += read.shape[1]
        self.kv_read_bytes += read.nbytes
        self.layer_kv_written_tokens += written.shape[1]
        self.kv_written_bytes += written.nbytes

    @property
    def flop(self) -> int:
        """All useful operations: linear layers, allowed pairs, LM head."""
        return self.linear_flop + self.attention_flop + self.head_flop

    @property
    def weight_bytes(self) -> int:
        """All weights read: linear layers, norms, rows of the embedding table, LM head."""
        return self.linear_bytes + self.norm_bytes + self.embedding_bytes + self.head_bytes

    @property
    def kv_bytes(self) -> int:
        """KV read and written."""
        return self.kv_read_bytes + self.kv_written_bytes

    def work(self, layers: int) -> Work:
        """Return the ledger of a model of `layers` layers in the terms of `Batch.work()`; padding is no work."""
        return Work(
            new_tokens=_of_one_layer(self.layer_tokens - self.layer_padding_tokens, layers),
            attention_pairs=_of_one_layer(self.layer_pairs, layers),
            kv_read_tokens=_of_one_layer(self.layer_kv_read_tokens, layers),
            kv_written_tokens=_of_one_layer(self.layer_kv_written_tokens, layers),
            emitting=self.emitting,
        )

    def waste(self, layers: int) -> Waste:
        """Return what a model of `layers` layers computed in vain."""
        return Waste(
            padding_tokens=_of_one_layer(self.layer_padding_tokens, layers),
            masked_pairs=_of_one_layer(self.layer_masked_pairs, layers),
        )

    def __add__(self, other: "Ledger") -> "Ledger":
        """Return the ledger of the passes of both."""
        return Ledger(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


def _of_one_layer(count: int, layers: int) -> int:
    """Return the share of one layer: all layers do the same, so a remainder means that one was left out."""
    share, remainder = divmod(count, layers)
    if remainder:
        raise AssertionError(f"a count of {count} over {layers} layers leaves a remainder of {remainder}")
    return share
