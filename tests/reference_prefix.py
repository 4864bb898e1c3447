"""Prefix caching in the reference engine: every block an object, every text written out token by token.

A cached block is found in a dictionary by all that is said up to its end. Nothing is hashed by hand, counted ahead or
kept in a tree, and no code is shared with simserve.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.reference_engine import Job, Memory, Text


@dataclass(eq=False)
class Block:
    text: Text | None = None
    """What it is found by: all that is said up to its end. None for a block that nobody can find."""
    readers: int = 1


@dataclass(frozen=True)
class SharedMemory(Memory):
    """Paged memory whose blocks are found again, by everyone, in full.

    vLLM V1: a block is entered when the iteration that fills it is scheduled. Where somebody reads a block that says
    the same, a job's own stays unfindable; one that nobody reads takes its place.
    Otherwise SGLang: blocks of one token, entered when they have been computed, before the next piece of the prompt or
    after its end; there is only ever one that says the same. Which of them go first when memory runs out is not written down here.
    """

    found_when_scheduled: bool = True
    cached: dict[Text, Block] = field(default_factory=dict)
    idle: list[Block] = field(default_factory=list)
    """Cached blocks that nobody reads, those unused for longest first."""
    tables: dict[Job, list[Block]] = field(default_factory=dict)
    entered: dict[Job, int] = field(default_factory=dict)
    """How many blocks of each job's text were found, or entered when it had filled them."""

    @property
    def total(self) -> int:
        return self.capacity_tokens // self.block_tokens

    @property
    def held_blocks(self) -> int:
        return len({block for table in self.tables.values() for block in table})

    def hits(self, job: Job) -> list[Block]:
        """The cached blocks that a job begins with; its last token has to be computed, or no new one comes out."""
        found = []
        for end in range(self.block_tokens, job.to_compute, self.block_tokens):
            if job.text[:end] not in self.cached:
                break
            found.append(self.cached[job.text[:end]])
        return found

    def fits(self, job: Job, running: list[Job]) -> bool:
        hits = self.hits(job)
        idle = sum(1 for block in hits if block.readers == 0)  # as good as free, until it is this job that reads them
        need = self.blocks(job.to_compute) - len(hits) + idle
        return self.held_blocks + need + self.new_blocks(running) + self.kept <= self.total

    def runs_short(self, running: list[Job]) -> bool:
        return self.held_blocks + self.new_blocks(running) > self.total

    def held(self, running: list[Job]) -> int:
        return self.held_blocks * self.block_tokens

    def stored(self, running: list[Job]) -> int:
        """A block that several read is filled once."""
        filled = {}
        for job in running:
            for i, block in enumerate(self.tables[job]):
                own = min(self.block_tokens, max(0, job.context_tokens - i * self.block_tokens))
                filled[block] = max(own, filled.get(block, 0))
        return sum(filled.values())

    def begin(self, job: Job) -> None:
        hits = self.hits(job)
        for block in hits:
            self.read(block)
        self.tables[job] = hits
        self.entered[job] = len(hits)
        while len(self.tables[job]) < self.blocks(job.to_compute):
            self.tables[job].append(self.take())
        job.context_tokens = job.computed_tokens = self.entered[job] * self.block_tokens
        job.cached_tokens += job.computed_tokens

    def read(self, block: Block) -> None:
        if block.readers == 0:
            self.idle.remove(block)
        block.readers += 1

    def take(self) -> Block:
        """A blank block, or when there is none, the one that nobody has read for longest."""
        assert self.held_blocks + len(self.idle) <= self.total
        if self.held_blocks + len(self.idle) == self.total:
            del self.cached[self.idle.pop(0).text]
        return Block()

    def grow(self, job: Job) -> None:
        if job.context_tokens % self.block_tokens == 0:
            self.tables[job].append(self.take())

    def schedule(self, job: Job, tokens: int) -> None:
        self.enter(job, tokens if self.found_when_scheduled else job.computed_tokens)

    def write(self, job: Job) -> None:
        if job.prompt_done:
            self.enter(job, job.computed_tokens)

    def enter(self, job: Job, tokens: int) -> None:
        """Let the blocks be found that a job has filled with its first `tokens` tokens."""
        table = self.tables[job]
        for i in range(self.entered[job], tokens // self.block_tokens):
            text = job.text[: (i + 1) * self.block_tokens]
            other = self.cached.get(text)
            if other is None:
                table[i].text = text
                self.cached[text] = table[i]
            elif other.readers == 0 or not self.found_when_scheduled:
                self.read(other)
                table[i] = other
            self.entered[job] = i + 1

    def leave(self, job: Job) -> None:
        self.enter(job, job.context_tokens)
        for block in reversed(self.tables.pop(job)):
            block.readers -= 1
            if block.readers == 0 and block.text is not None:
                self.idle.append(block)


def prompt(job: Job) -> Text:
    return job.text[: job.prompt_tokens]


def in_common(one: Text, other: Text) -> int:
    """How many tokens two texts begin with alike."""
    for i, (mine, its) in enumerate(zip(one, other, strict=False)):
        if mine != its:
            return i
    return min(len(one), len(other))


@dataclass(frozen=True)
class LongestPrefix:
    """Who finds most in the cache goes first, as it is when the first of a step is asked for."""

    memory: SharedMemory
    most_matched: int
    defer_tokens: int | None
    skip_ahead: int = 0

    def line_up(self, waiting: list[Job], now_s: float) -> Iterator[Job]:
        left = sorted(waiting, key=lambda job: job.number)
        while len(left) > self.most_matched:
            yield left.pop(0)
        found = {job: len(self.memory.hits(job)) * self.memory.block_tokens for job in left}
        last = {job for job in left if self.had_better_wait(job, found)}
        yield from sorted(left, key=lambda job: (job in last, -found[job]))

    def had_better_wait(self, job: Job, found: dict[Job, int]) -> bool:
        """Whether somebody before it is about to compute what it begins with, and neither finds that in the cache."""
        tokens = self.defer_tokens
        if tokens is None or found[job] > tokens or job.prompt_tokens < tokens:
            return False
        same = [other for other in found if prompt(other)[:tokens] == prompt(job)[:tokens]]
        return any(other.number < job.number and found[other] <= tokens for other in same)


@dataclass
class DepthFirst:
    """Next is who begins most like the one before, or who came first where nobody begins like it.

    Of several, those that stand nearest to it in the dictionary on either side, and of these two who came first.
    """

    last: Job | None = None
    skip_ahead: int = 0

    def line_up(self, waiting: list[Job], now_s: float) -> Iterator[Job]:
        left = sorted(waiting, key=lambda job: job.number)
        while left:
            job = self.nearest(left)
            yield job
            self.last = job  # asked for the next one: this one has been admitted
            left.remove(job)

    def nearest(self, left: list[Job]) -> Job:
        if self.last is None:
            return left[0]
        here = prompt(self.last)
        alike = {job: in_common(prompt(job), here) for job in left}
        most = max(alike.values())
        if most == 0:
            return left[0]
        best = sorted((job for job in left if alike[job] == most), key=lambda job: (passages(prompt(job)), job.number))
        before = [job for job in best if passages(prompt(job)) < passages(here)]
        after = [job for job in best if passages(prompt(job)) >= passages(here)]
        return min(before[-1:] + after[:1], key=lambda job: job.number)


def passages(text: Text) -> list[tuple[int, int]]:
    """A text by its passages, each with how many tokens of it are quoted."""
    quoted: list[tuple[int, int]] = []
    for passage, place in text:
        if place == 0:
            quoted.append((passage, 1))
        else:
            quoted[-1] = (passage, place + 1)
    return quoted
