"""A serving engine written to be obviously right: the oracle that the fast engine is compared with.

Every request is an object with its own context and the time of each of its tokens; one turn of the `while` loop is one
iteration of the engine and looks at every running request and sorts the whole queue. No events, no heap, no shortcuts,
and no code shared with the engine.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, inf
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

Text = tuple[tuple[int, int], ...]
"""What is said, token by token: each is a passage and a place in it."""


@dataclass(eq=False)
class Job:
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    priority: int = 0
    deadline_s: float = inf
    predicted_tokens: float = 0.0
    text: Text = ()
    """All that it says in the end, prompt and output; only a prefix cache reads it."""
    number: int = 0
    """In order of arrival."""
    status: str = "waiting"
    to_compute: int = 0
    """The prompt; once preempted, with it what had been generated."""
    computed_tokens: int = 0
    """Of these."""
    context_tokens: int = 0
    """With KV written, of prompt and output."""
    preempted: bool = False
    """Whether it waits to come back."""
    back_s: float = 0.0
    """When its KV can be back from the host."""
    admitted_s: float | None = None
    token_s: list[float] = field(default_factory=list)
    leave_s: float | None = None
    cached_tokens: int = 0
    """Found in the prefix cache, over all admissions."""

    @property
    def prompt_done(self) -> bool:
        return self.computed_tokens == self.to_compute

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
    """`reserve` is max, pow2, oracle, request, unlimited or paged."""

    reserve: str = "unlimited"
    max_tokens: int | None = None
    block_tokens: int = 16
    watermark: float = 0.01
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
        if self.reserve == "paged":
            return self.blocks(job.prompt_tokens + job.output_tokens - 1) > self.blocks_free([]) - self.kept
        too_long = self.max_tokens is not None and job.prompt_tokens + job.output_tokens > self.max_tokens
        return too_long or self.needs(job) > self.capacity_tokens

    def fits(self, job: Job, running: list[Job]) -> bool:
        if self.reserve == "paged":
            need = self.blocks(job.to_compute) + self.new_blocks(running)
            return self.blocks_free(running) - need >= self.kept
        return self.reserve == "unlimited" or self.held(running) + self.needs(job) <= self.capacity_tokens

    def held(self, running: list[Job]) -> int:
        if self.reserve == "unlimited":
            return sum(job.context_tokens for job in running)
        if self.reserve == "paged":
            return (self.blocks_free([]) - self.blocks_free(running)) * self.block_tokens
        return sum(self.needs(job) for job in running)

    # In blocks.

    def blocks(self, tokens: int) -> int:
        return ceil(Fraction(tokens, self.block_tokens))

    @property
    def kept(self) -> int:
        """How many an admission leaves free."""
        return ceil(Fraction(str(self.watermark)) * self.blocks_free([]))

    def blocks_free(self, running: list[Job]) -> int:
        """Those of an unfinished prompt are taken for all of it."""
        held = [self.blocks(job.context_tokens if job.prompt_done else job.to_compute) for job in running]
        return self.capacity_tokens // self.block_tokens - sum(held)

    def new_blocks(self, running: list[Job]) -> int:
        """How many the next token of everyone who decodes needs."""
        return sum(1 for job in running if job.prompt_done and job.context_tokens % self.block_tokens == 0)

    def runs_short(self, running: list[Job]) -> bool:
        return self.reserve == "paged" and self.new_blocks(running) > self.blocks_free(running)

    def stored(self, running: list[Job]) -> int:
        return sum(job.context_tokens for job in running)

    # What happens to a job, for memory that remembers.

    def begin(self, job: Job) -> None:
        """It is admitted."""

    def schedule(self, job: Job, tokens: int) -> None:
        """The next iteration computes its prompt up to so many tokens."""

    def grow(self, job: Job) -> None:
        """The next iteration writes the KV of one more token, after its prompt."""

    def write(self, job: Job) -> None:
        """An iteration has computed a piece of its prompt."""

    def leave(self, job: Job) -> None:
        """It has ended, or is preempted."""


@dataclass(frozen=True)
class Host:
    """Without tokens it is recompute."""

    tokens: int = 0
    token_s: float = 0.0
    overlapped: bool = False

    def has_room(self, job: Job, waiting: list[Job]) -> bool:
        return sum(other.context_tokens for other in waiting) + job.context_tokens <= self.tokens

    def stall_s(self, tokens: int) -> float:
        return 0.0 if self.overlapped else tokens * self.token_s

    def away_s(self, tokens: int) -> float:
        """Out and in again, beside the iterations."""
        return 2 * tokens * self.token_s if self.overlapped else 0.0


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

    def line_up(self, waiting: list[Job], now_s: float) -> list[Job] | Iterator[Job]:
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
    host: Host = Host()


class Preemption(NamedTuple):
    number: int
    iteration: int
    swapped: bool
    tokens: int


def take_in(coming: list[Job], waiting: list[Job], memory: Memory, now_s: float) -> None:
    """An arrival at the very instant an iteration ends has arrived; one that can never be served is turned away."""
    while coming and coming[0].arrival_s <= now_s:
        job = coming.pop(0)
        if memory.never(job):
            job.status = "rejected"
        else:
            waiting.append(job)


def preempt(
    waiting: list[Job], running: list[Job], system: System, now_s: float, iteration: int
) -> tuple[list[Preemption], float]:
    """While not all who decode have room for their next token, the latest arrival leaves; return for how long KV moves.

    What has KV in the waiting list has it at the host.
    """
    done, stall_s = [], 0.0
    while system.memory.runs_short(running):
        job = max(running, key=lambda job: job.number)
        running.remove(job)
        system.memory.leave(job)
        if job.prompt_done:
            job.to_compute = job.prompt_tokens + len(job.token_s)
        swapped = system.host.has_room(job, waiting)
        done.append(Preemption(job.number, iteration, swapped, job.context_tokens))
        if swapped:
            stall_s += system.host.stall_s(job.context_tokens)
            job.back_s = now_s + system.host.away_s(job.context_tokens)
        else:
            job.context_tokens = 0
        job.computed_tokens = job.context_tokens
        job.status, job.preempted = "waiting", True
        waiting.append(job)
    return done, stall_s


def line_up(waiting: list[Job], system: System, now_s: float) -> Iterator[tuple[Job, int]]:
    """Yield who may be admitted, in order, and how many of those before each may be skipped.

    The preempted come first, by arrival, and nobody passes them. Who is next is asked when it is his turn: who went
    before may have changed the answer.
    """
    others = [job for job in waiting if not job.preempted]
    for job in sorted((job for job in waiting if job.preempted), key=lambda job: job.number):
        yield job, 0
    for job in system.order.line_up(others, now_s):
        yield job, system.order.skip_ahead


def admit(
    waiting: list[Job],
    running: list[Job],
    system: System,
    now_s: float,
    budget_left: Callable[[], bool],
    begin: Callable[[Job], None],
) -> list[Job]:
    """Move jobs from waiting to running as far as budget, seats and memory go, and begin the prompt of each."""
    admitted, skips = [], 0
    for job, may_skip in line_up(waiting, system, now_s):
        if not budget_left() or len(running) == system.max_batch_size:
            break
        if job.back_s > now_s or not system.memory.fits(job, running):
            skips += 1
            if skips > may_skip:
                break
            continue
        waiting.remove(job)
        running.append(job)
        system.memory.begin(job)
        begin(job)
        admitted.append(job)
    return admitted


def compose(
    waiting: list[Job], running: list[Job], system: System, now_s: float, may_admit: bool
) -> tuple[list[tuple[Job, Piece]], float]:
    """Choose what the next iteration computes, and admit whose prompt begins in it; return also for how long KV moves.

    An unfinished prompt goes on first. Then requests are admitted in the order of the queue, until budget or seats run
    out or one does not fit into memory, once as many as may be skipped have been. The decodes join unless prompts make
    them pause.
    """
    stall_s = 0.0
    decoding = [job for job in running if job.prompt_done]
    budget = system.placement.prompt_budget(len(decoding))
    left = inf if budget is None else budget
    prompts = []

    def begin_or_go_on(job: Job) -> None:
        nonlocal left
        missing = job.to_compute - job.computed_tokens
        new = min(missing, left)
        prompts.append((job, Piece(new, job.computed_tokens, prompt=True, emits=new == missing)))
        left -= new
        system.memory.schedule(job, job.computed_tokens + new)

    for job in running:
        if not job.prompt_done and left > 0:
            begin_or_go_on(job)
    if may_admit and (system.engine == "continuous" or not running):  # a static batch lets nobody in before all left
        for job in admit(waiting, running, system, now_s, lambda: left > 0, begin_or_go_on):
            if job.preempted:
                stall_s += system.host.stall_s(job.context_tokens)
            else:
                job.admitted_s = now_s
            job.status, job.preempted = "running", False
    # Who comes back with all its KV but that of its last token only decodes, and makes nobody pause.
    real = [job for job, piece in prompts if job.to_compute == job.prompt_tokens or piece.past < job.to_compute - 1]
    if real and system.placement.pauses_decodes:
        return prompts, stall_s
    return prompts + [(job, Piece(1, job.context_tokens)) for job in decoding], stall_s


def simulate(jobs: list[Job], system: System) -> tuple[list[Iteration], list[Preemption]]:
    """Serve the jobs, given in order of arrival, and fill in what happened to each; return what each iteration did."""
    coming, waiting, running, iterations, preemptions = list(jobs), [], [], [], []
    now_s = 0.0
    for number, job in enumerate(jobs):
        job.number, job.to_compute = number, job.prompt_tokens
    while coming or waiting or running:
        take_in(coming, waiting, system.memory, now_s)
        forced, out_s = preempt(waiting, running, system, now_s, len(iterations))
        preemptions += forced
        work, in_s = compose(waiting, running, system, now_s, may_admit=not forced)
        if not work:
            assert not running
            away = [job.back_s for job in waiting if job.back_s > now_s]  # or they would have come in
            assert away or not waiting
            now_s = min([job.arrival_s for job in coming[:1]] + away, default=now_s)
            continue

        for job, piece in work:
            if not piece.prompt:
                system.memory.grow(job)
        held = system.memory.held(running)
        start_s, now_s = now_s, now_s + (out_s + in_s) + system.cost([piece for _, piece in work])
        for job, piece in work:
            job.context_tokens += piece.new
            if piece.prompt:
                job.computed_tokens += piece.new
                system.memory.write(job)
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
                kv_reserved_tokens=max(
                    held, system.memory.held(running)
                ),  # computed twice, it is held twice until then
                kv_stored_tokens=system.memory.stored(running),
            )
        )

        running = retire(running, system, now_s)
    return iterations, preemptions


def retire(running: list[Job], system: System, now_s: float) -> list[Job]:
    """Let those leave who are done, a static batch all together; return who stays.

    Of several at once the longest output goes first, then the earliest arrival: so much for whose blocks are the older.
    """
    everyone_done = all(job.done for job in running)
    for job in sorted(running, key=lambda job: (-job.output_tokens, job.number)):
        if everyone_done or (system.engine == "continuous" and job.done):
            job.status, job.leave_s = "finished", now_s
            system.memory.leave(job)
    return [job for job in running if job.status == "running"]
