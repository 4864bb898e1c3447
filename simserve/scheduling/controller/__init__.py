"""Batch-size controllers: how many queries a worker may take at once, learned from how long batches have taken.

Clipper (Crankshaw et al., NSDI 2017, section 4.3) has two, AIMD and quantile regression; the code that its authors
released has a third, the estimator. A controller sees a batch's size and its service time, one sample a batch, and
never how long queries have waited.
"""

from numbers import Integral
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from simserve.plugin import CustomPart, PartError, custom
from simserve.scheduling.controller.aimd import AIMD, Fixed
from simserve.scheduling.controller.base import LARGEST_LIMIT, Controller, Unpadded
from simserve.scheduling.controller.estimator import Estimator
from simserve.scheduling.controller.quantile import Quantile
from simserve.spec import BareName


class CustomController(CustomPart):
    """A class with `limit(slack_s)` and `observe(batch_size, service_s)`; what it aims at is a parameter of its own."""

    required_methods = ("limit", "observe")

    def controller(self, target_s: float, rng: np.random.Generator) -> Controller:
        """Return a new instance of the user's class."""
        return _Checked(self.path, self.make())


class _Checked(Unpadded):
    """A controller of the user's: what it says must be a size; of padding it need say nothing."""

    def __init__(self, path: str, made: Controller) -> None:
        self._path = path
        self._made = made
        self.observe = made.observe
        self._pads = hasattr(made, "run_size")

    def limit(self, slack_s: float) -> int:
        """Return what the class says."""
        return self._size("limit", self._made.limit(slack_s), 1)

    def run_size(self, taken: int) -> int:
        """Return what the class says, where it says something."""
        return self._size("run_size", self._made.run_size(taken), taken) if self._pads else taken

    def _size(self, method: str, size: Any, least: int) -> int:
        if not isinstance(size, Integral) or (whole := int(size)) < least:
            raise PartError(f"{self._path}: {method} must return a whole number of at least {least}; got {size!r}")
        return min(whole, LARGEST_LIMIT)


_Kinds = Annotated[Fixed | AIMD | Quantile | Estimator | CustomController, Field(discriminator="kind")]
ControllerSpec = Annotated[_Kinds, custom(CustomController), BareName]
"""The batch-size controllers, told apart by `kind`."""

__all__ = ["AIMD", "Controller", "ControllerSpec", "Fixed"]
