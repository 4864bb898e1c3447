"""What the world sends: when requests arrive and how long they are, from explicit random streams."""

from simserve.workload.arrivals import ArrivalSpec
from simserve.workload.lengths import LengthSpec
from simserve.workload.queries import Queries, QuerySpec
from simserve.workload.streams import Streams
from simserve.workload.traffic import Traffic
from simserve.workload.workload import Workload, WorkloadSpec

__all__ = ["ArrivalSpec", "LengthSpec", "Queries", "QuerySpec", "Streams", "Traffic", "Workload", "WorkloadSpec"]
