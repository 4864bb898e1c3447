"""A workload: a scenario's description of one, and the requests drawn from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simserve.request import Request
from simserve.spec import Name, Positive, Spec, Whole
from simserve.workload.lengths import LengthSpec, Listed, Tokens
from simserve.workload.streams import Streams
from simserve.workload.traffic import Traffic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The requests of one run as columns, in order of arrival; iterating makes them one by one."""

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    max_tokens: Ints
    client: Ints
    """Which of `client_names` sent it."""
    client_names: tuple[str, ...] = ("default",)
    priority: Ints | None = None
    """Lower is more urgent; None where all are 0."""
    deadline_s: Floats | None = None
    """When each should be answered; None where none has a deadline."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __iter__(self) -> Iterator[Request]:
        columns = (self.arrival_s, self.prompt_tokens, self.output_tokens, self.max_tokens, self.client)
        size = len(self)
        priority = repeat(0, size) if self.priority is None else self.priority.tolist()
        deadline_s = repeat(np.inf, size) if self.deadline_s is None else self.deadline_s.tolist()
        rows = zip(range(size), *(column.tolist() for column in columns), priority, deadline_s, strict=True)
        return map(tuple.__new__, repeat(Request), rows)  # a third of the time of calling Request


class Client(Spec):
    """One kind of sender: its share of the requests, how urgent they are, and how long."""

    share: Positive = 1.0
    """How many of the requests it sends, relative to the shares of the others."""
    priority: Annotated[int, Whole] = 0
    """For `order: priority`; lower goes first."""
    deadline_s: Positive | None = None
    """For `order: edf`; seconds after its arrival by which a request should be answered."""
    prompt_tokens: LengthSpec | None = None
    """Its own prompt lengths, instead of the workload's."""
    output_tokens: LengthSpec | None = None
    """Its own output lengths, instead of the workload's."""


class WorkloadSpec(Traffic):
    """How many requests arrive, when, how long they are, and who sends them."""

    prompt_tokens: LengthSpec
    output_tokens: LengthSpec
    max_output_tokens: Tokens | None = None
    """Every request's own limit on its output: cuts it, and is what `reserve: request` reserves beside the prompt."""
    max_total_tokens: Tokens | None = None
    """Shortens the output where prompt and output together are longer; at least one token of output stays."""
    clients: Annotated[dict[Name, Client], Field(default_factory=lambda: {"default": Client()}, min_length=1)]
    """Who sends the requests, by name; each request comes from one of them at random, by their shares."""

    @model_validator(mode="after")
    def _lists_are_long_enough(self) -> Self:
        own = [
            getattr(client, field) for client in self.clients.values() for field in ("prompt_tokens", "output_tokens")
        ]
        for part in (self.prompt_tokens, self.output_tokens, *own):
            if isinstance(part, Listed) and len(part.values) < self.num_requests:
                raise ValueError(f"{len(part.values)} listed values are too few for num_requests {self.num_requests}")
        return self

    def draw(self, streams: Streams) -> Workload:
        """Draw the requests of one replication."""
        size, clients = self.num_requests, list(self.clients.values())
        arrival_s = self.arrivals.sample_s(size, streams.generator("arrivals"))
        client = self._draw_clients(streams)
        prompt = self._draw_lengths("prompt", client, streams)
        output = self._draw_lengths("output", client, streams)
        if self.max_output_tokens is not None:
            output = np.minimum(output, self.max_output_tokens)
        if self.max_total_tokens is not None:
            output = np.clip(self.max_total_tokens - prompt, 1, output)
        limit = prompt + (output if self.max_output_tokens is None else self.max_output_tokens)
        if self.max_total_tokens is not None:
            limit = np.maximum(prompt + output, np.minimum(limit, self.max_total_tokens))
        patience_s = np.array([np.inf if c.deadline_s is None else c.deadline_s for c in clients])
        return Workload(
            arrival_s=arrival_s,
            prompt_tokens=prompt,
            output_tokens=output,
            max_tokens=limit,
            client=client,
            client_names=tuple(self.clients),
            priority=np.array([c.priority for c in clients])[client],
            deadline_s=arrival_s + patience_s[client],
        )

    def _draw_clients(self, streams: Streams) -> Ints:
        shares = np.array([client.share for client in self.clients.values()])
        client: Ints = streams.generator("clients").choice(len(shares), self.num_requests, p=shares / shares.sum())
        return client

    def _draw_lengths(self, which: Literal["prompt", "output"], client: Ints, streams: Streams) -> Ints:
        """Draw as many lengths of each kind as there are requests, and take each request's own."""
        field = f"{which}_tokens"
        lengths: Ints = getattr(self, field).sample(self.num_requests, streams.generator(f"{which} lengths"))
        for i, (name, own) in enumerate(self.clients.items()):
            if (spec := getattr(own, field)) is not None:
                drawn = spec.sample(self.num_requests, streams.generator(f"{which} lengths of client {name}"))
                lengths = np.where(client == i, drawn, lengths)
        return lengths
