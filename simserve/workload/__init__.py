"""What the world sends: when requests arrive, how long they are and what they share, from explicit random streams."""

from simserve.workload.arrivals import ArrivalSpec
from simserve.workload.lengths import LengthSpec
from simserve.workload.queries import Queries, QuerySpec
from simserve.workload.streams import Streams
from simserve.workload.traffic import Traffic
from simserve.workload.workload import PrefixesSpec, Workload, WorkloadSpec

__all__ = [
    "ArrivalSpec",
    "LengthSpec",
    "PrefixesSpec",
    "Queries",
    "QuerySpec",
    "Streams",
    "Traffic",
    "Workload",
    "WorkloadSpec",
]
