"""Who goes next, and how prompts share iterations with decodes: pure policies, without a clock."""

from simserve.scheduling.controller import AIMD, Controller, ControllerSpec
from simserve.scheduling.order import FCFS, OrderSpec
from simserve.scheduling.prefill import Chunked, Mixed, PrefillPlacement, PrefillSpec
from simserve.scheduling.prefix_order import DepthFirst, LongestPrefix, PrefixLookup
from simserve.scheduling.queue import WaitingQueue
from simserve.scheduling.selection import Choice, Exp3, Majority, Selection, SelectionSpec, Single

__all__ = [
    "AIMD",
    "FCFS",
    "Choice",
    "Chunked",
    "Controller",
    "ControllerSpec",
    "DepthFirst",
    "Exp3",
    "LongestPrefix",
    "Majority",
    "Mixed",
    "OrderSpec",
    "PrefillPlacement",
    "PrefillSpec",
    "PrefixLookup",
    "Selection",
    "SelectionSpec",
    "Single",
    "WaitingQueue",
]
