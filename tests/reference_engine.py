"""A serving engine written to be obviously right: the oracle that the fast engine is compared with.

Every request is an object with its own context and the time of each of its tokens; one turn of the `while` loop is one
iteration of the engine and looks at every running request. No events, no heap, no shortcuts, and no code shared with
the engine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

Piece = tuple[int, int]
"""What a request computes in one iteration: new tokens, and past tokens whose KV is there. A prefill has no past."""
Cost = Callable[[list[Piece]], float]


@dataclass
class Job:
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    status: str = "waiting"
    context_tokens: int = 0
    admitted_s: float | None = None
    token_s: list[float] = field(default_factory=list)
    leave_s: float | None = None

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


def roofline(pieces: list[Piece]) -> float:
    """Llama-3-8B in bfloat16 on an H100 SXM at 70 % of its arithmetic and 80 % of its bandwidth."""
    flop, traffic = 0, 16_060_522_496
    for new, past in pieces:
        flop += 13_958_643_712 * new + 524_288 * (new * past + new * (new + 1) // 2) + 1_050_673_152
        traffic += 131_072 * (past + new)
    return max(flop / (989.4e12 * 0.70), traffic / (3.35e12 * 0.80))


def linear(
    step_s: float = 0, prefill_token_s: float = 0, decode_sequence_s: float = 0, context_token_s: float = 0
) -> Cost:
    def cost(pieces: list[Piece]) -> float:
        prompts = sum(new for new, past in pieces if past == 0)
        decodes = sum(1 for _, past in pieces if past > 0)
        context = sum(past for _, past in pieces)
        return step_s + prefill_token_s * prompts + decode_sequence_s * decodes + context_token_s * context

    return cost


def take_in(coming: list[Job], waiting: list[Job], memory: Memory, now_s: float) -> None:
    """An arrival at the very instant an iteration ends has arrived; one that can never be served is turned away."""
    while coming and coming[0].arrival_s <= now_s:
        job = coming.pop(0)
        if memory.never(job):
            job.status = "rejected"
        else:
            waiting.append(job)


def admit(waiting: list[Job], running: list[Job], max_batch_size: int, memory: Memory, now_s: float) -> None:
    """Orca, Algorithm 1: in order of arrival, and the first that does not fit blocks all behind it."""
    while waiting and len(running) < max_batch_size and memory.fits(waiting[0], running):
        job = waiting.pop(0)
        job.status, job.admitted_s = "running", now_s
        running.append(job)


def simulate(jobs: list[Job], engine: str, max_batch_size: int, memory: Memory, cost: Cost) -> list[Iteration]:
    """Serve the jobs, given in order of arrival, and fill in what happened to each; return what each iteration did."""
    coming, waiting, running, iterations = list(jobs), [], [], []
    now_s = 0.0
    while coming or waiting or running:
        take_in(coming, waiting, memory, now_s)
        if engine == "continuous" or not running:
            admit(waiting, running, max_batch_size, memory, now_s)
        if not running:
            if coming:
                now_s = coming[0].arrival_s
            continue

        # Who was just admitted computes its prompt, everyone else one token: in a static batch also those who are done.
        pieces = [(1, job.context_tokens) if job.token_s else (job.prompt_tokens, 0) for job in running]
        start_s, now_s = now_s, now_s + cost(pieces)
        for job, (new, _) in zip(running, pieces, strict=True):
            job.context_tokens += new
            if not job.done:
                job.token_s.append(now_s)
        iterations.append(
            Iteration(
                start_s,
                now_s,
                prefill_tokens=sum(new for new, past in pieces if past == 0),
                decode_sequences=sum(1 for _, past in pieces if past > 0),
                running=len(running),
                waiting=len(waiting),
                kv_reserved_tokens=memory.held(running),
                kv_stored_tokens=sum(job.context_tokens for job in running),
            )
        )

        # One by one, or a static batch all together.
        everyone_done = all(job.done for job in running)
        for job in running:
            if everyone_done or (engine == "continuous" and job.done):
                job.status, job.leave_s = "finished", now_s
        running = [job for job in running if job.status == "running"]
    return iterations
