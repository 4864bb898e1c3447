"""How long an iteration takes: from a `Batch` to seconds. Pure: knows nothing of queues, memory or time."""

from typing import Annotated

from pydantic import Field

from simserve.cost.base import CostModel
from simserve.cost.linear import Linear
from simserve.cost.noise import NoiseSpec, NoNoise
from simserve.cost.profile import LatencyProfile, ProfileSpec, within
from simserve.cost.roofline import Roofline
from simserve.cost.service import CALM, Disturbance, Factor, ServiceTimes, Situation
from simserve.spec import BareName

CostSpec = Annotated[Annotated[Roofline | Linear, Field(discriminator="kind")], BareName]
"""The cost models, told apart by `kind`. Each builds a `CostModel` with `price(model, hardware)`."""

__all__ = [
    "CALM",
    "CostModel",
    "CostSpec",
    "Disturbance",
    "Factor",
    "LatencyProfile",
    "Linear",
    "NoNoise",
    "NoiseSpec",
    "ProfileSpec",
    "Roofline",
    "ServiceTimes",
    "Situation",
    "within",
]
