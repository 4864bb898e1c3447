"""How long prompts and outputs are, in whole tokens of at least one."""

from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from simserve.columns import read_column
from simserve.spec import BareName, Count, FilePath, NonNegative, Spec

MOST_TOKENS = 10_000_000
"""The longest length there is: hundreds of times the longest context of today's models."""

Tokens = Annotated[Count, Field(le=MOST_TOKENS)]
MeanTokens = Annotated[float, Field(gt=0, le=MOST_TOKENS)]
Sample = NDArray[np.int64]


class Lengths(Spec):
    """A distribution of lengths: drawn, rounded to whole tokens, at least 1, then cut at `max`."""

    kind: str
    max: Tokens = MOST_TOKENS
    """Longest length; longer draws are cut to it."""

    @abstractmethod
    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return `size` draws, before rounding and limits."""

    def sample(self, size: int, rng: np.random.Generator) -> Sample:
        """Return `size` lengths in tokens."""
        tokens: Sample = np.clip(np.rint(self._draw(size, rng)), 1, self.max).astype(np.int64)
        return tokens


class Constant(Lengths):
    """Always the same length; a bare number is short for it."""

    kind: Literal["constant"] = "constant"
    tokens: Tokens

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        return np.full(size, self.tokens)


class Uniform(Lengths):
    """Whole numbers from `low` to `high`, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: Tokens
    high: Tokens

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) is above high ({self.high})")
        return self

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        return rng.integers(self.low, self.high, size, endpoint=True)


class Geometric(Lengths):
    """After every token the text ends with the same probability, 1 / `mean`: the memoryless length."""

    kind: Literal["geometric"] = "geometric"
    mean: Annotated[float, Field(ge=1, le=MOST_TOKENS)]

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        return rng.geometric(1 / self.mean, size)


class Lognormal(Lengths):
    """A lognormal length with its own `mean` (before limits) and `sigma`, the standard deviation of its logarithm."""

    kind: Literal["lognormal"] = "lognormal"
    mean: MeanTokens
    sigma: Annotated[float, Field(ge=0, le=10)]

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        return rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, size)


class Listed(Lengths):
    """Lengths written out, for small examples: the first request's, the second's, and so on."""

    kind: Literal["listed"] = "listed"
    values: Annotated[tuple[Tokens, ...], Field(strict=False, min_length=1)]

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        return np.array(self.values[:size])


def _lengths_in(path: str, column: str | None) -> Sample:
    """Return a column of a CSV file; raise ValueError where it is not one of lengths."""
    lengths = read_column(path, str(column))
    if not len(lengths) or not np.all((lengths >= 1) & (lengths <= MOST_TOKENS) & (lengths % 1 == 0)):
        raise ValueError(f"column {column!r} of {path!r} must hold whole numbers from 1 to {MOST_TOKENS:,}, one a row")
    return lengths.astype(np.int64)


class Empirical(Lengths):
    """Lengths drawn with replacement from given ones: a list, with or without weights, or a column of a CSV file."""

    kind: Literal["empirical"] = "empirical"
    values: Annotated[tuple[Tokens, ...], Field(strict=False)] = ()
    weights: Annotated[tuple[NonNegative, ...], Field(strict=False)] = ()
    """Relative frequency of each value; equal where left out."""
    path: FilePath | None = None
    """A CSV file with a header; relative paths start at the scenario's folder."""
    column: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.values) == bool(self.path):
            raise ValueError("give either values, or path with column")
        if self.weights and (len(self.weights) != len(self.values) or not sum(self.weights)):
            raise ValueError(f"give one weight for each of the {len(self.values)} values, not all of them 0")
        if self.column and not self.path:
            raise ValueError("column goes with path")
        if self.path:
            _lengths_in(self.path, self.column)
        return self

    def _draw(self, size: int, rng: np.random.Generator) -> NDArray[Any]:
        values = _lengths_in(self.path, self.column) if self.path else np.array(self.values)
        shares = np.array(self.weights) / sum(self.weights) if self.weights else None
        return rng.choice(values, size, p=shares)


def _bare_number(value: Any) -> Any:
    return (
        {"kind": "constant", "tokens": value}
        if isinstance(value, int | float) and not isinstance(value, bool)
        else value
    )


_Kinds = Annotated[Constant | Uniform | Geometric | Lognormal | Empirical | Listed, Field(discriminator="kind")]
LengthSpec = Annotated[_Kinds, BeforeValidator(_bare_number), BareName]
"""The length distributions, told apart by `kind`."""
