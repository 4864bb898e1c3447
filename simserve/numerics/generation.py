"""Generation on the real model under three schedules: the tokens are the same, only when they are computed differs.

Time is in iterations of one second. An arrival at the instant an iteration starts is seen by it.
"""

import math
from collections.abc import Sequence

from simserve.numerics.machine import Generated, Machine, Member, Piece
from simserve.numerics.model import Llama
from simserve.numerics.prompt import Prompt
from simserve.numerics.sampling import Greedy, Sampler

GREEDY = Greedy()


def generate_sequential(
    model: Llama, prompts: Sequence[Prompt], *, sampler: Sampler = GREEDY, block_tokens: int | None = None
) -> Generated:
    """Serve one request after the other, each alone, in order of arrival. Arguments as `generate_continuous`."""
    return generate_static(model, prompts, 1, sampler=sampler, block_tokens=block_tokens)


def generate_static(
    model: Llama,
    prompts: Sequence[Prompt],
    max_batch_size: int,
    *,
    sampler: Sampler = GREEDY,
    block_tokens: int | None = None,
) -> Generated:
    """Serve batches that start and end together: request-level scheduling. Arguments as `generate_continuous`.

    An idle machine takes what has arrived, up to `max_batch_size`; the first iteration computes all prompts, the others
    decode until the longest output ends. Who ended earlier keeps an idle seat (`-` in the schedule).
    """
    machine = Machine(model, prompts, max_batch_size, sampler, block_tokens)
    while machine.waiting:
        machine.wait_for_arrival()
        batch: list[Member] = []
        while len(batch) < max_batch_size and (newcomer := machine.admit()):
            batch.append(newcomer)
        while not all(member.done for member in batch):
            machine.iterate([(member, 0 if member.done else member.outstanding) for member in batch])
        machine.release(batch)
    return machine.generated()


def generate_continuous(
    model: Llama,
    prompts: Sequence[Prompt],
    max_batch_size: int,
    *,
    budget_tokens: int | None = None,
    sampler: Sampler = GREEDY,
    block_tokens: int | None = None,
) -> Generated:
    """Serve by the iteration (Orca, section 3.1): newcomers take free seats before each, who has ended leaves after it.

    Args:
        model: what computes.
        prompts: requests with their prompts; ids differ.
        max_batch_size: seats.
        budget_tokens: most tokens of an iteration, prompts and decodes together, at least `max_batch_size`; decodes go
            first, and a prompt that does not fit is computed in chunks (Sarathi-Serve, OSDI 2024). None for no limit.
        sampler: picks each token out of its logits.
        block_tokens: the size of the pages of the KV cache; None for a contiguous one.

    Raises:
        ValueError: a prompt that the model cannot serve (see `check_prompts`), no seats, or too small a budget.
    """
    if budget_tokens is not None and budget_tokens < max_batch_size:
        raise ValueError(
            f"budget_tokens ({budget_tokens}) is below max_batch_size ({max_batch_size}): decodes alone could exceed it"
        )
    machine = Machine(model, prompts, max_batch_size, sampler, block_tokens)
    running: list[Member] = []
    while machine.waiting or running:
        if not running:
            machine.wait_for_arrival()
        pieces = _compose(machine, running, math.inf if budget_tokens is None else budget_tokens)
        machine.iterate(pieces)
        machine.release(member for member, _ in pieces if member.done)
        running = [member for member, _ in pieces if not member.done]
    return machine.generated()


def _compose(machine: Machine, running: Sequence[Member], budget: float) -> list[Piece]:
    """Return what the next iteration computes: who runs goes on, then newcomers are admitted while the budget lasts.

    A prompt that is cut short uses the budget up, so there is at most one, and it was admitted last. The budget is no
    smaller than the seats, so the decodes before it leave it at least one token.
    """
    pieces: list[Piece] = []
    for member in running:
        budget -= _cut(pieces, member, budget)
    while budget > 0 and len(pieces) < machine.seats and (newcomer := machine.admit()):
        budget -= _cut(pieces, newcomer, budget)
    return pieces


def _cut(pieces: list[Piece], member: Member, budget: float) -> int:
    """Add the next piece of a sequence, a decode or as much of its prompt as the budget allows; return its tokens."""
    new = int(min(member.outstanding, budget))
    pieces.append((member, new))
    return new
