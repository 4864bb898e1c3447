"""Conversations: each turn's prompt is all that was said before, and what the user says now."""

from abc import abstractmethod
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from simserve.content import Content, num_tokens, own_output, own_prompt
from simserve.spec import BareName, Duration, NonNegative, Spec
from simserve.workload.lengths import LengthSpec
from simserve.workload.prefixes import Floats, Ints, Prefixes, Schedule, SharedPrefixes, Texts
from simserve.workload.streams import Streams


class ThinkTime(Spec):
    """Seconds between the arrivals of two turns of a conversation."""

    kind: str

    @abstractmethod
    def sample_s(self, size: int, rng: np.random.Generator) -> Floats:
        """Return `size` times in seconds."""


class ConstantTime(ThinkTime):
    """Always the same time; a bare number is short for it."""

    kind: Literal["constant"] = "constant"
    seconds: Duration

    def sample_s(self, size: int, rng: np.random.Generator) -> Floats:
        """Return the same time, `size` times."""
        return np.full(size, float(self.seconds))


class ExponentialTime(ThinkTime):
    """Exponential times of a given mean."""

    kind: Literal["exponential"] = "exponential"
    mean_s: Duration

    def sample_s(self, size: int, rng: np.random.Generator) -> Floats:
        """Return `size` draws."""
        return rng.standard_exponential(size) * self.mean_s


class LognormalTime(ThinkTime):
    """Lognormal times with their own `mean_s` and `sigma`, the standard deviation of their logarithm."""

    kind: Literal["lognormal"] = "lognormal"
    mean_s: Duration
    sigma: Annotated[NonNegative, Field(le=10)]

    def sample_s(self, size: int, rng: np.random.Generator) -> Floats:
        """Return `size` draws."""
        return self.mean_s * rng.lognormal(-(self.sigma**2) / 2, self.sigma, size)


def _bare_number(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"kind": "constant", "seconds": value} if is_number else value


ThinkTimeSpec = Annotated[
    Annotated[ConstantTime | ExponentialTime | LognormalTime, Field(discriminator="kind")],
    BeforeValidator(_bare_number),
    BareName,
]
"""The distributions of think time, told apart by `kind`."""


class Sessions(Prefixes):
    """Conversations of several turns. The workload's arrivals are those of their first turns.

    Open loop: the next turn arrives a think time after the one before, whether that has been answered or not. The
    requests are the first `num_requests` in order of arrival, so the last conversations are cut off.
    """

    kind: Literal["sessions"] = "sessions"
    turns: LengthSpec
    """How many turns a conversation has."""
    think_s: ThinkTimeSpec
    """From the arrival of a turn to that of the next."""
    opening: SharedPrefixes | None = None
    """System prompts, with which conversations begin."""

    def schedule(self, first_turns: Schedule, streams: Streams) -> Schedule:
        """Return the turns of all conversations in order of arrival, as many as there are first turns.

        Those are the first of an endless stream, for each later conversation would begin after them.
        """
        size = len(first_turns.arrival_s)
        turns = self.turns.sample(size, streams.generator("session turns"))
        session = np.repeat(np.arange(size), turns)
        thought_s = np.cumsum(self.think_s.sample_s(len(session), streams.generator("think times")))
        first = np.cumsum(turns) - turns
        arrival_s = first_turns.arrival_s[session] + (thought_s - thought_s[first][session])
        order = np.argsort(arrival_s, kind="stable")[:size]
        return Schedule(arrival_s[order], first_turns.client[session[order]], session[order])

    def write(
        self, schedule: Schedule, new_tokens: Ints, output_tokens: Ints, max_total_tokens: int | None, streams: Streams
    ) -> Texts:
        """Let each turn say all that its conversation has said before, and its new text."""
        said = self._openings(schedule, streams)
        prompts, outputs, content = [], [], []
        rows = zip(schedule.session.tolist(), new_tokens.tolist(), output_tokens.tolist(), strict=True)
        for i, (session, new, output) in enumerate(rows):
            before, tokens = said.get(session, ((), 0))
            prompt, text = tokens + new, (*before, (own_prompt(i), new))
            if max_total_tokens is not None:
                output = max(1, min(output, max_total_tokens - prompt))
            said[session] = ((*text, (own_output(i), output)), prompt + output)
            prompts.append(prompt)
            outputs.append(output)
            content.append(text)
        return Texts(np.array(prompts, dtype=np.int64), np.array(outputs, dtype=np.int64), tuple(content))

    def _openings(self, schedule: Schedule, streams: Streams) -> dict[int, tuple[Content, int]]:
        """Return what has been said in each conversation before its first turn, and its length."""
        if self.opening is None:
            return {}
        heads = self.opening.heads(streams)
        chosen = self.opening.choose(len(schedule.session), streams).tolist()
        return {session: (heads[head], num_tokens(heads[head])) for session, head in enumerate(chosen)}
