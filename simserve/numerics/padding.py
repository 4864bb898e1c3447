"""What padding a step to a rectangle would cost, by arithmetic alone; `forward_padded` does it and counts."""

from collections.abc import Sequence
from typing import NamedTuple


class Padding(NamedTuple):
    """Tokens and (query, key) pairs of one layer: computed with padding, and useful."""

    computed_tokens: int
    """B * L: every request padded to the most new tokens."""
    useful_tokens: int
    computed_pairs: int
    """B * L * K: every request padded to the most queries and to the most keys, new and past together."""
    useful_pairs: int
    """Those that the causal mask allows: n * p + n * (n + 1) / 2 for n new and p past tokens."""

    @property
    def wasted_tokens(self) -> float:
        """The share of the computed tokens that is padding: of the work of the linear layers."""
        return 1 - self.useful_tokens / self.computed_tokens

    @property
    def pairs_ratio(self) -> float:
        """How many times the useful pairs are computed: of the work of attention."""
        return self.computed_pairs / self.useful_pairs


def padding(shapes: Sequence[tuple[int, int]]) -> Padding:
    """Return the cost of padding requests with (new, past) tokens, a decode being (1, context).

    Raises:
        ValueError: no requests, less than one new token, or less than no past ones.
    """
    if not shapes:
        raise ValueError("padding needs at least one request, as (new tokens, past tokens)")
    if wrong := [shape for shape in shapes if shape[0] < 1 or shape[1] < 0]:
        raise ValueError(f"a request has at least 1 new and 0 past tokens, not {wrong[0]}")
    queries = len(shapes) * max(new for new, _ in shapes)
    return Padding(
        computed_tokens=queries,
        useful_tokens=sum(new for new, _ in shapes),
        computed_pairs=queries * max(new + past for new, past in shapes),
        useful_pairs=sum(new * past + new * (new + 1) // 2 for new, past in shapes),
    )
