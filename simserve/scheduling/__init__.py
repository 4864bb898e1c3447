"""Who goes next, and how prompts share iterations with decodes: pure policies, without a clock."""

from simserve.scheduling.order import FCFS, OrderSpec
from simserve.scheduling.prefill import Chunked, Mixed, PrefillPlacement, PrefillSpec
from simserve.scheduling.prefix_order import DepthFirst, LongestPrefix, PrefixLookup, PrefixOrderSpec
from simserve.scheduling.queue import WaitingQueue

__all__ = [
    "FCFS",
    "Chunked",
    "DepthFirst",
    "LongestPrefix",
    "Mixed",
    "OrderSpec",
    "PrefillPlacement",
    "PrefillSpec",
    "PrefixLookup",
    "PrefixOrderSpec",
    "WaitingQueue",
]
