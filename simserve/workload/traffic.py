"""What all traffic has: how many requests, and when they arrive."""

from typing import Self

from pydantic import model_validator

from simserve.spec import Count, Spec
from simserve.workload.arrivals import ArrivalSpec, Listed


class Traffic(Spec):
    """How many requests arrive, and when."""

    num_requests: Count
    arrivals: ArrivalSpec

    @model_validator(mode="after")
    def _enough_arrivals(self) -> Self:
        if isinstance(self.arrivals, Listed) and len(self.arrivals.at_s) < self.num_requests:
            raise ValueError(
                f"{len(self.arrivals.at_s)} listed values are too few for num_requests {self.num_requests}"
            )
        return self
