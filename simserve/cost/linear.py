"""A cost linear in what an iteration holds: for queueing theory, and for profiles fitted elsewhere."""

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from simserve.batch import Batch
from simserve.catalog import Hardware, Model
from simserve.cost.base import SHORTEST_ARRAY, Seconds
from simserve.spec import Duration, Spec

SHORTEST_DECODE_S = 1e-6
"""A shorter iteration could vanish when it is added to a long time."""


class Linear(Spec):
    """Seconds of an iteration = step + prefill tokens, decoding sequences and their context, each times its rate."""

    kind: Literal["linear"] = "linear"
    step_s: Duration = 0.0
    """Seconds of every iteration, whatever it holds."""
    prefill_token_s: Duration = 0.0
    """Seconds for each prompt token computed."""
    decode_sequence_s: Duration = 0.0
    """Seconds for each decoding sequence."""
    context_token_s: Duration = 0.0
    """Seconds for each past token that the iteration reads."""

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if self.step_s + self.decode_sequence_s < SHORTEST_DECODE_S:
            raise ValueError(
                f"an iteration that decodes must take time: "
                f"step_s and decode_sequence_s together at least {SHORTEST_DECODE_S:g}"
            )
        return self

    def price(self, model: Model, hardware: Hardware) -> "Linear":
        """Return itself: what model and hardware matter is in the rates."""
        return self

    def _seconds(self, prompt_tokens: int, sequences: int, context_tokens: Seconds) -> Seconds:
        fixed_s = self.step_s + self.prefill_token_s * prompt_tokens + self.decode_sequence_s * sequences
        return fixed_s + self.context_token_s * context_tokens

    def iteration_s(self, batch: Batch) -> float:
        """Return the seconds of one iteration."""
        prompt_tokens = sum(new for _, new, _ in batch.prefills)
        past_tokens = sum(past for _, _, past in batch.prefills)
        return float(self._seconds(prompt_tokens, batch.decode_sequences, batch.decode_context_tokens + past_tokens))

    def decode_s(self, sequences: int, context_tokens: int, steps: int) -> Sequence[float] | NDArray[np.float64]:
        """Return the seconds of each of `steps` iterations that decode the same group."""
        if steps < SHORTEST_ARRAY:
            return [float(self._seconds(0, sequences, context_tokens + i * sequences)) for i in range(steps)]
        return np.asarray(self._seconds(0, sequences, context_tokens + np.arange(steps) * sequences))
