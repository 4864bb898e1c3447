"""Request-level batching, also called static batching: a batch starts together and ends together.

An idle engine at once takes what has arrived, up to `max_batch_size`, first come first served; one unpadded prefill
emits every first token; then every seat decodes, finished ones too (their context grows, their LM head is paid for),
until the longest output ends. Tokens stream as they are produced: a request finishes with its own last token.
"""

from simserve.engine.base import Engine
from simserve.request import Request


class RequestLevelEngine(Engine):
    """A tour coach: it leaves with who is there, and nobody gets off before the last stop."""

    leave_together = True

    def _doors_open(self) -> bool:
        return self._running == 0

    def _finish_iteration(self, request: Request) -> int:
        return self._log.first_token_iteration[request.id] + request.output_tokens - 1
