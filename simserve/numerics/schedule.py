"""Which request ran in which iteration, as plain data, and as a chart of text."""

from typing import Literal, NamedTuple

from simserve.batch import Work
from simserve.request import Request

Phase = Literal["P", "D", "-"]
"""Prefill: tokens of the prompt; decode; or an idle seat, held by a request that has ended."""


class Cell(NamedTuple):
    """What one request did in one iteration."""

    request_id: int
    phase: Phase
    new_tokens: int
    """Tokens computed: 0 in an idle seat."""
    past_tokens: int
    """Tokens whose KV was there before."""
    emits: bool
    """Whether a token came out."""


class Iteration(NamedTuple):
    """One forward pass."""

    number: int
    """The second at which it starts; each takes one. Numbers are left out while there is nothing to do."""
    cells: tuple[Cell, ...]
    """Everyone who has a seat and a part in it, in order of admission."""
    work: Work
    """What the forward pass counted."""


class Schedule(NamedTuple):
    """All iterations of a run, and the requests that they served, in order of arrival."""

    requests: tuple[Request, ...]
    iterations: tuple[Iteration, ...]


def chart_rows(schedule: Schedule) -> dict[int, str]:
    """Return a row for each request id, a character for each iteration number from 0.

    `P` prefill, `D` decode, `-` idle seat, `·` arrived and waiting, blank before arrival; a row ends with the seat.
    """
    phases: dict[int, dict[int, Phase]] = {request.id: {} for request in schedule.requests}
    for iteration in schedule.iterations:
        for cell in iteration.cells:
            phases[cell.request_id][iteration.number] = cell.phase
    rows = {}
    for request in schedule.requests:
        ran = phases[request.id]
        waits = ("·" if number >= request.arrival_s else " " for number in range(max(ran, default=-1) + 1))
        rows[request.id] = "".join(ran.get(number, blank) for number, blank in enumerate(waits))
    return rows


def chart(schedule: Schedule) -> str:
    """Return the schedule as lines of text: a row for each request, a column for each iteration."""
    rows = chart_rows(schedule)
    width = max((len(f"r{request_id}") for request_id in rows), default=0) + 2
    header = "".join(str(number % 10) for number in range(max(map(len, rows.values()), default=0)))
    lines = [" " * width + header]
    lines += (f"r{request_id}".ljust(width) + row for request_id, row in rows.items())
    return "\n".join(lines)
