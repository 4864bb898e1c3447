"""Which prompts begin alike: what stands before the new text of each request.

With one of these, `prompt_tokens` of the workload is the *new* text of a request, and what it shares with others stands
before it: a system prompt, the conversation so far, a path through a tree. A trace says itself what its prompts are.
"""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simserve.content import Content, num_tokens, own_prompt
from simserve.spec import Count, NonNegative, Spec
from simserve.workload.lengths import Lengths, LengthSpec, Listed
from simserve.workload.streams import Streams

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_LEAVES = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Who sends a request when, in order of arrival."""

    arrival_s: Floats
    client: Ints
    """By its place among the workload's clients."""
    session: Ints
    """Which conversation each request is a turn of."""


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """What each request says, and how much it says back."""

    prompt_tokens: Ints
    output_tokens: Ints
    content: tuple[Content, ...] | None
    """None where all is new from the first token."""


class Prefixes(Spec):
    """What stands before the new text of each request."""

    kind: str

    def schedule(self, first_turns: Schedule, streams: Streams) -> Schedule:
        """Return when requests arrive, given when they would if each was a conversation of its own: then."""
        return first_turns

    @abstractmethod
    def write(
        self, schedule: Schedule, new_tokens: Ints, output_tokens: Ints, max_total_tokens: int | None, streams: Streams
    ) -> Texts:
        """Return the requests with what they say; outputs are shortened where prompt and output exceed the maximum."""


class HeadedPrefixes(Prefixes):
    """One of a few texts before the new text of each request."""

    @abstractmethod
    def heads(self, streams: Streams) -> list[Content]:
        """Return the texts."""

    @abstractmethod
    def choose(self, size: int, streams: Streams) -> Ints:
        """Return which of the texts each request begins with."""

    def write(
        self, schedule: Schedule, new_tokens: Ints, output_tokens: Ints, max_total_tokens: int | None, streams: Streams
    ) -> Texts:
        """Put each request's head before its new text."""
        heads, which = self.heads(streams), self.choose(len(new_tokens), streams)
        prompt = np.array([num_tokens(head) for head in heads], dtype=np.int64)[which] + new_tokens
        content = tuple(
            (*heads[head], (own_prompt(i), new))
            for i, (head, new) in enumerate(zip(which.tolist(), new_tokens.tolist(), strict=True))
        )
        return Texts(prompt, shortened(output_tokens, prompt, max_total_tokens), content)


def shortened(output_tokens: Ints, prompt_tokens: Ints, max_total_tokens: int | None) -> Ints:
    """Return outputs that end where prompt and output reach the maximum, but not before their first token."""
    if max_total_tokens is None:
        return output_tokens
    shortened: Ints = np.clip(max_total_tokens - prompt_tokens, 1, output_tokens)
    return shortened


def _must_have(lengths: Lengths, size: int, what: str) -> None:
    if isinstance(lengths, Listed) and len(lengths.values) < size:
        raise ValueError(f"{len(lengths.values)} listed values are too few for {size} {what}")


class SharedPrefixes(HeadedPrefixes):
    """A system prompt before each text: one for each group of requests, some groups more popular than others."""

    kind: Literal["shared"] = "shared"
    groups: Annotated[Count, Field(le=MOST_LEAVES)] = 1
    """How many system prompts there are."""
    zipf: NonNegative = 1.0
    """The k-th group has a share of the requests proportional to k to the power of -zipf; 0 makes all alike."""
    prefix_tokens: LengthSpec
    """Length of each group's system prompt."""

    @model_validator(mode="after")
    def _enough_lengths(self) -> Self:
        _must_have(self.prefix_tokens, self.groups, "groups")
        return self

    @property
    def shares(self) -> Floats:
        """The share of the requests that each group has."""
        popularity = np.arange(1, self.groups + 1) ** -self.zipf
        shares: Floats = popularity / popularity.sum()
        return shares

    def heads(self, streams: Streams) -> list[Content]:
        """Return the system prompts."""
        lengths = self.prefix_tokens.sample(self.groups, streams.generator("prefix lengths")).tolist()
        return [((group, tokens),) for group, tokens in enumerate(lengths)]

    def choose(self, size: int, streams: Streams) -> Ints:
        """Return the group of each request."""
        chosen: Ints = streams.generator("prefix groups").choice(self.groups, size, p=self.shares)
        return chosen


class TreePrefixes(HeadedPrefixes):
    """A path from the root of a tree to a leaf before each text: few-shot examples, tree of thought.

    Each leaf comes once, shuffled; then each comes once again, shuffled anew.
    """

    kind: Literal["tree"] = "tree"
    depth: Annotated[Count, Field(le=20)]
    """Edges from the root to a leaf."""
    fan_out: Annotated[Count, Field(le=MOST_LEAVES)]
    """Edges that leave each node."""
    edge_tokens: LengthSpec

    @model_validator(mode="after")
    def _not_too_large(self) -> Self:
        if self.num_leaves > MOST_LEAVES:
            raise ValueError(f"fan_out to the power of depth is {self.num_leaves:,} leaves, more than {MOST_LEAVES:,}")
        _must_have(self.edge_tokens, sum(self.widths), "edges")
        return self

    @property
    def widths(self) -> list[int]:
        """How many edges there are on each level, from the root down."""
        return [self.fan_out**level for level in range(1, self.depth + 1)]

    @property
    def num_leaves(self) -> int:
        """How many paths there are."""
        return self.widths[-1]

    def heads(self, streams: Streams) -> list[Content]:
        """Return the path to each leaf; edges are numbered level by level, from left to right."""
        lengths = self.edge_tokens.sample(sum(self.widths), streams.generator("prefix lengths")).tolist()
        levels = list(zip(accumulate(self.widths, initial=0), self.widths, strict=False))
        paths = (
            [start + leaf * width // self.num_leaves for start, width in levels] for leaf in range(self.num_leaves)
        )
        return [tuple((edge, lengths[edge]) for edge in path) for path in paths]

    def choose(self, size: int, streams: Streams) -> Ints:
        """Return the leaf of each request."""
        rng = streams.generator("prefix groups")
        rounds = [rng.permutation(self.num_leaves) for _ in range(-(-size // self.num_leaves))]
        return np.concatenate(rounds)[:size]
