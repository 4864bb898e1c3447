"""How long an iteration takes: from a `Batch` to seconds. Pure: knows nothing of queues, memory or time."""

from typing import Annotated

from pydantic import Field

from simserve.cost.base import CostModel
from simserve.cost.linear import Linear
from simserve.cost.roofline import Roofline
from simserve.spec import BareName

CostSpec = Annotated[Annotated[Roofline | Linear, Field(discriminator="kind")], BareName]
"""The cost models, told apart by `kind`. Each builds a `CostModel` with `price(model, hardware)`."""

__all__ = ["CostModel", "CostSpec", "Linear", "Roofline"]
