"""Random streams: one for each purpose, so that changing one part of a scenario leaves the draws of the others alone.

Common random numbers follow: every system, sweep point and search step of one replication sees the same requests.
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of one replication of a scenario."""

    seed: int
    replication: int = 0

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a new generator for `purpose`, the same for the same seed, replication and purpose on any machine."""
        key = int.from_bytes(blake2b(purpose.encode(), digest_size=16).digest(), "big")
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(self.replication, key)))
