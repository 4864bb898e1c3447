"""What every batch-size controller answers to."""

from typing import Annotated, Protocol

from pydantic import Field

from simserve.spec import Count, Fraction, Spec

LARGEST_LIMIT = 1_000_000
"""No controller lets a batch grow beyond this."""

Limit = Annotated[Count, Field(le=LARGEST_LIMIT)]


class Controller(Protocol):
    """Says how many queries the next batch may have."""

    def limit(self, slack_s: float) -> int:
        """Return the most queries that the next batch may have, at least 1.

        `slack_s` is how long from now until the first deadline among those who wait.
        """

    def run_size(self, taken: int) -> int:
        """Return the size at which a batch of `taken` queries is run: more than that pads it with copies."""

    def observe(self, batch_size: int, service_s: float) -> None:
        """Learn from a batch that has run."""


class Unpadded:
    """A controller that runs batches as they are."""

    def run_size(self, taken: int) -> int:
        """Return the size as it is."""
        return taken


class Learning(Spec):
    """A controller that starts small and aims at a share of the SLO."""

    target: Fraction = 1.0
    """What it aims at, as a share of the SLO's latency: below 1 keeps a margin."""
    initial: Limit = 1
    """The limit it starts with."""
