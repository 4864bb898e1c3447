"""Model selection: which of several models answer a query, learned from feedback (Clipper, NSDI 2017, section 5).

Exp3 (Auer et al., 2002) plays one model at a time and learns from what it sees of that one; Exp4 asks them all, lets
them vote by weight, and learns from every vote.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from simserve.spec import BareName, Name, Spec

LearningRate = Annotated[float, Field(gt=0, le=1000)]

VoteWeight = Annotated[float, Field(ge=1e-9, le=1e9)]


class Choice(NamedTuple):
    """The models that a query is sent to."""

    models: Sequence[int]
    chance: float = 1.0
    """How likely this choice was when it was made."""


class Selection(Protocol):
    """Chooses models and weighs their answers."""

    @property
    def weights(self) -> Sequence[float]:
        """How much each model's vote counts; they add up to 1."""

    def choose(self) -> Choice:
        """Return the models that the next query is sent to."""

    def learn(self, choice: Choice, losses: Mapping[int, float]) -> None:
        """Take the feedback of a query: the loss, 0 to 1, of each model whose answer is known."""


class _Exponential:
    """Weights that shrink exponentially with loss, kept as logarithms so that none vanishes for ever."""

    def __init__(self, models: int, learning_rate: float) -> None:
        self._rate = learning_rate
        self._logs = [0.0] * models
        self.weights = [1 / models] * models
        """How much each model counts."""

    def _charge(self, model: int, loss: float) -> None:
        self._logs[model] -= self._rate * loss

    def _weigh(self) -> None:
        """Bring the weights up to date with the losses."""
        highest = max(self._logs)
        raw = [math.exp(log - highest) for log in self._logs]
        total = sum(raw)
        self.weights = [weight / total for weight in raw]


class Exp3(Spec):
    """Ask one model, at random by its weight; `s <- s exp(-rate * loss / p)` for the one asked."""

    kind: Literal["exp3"] = "exp3"
    learning_rate: LearningRate = 0.01

    def policy(self, models: Sequence[str], rng: np.random.Generator) -> Selection:
        """Return the policy, all models equal."""
        return Exp3Policy(len(models), self.learning_rate, rng)


class Exp3Policy(_Exponential):
    """A gambler before several machines: plays what has paid, and now and then another."""

    def __init__(self, models: int, learning_rate: float, rng: np.random.Generator) -> None:
        super().__init__(models, learning_rate)
        self._rng = rng

    def choose(self) -> Choice:
        """Return one model."""
        weights = self.weights
        model = min(bisect_right(list(accumulate(weights)), self._rng.random()), len(weights) - 1)
        return Choice((model,), weights[model])

    def learn(self, choice: Choice, losses: Mapping[int, float]) -> None:
        """Charge the model that was asked, the more the less likely it was to be asked."""
        for model, loss in losses.items():
            self._charge(model, loss / choice.chance)
        self._weigh()


class Exp4(Spec):
    """Ask all models and let them vote by weight; `s <- s exp(-rate * loss)` for each."""

    kind: Literal["exp4"] = "exp4"
    learning_rate: LearningRate = 0.01

    def policy(self, models: Sequence[str], rng: np.random.Generator) -> Selection:
        """Return the policy, all models equal."""
        return Exp4Policy(len(models), self.learning_rate)


class Exp4Policy(_Exponential):
    """A committee whose members' voices grow and shrink with how often they were right."""

    def choose(self) -> Choice:
        """Return all models."""
        return Choice(range(len(self._logs)))

    def learn(self, choice: Choice, losses: Mapping[int, float]) -> None:
        """Charge every model for its loss."""
        for model, loss in losses.items():
            self._charge(model, loss)
        self._weigh()


class Single(Spec):
    """Always the same model."""

    kind: Literal["single"] = "single"
    model: Name

    def policy(self, models: Sequence[str], rng: np.random.Generator) -> Selection:
        """Return the policy."""
        return StaticPolicy([float(name == self.model) for name in models])


class Majority(Spec):
    """Ask all models; every vote counts the same, or as given, and nothing is learned."""

    kind: Literal["majority"] = "majority"
    weights: dict[Name, VoteWeight] = Field(default_factory=dict)
    """What each model's vote counts; 1 for those left out."""

    def policy(self, models: Sequence[str], rng: np.random.Generator) -> Selection:
        """Return the policy."""
        return StaticPolicy([self.weights.get(name, 1.0) for name in models])


class StaticPolicy:
    """Weights that stay."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights = [weight / sum(weights) for weight in weights]
        self._choice = Choice([model for model, weight in enumerate(weights) if weight > 0])

    def choose(self) -> Choice:
        """Return the models with a weight."""
        return self._choice

    def learn(self, choice: Choice, losses: Mapping[int, float]) -> None:
        """Learn nothing."""


SelectionSpec = Annotated[Annotated[Exp3 | Exp4 | Single | Majority, Field(discriminator="kind")], BareName]
"""The selection policies, told apart by `kind`."""
