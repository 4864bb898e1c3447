"""The roofline: an iteration takes as long as its arithmetic or its memory traffic, whichever is longer.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009, with one maximum
over the whole iteration. Counts of operations and bytes: see `simserve.catalog.Model`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simserve.batch import Batch
from simserve.catalog import Hardware, Model
from simserve.cost.base import SHORTEST_ARRAY
from simserve.spec import Duration, Spec


class Roofline(Spec):
    """Iteration time = max(FLOP / effective FLOP/s, bytes / effective bytes/s) + overhead."""

    kind: Literal["roofline"] = "roofline"
    weights: Literal["all", "streamed"] = "all"
    """Weights read once an iteration: `all`, or `streamed`, without the embedding table, whose rows are gathered."""
    overhead_s: Duration = 0.0
    """Seconds added to every iteration: scheduling, kernel launches, sampling."""

    def price(self, model: Model, hardware: Hardware) -> "RooflineCost":
        """Return the cost model of `model` on `hardware`."""
        return RooflineCost(
            linear_flop_per_token=model.linear_flop_per_token,
            attention_flop_per_pair=model.attention_flop_per_pair,
            head_flop_per_token=model.head_flop_per_token,
            weight_bytes=model.weight_bytes if self.weights == "all" else model.streamed_weight_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
            flop_per_s=hardware.effective_flop_per_s,
            bytes_per_s=hardware.effective_bytes_per_s,
            overhead_s=self.overhead_s,
        )


@dataclass(frozen=True, slots=True)
class RooflineCost:
    """A roofline with its numbers filled in; counts are whole numbers, so sums of them are exact."""

    linear_flop_per_token: int
    attention_flop_per_pair: int
    head_flop_per_token: int
    weight_bytes: int
    kv_bytes_per_token: int
    flop_per_s: float
    bytes_per_s: float
    overhead_s: float = 0.0

    def _counts(self, batch: Batch) -> tuple[int, int]:
        """Return the FLOP and the bytes of an iteration."""
        new, pairs, read, written, emitting = batch.work()
        flop = (
            new * self.linear_flop_per_token
            + pairs * self.attention_flop_per_pair
            + emitting * self.head_flop_per_token
        )
        return flop, self.weight_bytes + (read + written) * self.kv_bytes_per_token

    def iteration_s(self, batch: Batch) -> float:
        """Return the seconds of one iteration."""
        flop, traffic = self._counts(batch)
        compute_s, memory_s = flop / self.flop_per_s, traffic / self.bytes_per_s
        return (compute_s if compute_s > memory_s else memory_s) + self.overhead_s

    def decode_s(self, sequences: int, context_tokens: int, steps: int) -> Sequence[float] | NDArray[np.float64]:
        """Return the seconds of each of `steps` iterations that decode the same group.

        From one to the next every sequence has one more pair and one more token of KV to read.
        """
        flop, traffic = self._counts(Batch((), 0, sequences, context_tokens))
        more_flop, more_traffic = sequences * self.attention_flop_per_pair, sequences * self.kv_bytes_per_token
        if steps >= SHORTEST_ARRAY:
            step = np.arange(steps)
            compute_s = (flop + more_flop * step) / self.flop_per_s
            memory_s = (traffic + more_traffic * step) / self.bytes_per_s
            return np.maximum(compute_s, memory_s) + self.overhead_s
        seconds = []
        for _ in range(steps):
            compute, memory = flop / self.flop_per_s, traffic / self.bytes_per_s
            seconds.append((compute if compute > memory else memory) + self.overhead_s)
            flop += more_flop
            traffic += more_traffic
        return seconds
