"""Who goes next, and how prompts share iterations with decodes: pure policies, without a clock."""

from simserve.scheduling.order import FCFS, OrderSpec
from simserve.scheduling.prefill import Chunked, Mixed, PrefillPlacement, PrefillSpec
from simserve.scheduling.queue import WaitingQueue

__all__ = ["FCFS", "Chunked", "Mixed", "OrderSpec", "PrefillPlacement", "PrefillSpec", "WaitingQueue"]
