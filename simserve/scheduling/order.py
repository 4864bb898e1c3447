"""Queue orders: each is a key, the lowest of which goes first; ties go by arrival."""

import math
from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from simserve.plugin import CustomPart, custom
from simserve.request import Request
from simserve.scheduling.predictor import Oracle, PredictorSpec
from simserve.scheduling.prefix_order import DepthFirst, LongestPrefix
from simserve.scheduling.queue import FCFSQueue, KeyedQueue, WaitingQueue
from simserve.spec import BareName, Duration, Positive, Spec, Whole
from simserve.workload import Workload


class FCFS(Spec):
    """First come, first served."""

    kind: Literal["fcfs"] = "fcfs"
    skip_ahead: Annotated[int, Whole, Field(ge=0, le=10_000)] = 0
    """How many requests behind a head that does not fit into memory may be tried in its place. Orca: none."""

    def queue(self, workload: Workload, rng: np.random.Generator) -> WaitingQueue:
        """Return an empty queue."""
        return FCFSQueue(self.skip_ahead)


class Aging(Spec):
    """What keeps long requests from starving: their key falls while they wait, and a longest wait."""

    tokens_per_s: Duration = 0.0
    """By how much a request's predicted length counts as shorter for each second it has waited."""
    max_wait_s: Positive | None = None
    """Who has waited this long goes first, by arrival."""

    @model_validator(mode="after")
    def _some_effect(self) -> Self:
        if self.tokens_per_s == 0 and self.max_wait_s is None:
            raise ValueError("give tokens_per_s above 0, max_wait_s, or both")
        return self


class Keyed(Spec):
    """An order by a key of the request and its predicted length; subclasses say which."""

    predictor: PredictorSpec = Oracle()

    @abstractmethod
    def key(self, request: Request, predicted_tokens: float) -> Any:
        """Return what is compared: the lowest goes first."""

    def queue(self, workload: Workload, rng: np.random.Generator) -> WaitingQueue:
        """Return an empty queue."""
        predicted = self.predictor.predict(workload, rng).tolist()
        return KeyedQueue(lambda request: self.key(request, predicted[request.id]), self.longest_wait_s)

    @property
    def longest_wait_s(self) -> float:
        """Who has waited this long goes first."""
        return math.inf


class SJF(Keyed):
    """Shortest predicted output first; with `aging`, waiting makes a request shorter."""

    kind: Literal["sjf"] = "sjf"
    aging: Aging | None = None

    def key(self, request: Request, predicted_tokens: float) -> float:
        """Return the predicted length, later arrivals counted as longer.

        All age at the same rate, so the order of two requests never changes while they wait: predicted - rate x (now -
        arrival) is lowest where predicted + rate x arrival is.
        """
        return predicted_tokens + (self.aging.tokens_per_s * request.arrival_s if self.aging else 0.0)

    @property
    def longest_wait_s(self) -> float:
        """Who has waited this long goes first."""
        return self.aging.max_wait_s if self.aging and self.aging.max_wait_s is not None else math.inf


class LJF(Keyed):
    """Longest predicted output first."""

    kind: Literal["ljf"] = "ljf"

    def key(self, request: Request, predicted_tokens: float) -> float:
        """Return the predicted length, turned round."""
        return -predicted_tokens


class Priority(Spec):
    """The lowest `priority` of the clients goes first; within one, first come, first served. Nobody is interrupted."""

    kind: Literal["priority"] = "priority"

    def queue(self, workload: Workload, rng: np.random.Generator) -> WaitingQueue:
        """Return an empty queue."""
        return KeyedQueue(lambda request: request.priority)


class EDF(Spec):
    """Earliest deadline first: arrival plus the `deadline_s` of the request's client."""

    kind: Literal["edf"] = "edf"

    def queue(self, workload: Workload, rng: np.random.Generator) -> WaitingQueue:
        """Return an empty queue."""
        return KeyedQueue(lambda request: request.deadline_s)


class CustomOrder(CustomPart):
    """A class with `key(request, predicted_tokens)`: the lowest goes first."""

    required_methods = ("key",)
    predictor: PredictorSpec = Oracle()

    def queue(self, workload: Workload, rng: np.random.Generator) -> WaitingQueue:
        """Return an empty queue with a new instance of the user's class."""
        order, predicted = self.make(), self.predictor.predict(workload, rng).tolist()
        return KeyedQueue(lambda request: order.key(request, predicted[request.id]))


_Kinds = Annotated[
    FCFS | SJF | LJF | Priority | EDF | LongestPrefix | DepthFirst | CustomOrder, Field(discriminator="kind")
]
OrderSpec = Annotated[_Kinds, custom(CustomOrder), BareName]
"""The queue orders, told apart by `kind`."""
