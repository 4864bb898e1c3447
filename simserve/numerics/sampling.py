"""How the next token is picked out of the logits."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simserve.numerics.arrays import Array


class Sampler(Protocol):
    """Picks tokens. It has no state, so what it picks does not depend on who else is in the batch."""

    def pick(self, logits: Array, request_id: int, index: int) -> int:
        """Return the token number `index` of a request's output, given its logits, [vocab]."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """The token with the highest logit; the first of equals."""

    def pick(self, logits: Array, request_id: int, index: int) -> int:
        """Return the most likely token."""
        return int(logits.argmax())


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token drawn from softmax(logits / temperature), from a stream of its own for each request and place."""

    seed: int
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise ValueError(f"temperature must be above 0 and finite, not {self.temperature}; Greedy() is for 0")

    def pick(self, logits: Array, request_id: int, index: int) -> int:
        """Return a token drawn by inverting the cumulative distribution at one uniform number."""
        stream = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(request_id, index)))
        scaled = logits.astype(np.float64) / self.temperature
        cumulative = np.cumsum(np.exp(scaled - scaled.max()))
        return int(np.searchsorted(cumulative, stream.random() * cumulative[-1], side="right"))
