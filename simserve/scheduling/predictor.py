"""Predictions of output length, for orders that need one: drawn once for a workload, so that systems share errors."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simserve.plugin import CustomPart, PartError, custom
from simserve.spec import BareName, Count, Spec
from simserve.workload import Workload

Predictions = NDArray[np.float64]
"""Predicted output tokens, one for each request of a workload."""


class Oracle(Spec):
    """Knows the output length."""

    kind: Literal["oracle"] = "oracle"

    def predict(self, workload: Workload, rng: np.random.Generator) -> Predictions:
        """Return the true lengths."""
        return workload.output_tokens.astype(np.float64)


class LognormalNoise(Spec):
    """The true length times exp(N(0, sigma)): at sigma 0.5 often wrong by a factor of 1.6, at 1 of 2.7."""

    kind: Literal["lognormal_noise"] = "lognormal_noise"
    sigma: Annotated[float, Field(ge=0, le=10)]

    def predict(self, workload: Workload, rng: np.random.Generator) -> Predictions:
        """Return the true lengths with noise; the draws do not depend on sigma."""
        return workload.output_tokens.astype(np.float64) * np.exp(self.sigma * rng.standard_normal(len(workload)))


class Bucketed(Spec):
    """Knows only which bucket the length falls into, as a classifier would: the upper edge is the prediction."""

    kind: Literal["bucketed"] = "bucketed"
    edges: Annotated[tuple[Count, ...], Field(strict=False, min_length=1)]
    """Rising upper edges; what is longer than the last falls into one more bucket, predicted as twice the last."""

    def predict(self, workload: Workload, rng: np.random.Generator) -> Predictions:
        """Return the upper edge of each length's bucket."""
        edges = np.array([*sorted(self.edges), 2 * max(self.edges)], dtype=np.float64)
        return edges[np.searchsorted(edges[:-1], workload.output_tokens)]


class Constant(Spec):
    """Predicts the same for every request."""

    kind: Literal["constant"] = "constant"
    tokens: Count

    def predict(self, workload: Workload, rng: np.random.Generator) -> Predictions:
        """Return that length for each request."""
        return np.full(len(workload), float(self.tokens))


class CustomPredictor(CustomPart):
    """A class with `predict(workload, rng)`, which returns one predicted output length for each request."""

    required_methods = ("predict",)

    def predict(self, workload: Workload, rng: np.random.Generator) -> Predictions:
        """Return what the user's class predicts."""
        predicted = np.asarray(self.make().predict(workload, rng), dtype=np.float64)
        if predicted.shape != (len(workload),) or np.isnan(predicted).any():
            raise PartError(f"{self.path} must predict one number for each of the {len(workload)} requests")
        return predicted


_Kinds = Annotated[Oracle | LognormalNoise | Bucketed | Constant | CustomPredictor, Field(discriminator="kind")]
PredictorSpec = Annotated[_Kinds, custom(CustomPredictor), BareName]
"""The predictors, told apart by `kind`."""
