"""Batch-size controllers: how many queries a worker may take at once, learned from how long batches have taken.

Clipper (Crankshaw et al., NSDI 2017, section 4.3) has two, AIMD and quantile regression; the code that its authors
released has a third, the estimator. A controller sees a batch's size and its service time, one sample a batch, and
never how long queries have waited.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from simserve.plugin import CustomPart, custom
from simserve.scheduling.controller.aimd import AIMD, Fixed
from simserve.scheduling.controller.base import Controller, Unpadded
from simserve.scheduling.controller.estimator import Estimator
from simserve.scheduling.controller.quantile import Quantile
from simserve.spec import BareName


class CustomController(CustomPart):
    """A class with `limit(slack_s)` and `observe(batch_size, service_s)`; what it aims at is a parameter of its own."""

    required_methods = ("limit", "observe")

    def controller(self, target_s: float, rng: np.random.Generator) -> Controller:
        """Return a new instance of the user's class."""
        made = self.make()
        return made if hasattr(made, "run_size") else _AsItIs(made)


class _AsItIs(Unpadded):
    """A controller of the user's that says nothing about padding."""

    def __init__(self, made: Controller) -> None:
        self.limit = made.limit
        self.observe = made.observe


_Kinds = Annotated[Fixed | AIMD | Quantile | Estimator | CustomController, Field(discriminator="kind")]
ControllerSpec = Annotated[_Kinds, custom(CustomController), BareName]
"""The batch-size controllers, told apart by `kind`."""

__all__ = ["AIMD", "Controller", "ControllerSpec", "Fixed"]
