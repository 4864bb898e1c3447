"""Iteration-level scheduling with selective batching: what is now called continuous batching.

Orca (Yu et al., OSDI 2022, Algorithm 1) with one batch in flight: before every iteration the head of the queue is
admitted as long as seats and memory last, prompts and decodes share the iteration, and a request leaves after its
last token.
"""

from simserve.engine.base import Engine
from simserve.request import Request


class ContinuousEngine(Engine):
    """A metro: at every stop some get off and others get on."""

    leave_together = False

    def _doors_open(self) -> bool:
        return True

    def _finish_iteration(self, request: Request) -> int:
        return self._log.iteration - 1
