"""A workload: a scenario's description of one, and the requests drawn from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from simserve.request import Request
from simserve.spec import Count, Spec
from simserve.workload.arrivals import ArrivalSpec
from simserve.workload.lengths import LengthSpec, Tokens
from simserve.workload.streams import Streams


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The requests of one run as columns, in order of arrival; iterating makes them one by one."""

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    max_tokens: NDArray[np.int64]
    client: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __iter__(self) -> Iterator[Request]:
        columns = (self.arrival_s, self.prompt_tokens, self.output_tokens, self.max_tokens, self.client)
        rows = zip(range(len(self)), *(column.tolist() for column in columns), strict=True)
        return map(tuple.__new__, repeat(Request), rows)  # a third of the time of calling Request


class WorkloadSpec(Spec):
    """How many requests arrive, when, and how long they are."""

    num_requests: Count
    arrivals: ArrivalSpec
    prompt_tokens: LengthSpec
    output_tokens: LengthSpec
    max_output_tokens: Tokens | None = None
    """Every request's own limit on its output: cuts it, and is what `reserve: request` reserves beside the prompt."""
    max_total_tokens: Tokens | None = None
    """Shortens the output where prompt and output together are longer; at least one token of output stays."""

    def draw(self, streams: Streams) -> Workload:
        """Draw the requests of one replication."""
        size = self.num_requests
        arrival_s = self.arrivals.sample_s(size, streams.generator("arrivals"))
        prompt = self.prompt_tokens.sample(size, streams.generator("prompt lengths"))
        output = self.output_tokens.sample(size, streams.generator("output lengths"))
        if self.max_output_tokens is not None:
            output = np.minimum(output, self.max_output_tokens)
        if self.max_total_tokens is not None:
            output = np.clip(self.max_total_tokens - prompt, 1, output)
        limit = prompt + (output if self.max_output_tokens is None else self.max_output_tokens)
        if self.max_total_tokens is not None:
            limit = np.maximum(prompt + output, np.minimum(limit, self.max_total_tokens))
        return Workload(arrival_s, prompt, output, limit, np.zeros(size, dtype=np.int64))
