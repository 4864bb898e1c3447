"""What all traffic has in common."""

from typing import Any

from simserve.spec import Count, Spec
from simserve.workload.arrivals import Listed as ListedArrivals
from simserve.workload.lengths import Listed as ListedLengths


class Traffic(Spec):
    """How many requests arrive; subclasses say when, and what they are."""

    num_requests: Count

    def check_listed(self, *parts: Any) -> None:
        """Raise ValueError for arrivals or lengths that are written out for fewer requests."""
        for part in parts:
            if isinstance(part, ListedArrivals | ListedLengths):
                listed = len(part.at_s if isinstance(part, ListedArrivals) else part.values)
                if listed < self.num_requests:
                    raise ValueError(f"{listed} listed values are too few for num_requests {self.num_requests}")
