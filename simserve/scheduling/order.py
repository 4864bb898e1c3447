"""The order of the waiting queue. Only its head is ever admitted: no policy skips it."""

from collections import deque
from typing import Literal, Protocol

from simserve.request import Request
from simserve.spec import Spec


class WaitingQueue(Protocol):
    """Requests that wait for admission, the next one first."""

    def push(self, request: Request) -> None:
        """Add a request."""

    def head(self) -> Request:
        """Return the request that goes next, and leave it there. The queue must not be empty."""

    def pop(self) -> Request:
        """Take the request that goes next."""

    def __len__(self) -> int: ...


class FCFS(Spec):
    """First come, first served."""

    kind: Literal["fcfs"] = "fcfs"

    def queue(self) -> "FCFSQueue":
        """Return an empty queue."""
        return FCFSQueue()


class FCFSQueue(deque[Request]):
    """A line at a counter."""

    push = deque.append
    pop = deque.popleft

    def head(self) -> Request:
        """Return who is first in line."""
        return self[0]
