"""A serving engine written to be obviously right: the oracle that the fast engine is compared with.

Every request is an object with its own context and the time of each of its tokens; one turn of the `while` loop is one
iteration of the engine and looks at every running request and sorts the whole queue. No events, no heap, no shortcuts,
and no code shared with the engine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple


class Piece(NamedTuple):
    """What a request computes in one iteration."""

    new: int
    past: int
    """Tokens whose KV is there already, and read."""
    prompt: bool = False
    """Whether it is of a prompt; else it is a decode."""
    emits: bool = True
    """Whether a token comes out: of every decode, and of the last piece of a prompt."""


Cost = Callable[[list[Piece]], float]


@dataclass(eq=False)
class Job:
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    priority: int = 0
    deadline_s: float = inf
    predicted_tokens: float = 0.0
    status: str = "waiting"
    computed_tokens: int = 0
    """Of the prompt."""
    context_tokens: int = 0
    """With KV written, of prompt and output."""
    admitted_s: float | None = None
    token_s: list[float] = field(default_factory=list)
    leave_s: float | None = None

    @property
    def prompt_done(self) -> bool:
        return self.computed_tokens == self.prompt_tokens

    @property
    def done(self) -> bool:
        return len(self.token_s) == self.output_tokens


@dataclass
class Iteration:
    start_s: float
    end_s: float
    prefill_tokens: int
    decode_sequences: int
    running: int
    waiting: int
    kv_reserved_tokens: int
    kv_stored_tokens: int


@dataclass(frozen=True)
class Memory:
    """`reserve` is max, pow2, oracle, request, or unlimited."""

    reserve: str = "unlimited"
    max_tokens: int | None = None
    capacity_tokens: int = 426_784
    """Llama-3-8B on an H100: (0.90 x 80e9 B - 16,060,522,496 B) / 131,072 B = 426,784.3 tokens."""

    def needs(self, job: Job) -> int:
        if self.reserve == "max":
            return self.max_tokens
        if self.reserve == "request":
            return job.max_tokens
        output = job.output_tokens
        if self.reserve == "pow2":
            output = 1
            while output < job.output_tokens:
                output *= 2
        return job.prompt_tokens + output

    def never(self, job: Job) -> bool:
        if self.reserve == "unlimited":
            return False
        too_long = self.max_tokens is not None and job.prompt_tokens + job.output_tokens > self.max_tokens
        return too_long or self.needs(job) > self.capacity_tokens

    def fits(self, job: Job, running: list[Job]) -> bool:
        return self.reserve == "unlimited" or self.held(running) + self.needs(job) <= self.capacity_tokens

    def held(self, running: list[Job]) -> int:
        if self.reserve == "unlimited":
            return sum(job.context_tokens for job in running)
        return sum(self.needs(job) for job in running)


@dataclass(frozen=True)
class Order:
    """`kind` is fcfs, sjf, ljf, priority or edf."""

    kind: str = "fcfs"
    skip_ahead: int = 0
    tokens_per_s: float = 0.0
    max_wait_s: float = inf

    def key(self, job: Job, now_s: float) -> float:
        if self.kind == "sjf":
            return job.predicted_tokens - self.tokens_per_s * (now_s - job.arrival_s)
        if self.kind == "ljf":
            return -job.predicted_tokens
        return {"fcfs": job.arrival_s, "priority": job.priority, "edf": job.deadline_s}[self.kind]

    def overdue(self, job: Job, now_s: float) -> bool:
        return now_s >= job.arrival_s + self.max_wait_s

    def line_up(self, waiting: list[Job], now_s: float) -> list[Job]:
        """Who has waited too long, by arrival; then everyone else by key, ties by arrival, as sorting is stable."""
        overdue = [job for job in waiting if self.overdue(job, now_s)]
        others = [job for job in waiting if not self.overdue(job, now_s)]
        return overdue + sorted(others, key=lambda job: self.key(job, now_s))


@dataclass(frozen=True)
class Placement:
    """As it stands, Orca: whole prompts beside the decodes."""

    pauses_decodes: bool = False
    prompt_budget: Callable[[int], int | None] = lambda decodes: None


def chunked(budget_tokens: int) -> Placement:
    """Sarathi-Serve: pieces of prompts fill up what the decodes leave of a budget of tokens."""
    return Placement(prompt_budget=lambda decodes: budget_tokens - decodes)


FIRST = Placement(pauses_decodes=True)
"""Early vLLM: prompts alone, and the decodes wait."""


def roofline(pieces: list[Piece]) -> float:
    """Llama-3-8B in bfloat16 on an H100 SXM at 70 % of its arithmetic and 80 % of its bandwidth."""
    flop, traffic = 0, 16_060_522_496
    for new, past, _, emits in pieces:
        flop += 13_958_643_712 * new + 524_288 * (new * past + new * (new + 1) // 2) + 1_050_673_152 * emits
        traffic += 131_072 * (past + new)
    return max(flop / (989.4e12 * 0.70), traffic / (3.35e12 * 0.80))


def linear(
    step_s: float = 0, prefill_token_s: float = 0, decode_sequence_s: float = 0, context_token_s: float = 0
) -> Cost:
    def cost(pieces: list[Piece]) -> float:
        prompts = sum(piece.new for piece in pieces if piece.prompt)
        decodes = sum(1 for piece in pieces if not piece.prompt)
        context = sum(piece.past for piece in pieces)
        return step_s + prefill_token_s * prompts + decode_sequence_s * decodes + context_token_s * context

    return cost


@dataclass(frozen=True)
class System:
    engine: str
    max_batch_size: int
    memory: Memory
    cost: Cost
    order: Order = Order()
    placement: Placement = Placement()


def take_in(coming: list[Job], waiting: list[Job], memory: Memory, now_s: float) -> None:
    """An arrival at the very instant an iteration ends has arrived; one that can never be served is turned away."""
    while coming and coming[0].arrival_s <= now_s:
        job = coming.pop(0)
        if memory.never(job):
            job.status = "rejected"
        else:
            waiting.append(job)


def compose(waiting: list[Job], running: list[Job], system: System, now_s: float) -> list[tuple[Job, Piece]]:
    """Choose what the next iteration computes, and admit whose prompt begins in it.

    An unfinished prompt goes on first. Then requests are admitted in the order of the queue, until budget or seats run
    out or one does not fit into memory, once as many as may be skipped have been. The decodes join unless prompts make
    them pause.
    """
    decoding = [job for job in running if job.prompt_done]
    budget = system.placement.prompt_budget(len(decoding))
    left = inf if budget is None else budget
    prompts = []

    def begin_or_go_on(job: Job) -> None:
        nonlocal left
        missing = job.prompt_tokens - job.computed_tokens
        new = min(missing, left)
        prompts.append((job, Piece(new, job.computed_tokens, prompt=True, emits=new == missing)))
        left -= new

    for job in running:
        if not job.prompt_done and left > 0:
            begin_or_go_on(job)
    if system.engine == "continuous" or not running:  # a static batch lets nobody in before all have left
        skips = 0
        for job in system.order.line_up(waiting, now_s):
            if left <= 0 or len(running) == system.max_batch_size:
                break
            if not system.memory.fits(job, running):
                skips += 1
                if skips > system.order.skip_ahead:
                    break
                continue
            job.status, job.admitted_s = "running", now_s
            waiting.remove(job)
            running.append(job)
            begin_or_go_on(job)
    if prompts and system.placement.pauses_decodes:
        return prompts
    return prompts + [(job, Piece(1, job.context_tokens)) for job in decoding]


def simulate(jobs: list[Job], system: System) -> list[Iteration]:
    """Serve the jobs, given in order of arrival, and fill in what happened to each; return what each iteration did."""
    coming, waiting, running, iterations = list(jobs), [], [], []
    now_s = 0.0
    while coming or waiting or running:
        take_in(coming, waiting, system.memory, now_s)
        work = compose(waiting, running, system, now_s)
        if not work:
            assert not waiting
            assert not running
            if coming:
                now_s = coming[0].arrival_s
            continue

        start_s, now_s = now_s, now_s + system.cost([piece for _, piece in work])
        for job, piece in work:
            job.context_tokens += piece.new
            if piece.prompt:
                job.computed_tokens += piece.new
            if piece.emits and not job.done:  # in a static batch those who are done go on, for nothing
                job.token_s.append(now_s)
        iterations.append(
            Iteration(
                start_s,
                now_s,
                prefill_tokens=sum(piece.new for _, piece in work if piece.prompt),
                decode_sequences=sum(1 for _, piece in work if not piece.prompt),
                running=len(running),
                waiting=len(waiting),
                kv_reserved_tokens=system.memory.held(running),
                kv_stored_tokens=sum(job.context_tokens for job in running),
            )
        )

        # One by one, or a static batch all together.
        everyone_done = all(job.done for job in running)
        for job in running:
            if everyone_done or (system.engine == "continuous" and job.done):
                job.status, job.leave_s = "finished", now_s
        running = [job for job in running if job.status == "running"]
    return iterations
