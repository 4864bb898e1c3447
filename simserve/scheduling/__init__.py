"""Who goes next: pure policies, without a clock. Today the order of the waiting queue."""

from typing import Annotated

from simserve.scheduling.order import FCFS, WaitingQueue
from simserve.spec import BareName

OrderSpec = Annotated[FCFS, BareName]
"""The queue orders, told apart by `kind`."""

__all__ = ["FCFS", "OrderSpec", "WaitingQueue"]
