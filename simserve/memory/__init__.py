"""The KV memory of the GPU: `try_admit`, `join`, `grow`, `free`; and the host memory that preempted requests go to."""

from typing import Annotated

from pydantic import Field

from simserve.memory.base import Memory
from simserve.memory.block_tables import BlockTables
from simserve.memory.host import HostMemory, PreemptionSpec, Recompute, Swap
from simserve.memory.paged import Paged
from simserve.memory.prediction_cache import Clock, ClockCache
from simserve.memory.prefix import BlockPrefix, PrefixCache, PrefixSpec, RadixPrefix
from simserve.memory.reservation import Reservation
from simserve.memory.shared import SharedMemory
from simserve.memory.unlimited import Unlimited
from simserve.spec import BareName

MemorySpec = Annotated[Annotated[Reservation | Paged | Unlimited, Field(discriminator="kind")], BareName]
"""The memory managers, told apart by `kind`. Each builds a `Memory` with `manager(capacity_tokens)`."""

__all__ = [
    "BlockPrefix",
    "BlockTables",
    "Clock",
    "ClockCache",
    "HostMemory",
    "Memory",
    "MemorySpec",
    "Paged",
    "PreemptionSpec",
    "PrefixCache",
    "PrefixSpec",
    "RadixPrefix",
    "Recompute",
    "Reservation",
    "SharedMemory",
    "Swap",
    "Unlimited",
]
