"""Queries to a prediction service: when they come, what they ask, and how long they are worth an answer."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simserve.spec import BareName, Count, NonNegative, Positive, Spec
from simserve.workload.arrivals import ArrivalSpec
from simserve.workload.streams import Streams
from simserve.workload.traffic import Traffic

MOST_ITEMS = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """The queries of one run as columns, in order of arrival."""

    arrival_s: NDArray[np.float64]
    key: NDArray[np.int64]
    """What is asked: queries with the same key have the same answer."""
    deadline_s: NDArray[np.float64]
    """When, in seconds from the start of the run, an answer is worth nothing any more; infinity for never."""

    def __len__(self) -> int:
        return len(self.arrival_s)


class Distinct(Spec):
    """No query comes twice."""

    kind: Literal["distinct"] = "distinct"

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a key for each query."""
        return np.arange(size)


class Zipf(Spec):
    """A few questions are asked all the time: the k-th most popular of `items` in proportion to 1 / k^exponent."""

    kind: Literal["zipf"] = "zipf"
    items: Annotated[Count, Field(le=MOST_ITEMS)]
    exponent: Annotated[NonNegative, Field(le=10)] = 1.0

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a key for each query, 0 the most popular."""
        shares = np.arange(1, self.items + 1, dtype=np.float64) ** -self.exponent
        edges = np.cumsum(shares)
        found = np.searchsorted(edges, rng.random(size) * edges[-1], side="right")
        keys: NDArray[np.int64] = np.minimum(found, self.items - 1)  # rounding can lead one past the end
        return keys


PopularitySpec = Annotated[Annotated[Distinct | Zipf, Field(discriminator="kind")], BareName]
"""What queries ask, told apart by `kind`."""


class QuerySpec(Traffic):
    """How many queries arrive, when, and what they ask."""

    arrivals: ArrivalSpec
    popularity: PopularitySpec = Distinct()
    deadline_s: Positive | None = None
    """Seconds from its arrival until a query is dropped if no worker has taken it up."""

    @model_validator(mode="after")
    def _enough_arrivals(self) -> Self:
        self.check_listed(self.arrivals)
        return self

    def draw(self, streams: Streams) -> Queries:
        """Draw the queries of one replication."""
        arrival_s = self.arrivals.sample_s(self.num_requests, streams.generator("arrivals"))
        patience_s = np.inf if self.deadline_s is None else self.deadline_s
        return Queries(
            arrival_s=arrival_s,
            key=self.popularity.sample(self.num_requests, streams.generator("keys")),
            deadline_s=arrival_s + patience_s,
        )
