"""A workload: a scenario's description of one, and the requests drawn from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simserve.content import Content
from simserve.request import Request
from simserve.spec import BareName, Name, Positive, Spec, Whole
from simserve.workload.arrivals import ArrivalSpec
from simserve.workload.lengths import LengthSpec, Tokens
from simserve.workload.prefixes import Schedule, SharedPrefixes, Texts, TreePrefixes, shortened
from simserve.workload.sessions import Sessions
from simserve.workload.streams import Streams
from simserve.workload.trace import Trace, TracePrefixes
from simserve.workload.traffic import Traffic

_Kinds = Annotated[SharedPrefixes | Sessions | TreePrefixes | TracePrefixes, Field(discriminator="kind")]
PrefixesSpec = Annotated[_Kinds, BareName]
"""What prompts have in common, told apart by `kind`."""

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
    content: tuple[Content, ...] | None = None
    """What each prompt says; None where all are new from the first token."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __iter__(self) -> Iterator[Request]:
        columns = (self.arrival_s, self.prompt_tokens, self.output_tokens, self.max_tokens, self.client)
        size = len(self)
        priority = repeat(0, size) if self.priority is None else self.priority.tolist()
        deadline_s = repeat(np.inf, size) if self.deadline_s is None else self.deadline_s.tolist()
        content = repeat((), size) if self.content is None else self.content
        rows = zip(range(size), *(column.tolist() for column in columns), priority, deadline_s, content, strict=True)
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

    arrivals: ArrivalSpec | None = None
    """With `prefixes: sessions`, when conversations begin. Only a trace of `prefixes` can stand in for it."""
    prompt_tokens: LengthSpec | None = None
    """With `prefixes`, what is new in a prompt; a trace has its own."""
    output_tokens: LengthSpec | None = None
    """Only a trace of `prefixes` can stand in for it."""
    prefixes: PrefixesSpec | None = None
    """What prompts have in common; nothing where left out."""
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
        self.check_listed(self.arrivals, self.prompt_tokens, self.output_tokens, *own)
        return self

    @model_validator(mode="after")
    def _trace_or_drawn(self) -> Self:
        """Let a trace say how long prompts are, and nobody else beside it; without one, all must be given."""
        names = ("arrivals", "prompt_tokens", "output_tokens")
        if (trace := self._trace) is None:
            if missing := [name for name in names if getattr(self, name) is None]:
                raise ValueError(f"{' and '.join(missing)} must be given; only prefixes of kind trace can stand in")
            return self
        if self.prompt_tokens or any(client.prompt_tokens for client in self.clients.values()):
            raise ValueError("leave prompt_tokens out: prefixes of kind trace say what the prompts are")
        if len(trace) < self.num_requests:
            raise ValueError(f"the trace has {len(trace):,} requests, too few for num_requests {self.num_requests:,}")
        return self

    @property
    def _trace(self) -> Trace | None:
        return self.prefixes.trace() if isinstance(self.prefixes, TracePrefixes) else None

    def draw(self, streams: Streams) -> Workload:
        """Draw the requests of one replication."""
        schedule = self._draw_schedule(streams)
        texts = self._draw_texts(schedule, streams)
        prompt, output, clients = texts.prompt_tokens, texts.output_tokens, list(self.clients.values())
        limit = prompt + (output if self.max_output_tokens is None else self.max_output_tokens)
        if self.max_total_tokens is not None:
            limit = np.maximum(prompt + output, np.minimum(limit, self.max_total_tokens))
        patience_s = np.array([np.inf if c.deadline_s is None else c.deadline_s for c in clients])
        return Workload(
            arrival_s=schedule.arrival_s,
            prompt_tokens=prompt,
            output_tokens=output,
            max_tokens=limit,
            client=schedule.client,
            client_names=tuple(self.clients),
            priority=np.array([c.priority for c in clients])[schedule.client],
            deadline_s=schedule.arrival_s + patience_s[schedule.client],
            content=texts.content,
        )

    def _draw_schedule(self, streams: Streams) -> Schedule:
        size, trace = self.num_requests, self._trace
        if self.arrivals is not None:
            arrival_s = self.arrivals.sample_s(size, streams.generator("arrivals"))
        else:
            assert trace is not None, "a workload without arrivals has a trace"
            arrival_s = trace.arrival_s[:size]
        schedule = Schedule(arrival_s, self._draw_clients(streams), np.arange(size))
        return self.prefixes.schedule(schedule, streams) if self.prefixes else schedule

    def _draw_texts(self, schedule: Schedule, streams: Streams) -> Texts:
        """Draw what each request says and answers, within the limits of the workload."""
        prompt = self._draw_lengths("prompt", schedule.client, streams)
        output = self._draw_lengths("output", schedule.client, streams)
        if self.max_output_tokens is not None:
            output = np.minimum(output, self.max_output_tokens)
        if self.prefixes is None:
            return Texts(prompt, shortened(output, prompt, self.max_total_tokens), None)
        return self.prefixes.write(schedule, prompt, output, self.max_total_tokens, streams)

    def _draw_clients(self, streams: Streams) -> Ints:
        shares = np.array([client.share for client in self.clients.values()])
        client: Ints = streams.generator("clients").choice(len(shares), self.num_requests, p=shares / shares.sum())
        return client

    def _draw_lengths(self, which: Literal["prompt", "output"], client: Ints, streams: Streams) -> Ints:
        """Draw as many lengths of each kind as there are requests, and take each request's own."""
        field = f"{which}_tokens"
        lengths: Ints
        if (usual := getattr(self, field)) is None:
            lengths = getattr(self._trace, field)[: self.num_requests]
        else:
            lengths = usual.sample(self.num_requests, streams.generator(f"{which} lengths"))
        for i, (name, own) in enumerate(self.clients.items()):
            if (spec := getattr(own, field)) is not None:
                drawn = spec.sample(self.num_requests, streams.generator(f"{which} lengths of client {name}"))
                lengths = np.where(client == i, drawn, lengths)
        return lengths
