"""What the world sends: one request for text."""

import math
from typing import NamedTuple

from simserve.content import Content, own_output, own_prompt


class Request(NamedTuple):
    """One request, known whole to the simulator and only in part to the policies it is given to.

    A named tuple rather than a dataclass: a run makes a million of them, and a tuple is frozen and cheap.
    """

    id: int
    """Position in order of arrival, from 0."""
    arrival_s: float
    """When it arrives, in seconds from the start of the run."""
    prompt_tokens: int
    output_tokens: int
    """How many tokens it generates before it ends; the first comes out of its prefill."""
    max_tokens: int
    """Longest it may grow, prompt and output together: its own limit (Orca's `max_tokens`)."""
    client: int = 0
    """Which of the workload's clients sent it."""
    priority: int = 0
    """Lower is more urgent."""
    deadline_s: float = math.inf
    """When it should be answered, in seconds from the start of the run."""
    content: Content = ()
    """What its prompt says; empty where the workload does not tell, and then it is like no other."""

    @property
    def total_tokens(self) -> int:
        """Prompt and output together."""
        return self.prompt_tokens + self.output_tokens

    def text(self, generated_tokens: int = 0) -> Content:
        """Return what it has said so far: its prompt and the first `generated_tokens` of its output."""
        prompt = self.content or ((own_prompt(self.id), self.prompt_tokens),)
        return (*prompt, (own_output(self.id), generated_tokens)) if generated_tokens else prompt
