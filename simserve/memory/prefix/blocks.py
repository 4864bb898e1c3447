"""Prefix cache of hashed blocks: vLLM's automatic prefix caching (V1 engine, `KVCacheManager` and `BlockPool`).

Only full blocks are cached, each under a key of the whole text up to its end. A block that nobody holds stays findable
and waits in line for eviction. A request's blocks enter the line from the last to the first, so that tails go before
the prefixes they hang on.

Two details differ from vLLM. Blocks that hold nothing findable are taken before any cached one; vLLM's free list mixes
them by the time they were freed. And vLLM keeps two copies of a block findable, here it is one. A request that computes
a block that another holds keeps its copy to itself, and it is blank when the request ends. A cached block that nobody
holds takes the copy's place at once: prompts that are cached to the end compute their last block each time, and
would let it grow old.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from simserve.content import Content, block_runs
from simserve.memory.prefix.base import Counters, Handover, Match


@dataclass(eq=False, slots=True)
class _Run:
    """Neighbouring blocks of a passage that are held by the same requests, or have been let go together."""

    key: int
    """Of the passage, behind all that is said before it."""
    first: int
    """Place of the first block in the text."""
    stop: int
    holders: list["_Held"]
    used: int = 0
    """When it was last let go, in releases of the cache."""
    in_line: bool = False
    """Whether the line for eviction has an entry for it."""

    @property
    def blocks(self) -> int:
        return self.stop - self.first


@dataclass(eq=False, slots=True)
class _Held:
    """What one request holds."""

    runs: list[_Run] = field(default_factory=list)
    blocks: int = 0
    """How many blocks these are."""
    blocks_seen: int = 0
    """How many blocks of its text were hit or inserted; some may be its own copies of cached ones."""


class BlockPrefixCache:
    """Full blocks by the passage they end in and their place, in runs that come and go together.

    Looking up, holding and letting go costs a step for each run on the way, not for each block. A run is cut where a
    request uses its first blocks only.
    """

    found_at_once = True
    """vLLM enters a block when it is scheduled: a request admitted in the same iteration finds it."""

    def __init__(self, block_tokens: int) -> None:
        self.page_tokens = block_tokens
        self.version = 0
        self.counters = Counters()
        self.cached_pages = 0
        """Blocks in the cache, held or idle."""
        self.evictable_pages = 0
        """Blocks in the cache that nobody holds."""
        self._passages: dict[int, list[_Run]] = {}
        """By key, the runs of each passage in the order of the text."""
        self._held: dict[int, _Held] = {}
        self._line: list[tuple[int, int, _Run]] = []
        """A heap of (used, -first, run): what was let go together goes from the end of the text to its beginning. An
        entry may be of a run that is held or has been used since."""
        self._releases = 0

    def match(self, content: Content, prompt_tokens: int) -> Match:
        """Return how many tokens of a prompt lie in cached blocks, and how many of those blocks are idle."""
        hits = idle = 0
        for run, stop in self._hits(content, prompt_tokens):
            hits += stop - run.first
            if not run.holders:
                idle += stop - run.first
        return Match(hits * self.page_tokens, idle)

    def _hits(self, content: Content, prompt_tokens: int) -> Iterator[tuple[_Run, int]]:
        """Yield the cached runs of a prompt up to the first block that is not, and where the prompt leaves each."""
        for key, first, stop in block_runs(content, self.page_tokens, prompt_tokens - 1):
            for run in self._passages.get(key, ()):
                if run.first != first:
                    return
                first = min(stop, run.stop)
                yield run, first
                if first == stop:
                    break
            if first < stop:
                return

    def acquire(self, holder: int, content: Content, prompt_tokens: int) -> int:
        """Hold the cached blocks of a prompt, and return their tokens."""
        if holder in self._held:
            raise AssertionError(f"request {holder} acquires while it holds {self.held_pages(holder)} blocks")
        held = self._held[holder] = _Held()
        for run, stop in list(self._hits(content, prompt_tokens)):
            self._cut(run, stop)
            self._hold(held, run)
        held.blocks_seen = held.blocks
        tokens = held.blocks * self.page_tokens
        self.counters.lookups += 1
        self.counters.prompt_tokens += prompt_tokens
        self.counters.hit_tokens += tokens
        return tokens

    def _hold(self, held: _Held, run: _Run) -> None:
        if not run.holders:
            self.evictable_pages -= run.blocks
        run.holders.append(held)
        held.runs.append(run)
        held.blocks += run.blocks

    def _cut(self, run: _Run, at: int) -> None:
        """Leave a run its blocks before `at`, and make a run of the others."""
        if at == run.stop:
            return
        rest = _Run(run.key, at, run.stop, run.holders.copy(), run.used)
        run.stop = at
        runs = self._passages[run.key]
        runs.insert(runs.index(run) + 1, rest)
        for held in rest.holders:
            held.runs.append(rest)
        if not rest.holders:
            self._line_up(rest)

    def insert(self, holder: int, content: Content, tokens: int) -> Handover:
        """Take over the full blocks that are not cached yet, and hold idle ones in the place of copies of them."""
        held = self._held[holder]
        kept = spare = 0
        if tokens // self.page_tokens > held.blocks_seen:
            before = held.blocks
            for key, first, stop in block_runs(content, self.page_tokens, tokens, held.blocks_seen):
                kept += self._insert_run(held, key, first, stop)
            spare = held.blocks - before - kept
            held.blocks_seen = tokens // self.page_tokens
            self.cached_pages += kept
            self.counters.inserted_pages += kept
            self.version += kept > 0
        return Handover(kept, spare)

    def _insert_run(self, held: _Held, key: int, first: int, stop: int) -> int:
        """Insert blocks of a passage; return how many were not cached yet."""
        runs = self._passages.setdefault(key, [])
        kept = 0
        at = bisect_right(runs, first, key=_stop_of) if runs else 0
        while first < stop:
            run = runs[at] if at < len(runs) else None
            if run is None or run.first > first:  # a gap
                end = stop if run is None else min(stop, run.first)
                at += self._keep(held, runs, at, _Run(key, first, end, [held]))
                kept += end - first
                first = end
            elif run.holders:  # the copies stay private
                first, at = run.stop, at + 1
            elif run.first < first:
                self._cut(run, first)
                at += 1
            else:
                self._cut(run, min(stop, run.stop))
                self._hold(held, run)
                first, at = run.stop, at + 1
        return kept

    @staticmethod
    def _keep(held: _Held, runs: list[_Run], at: int, new: _Run) -> int:
        """Add new blocks to the run before if it is held alike, else as a run of their own; return how many runs."""
        held.blocks += new.blocks
        if at and runs[at - 1].stop == new.first and runs[at - 1].holders == new.holders:
            runs[at - 1].stop = new.stop
            return 0
        runs.insert(at, new)
        held.runs.append(new)
        return 1

    def held_pages(self, holder: int) -> int:
        """Return how many of a holder's blocks are the cache's."""
        return self._held[holder].blocks

    def release(self, holder: int) -> None:
        """Let go of a holder's blocks; those that nobody else holds join the line for eviction, the last one first."""
        held = self._held.pop(holder)
        self._releases += 1
        for run in held.runs:
            run.holders.remove(held)
            if not run.holders:
                run.used = self._releases
                self.evictable_pages += run.stop - run.first
                self._line_up(run)

    def _line_up(self, run: _Run) -> None:
        """Let an idle run join the line, unless it has an entry: one from before will be found to be out of date."""
        if not run.in_line:
            run.in_line = True
            heappush(self._line, (run.used, -run.first, run))

    def evict(self, pages: int) -> int:
        """Forget the idle blocks unused for longest, and return how many: `pages`, or all there are."""
        evicted = 0
        while evicted < pages and self._line:
            used, _, run = self._line[0]
            if run.holders or run.used != used:
                self._step_back()
                continue
            blocks = min(pages - evicted, run.stop - run.first)
            run.stop -= blocks
            evicted += blocks
            if run.stop == run.first:
                heappop(self._line)
                self._remove(run)
        self.cached_pages -= evicted
        self.evictable_pages -= evicted
        self.counters.evicted_pages += evicted
        self.version += evicted > 0
        return evicted

    def _step_back(self) -> None:
        """Take the first entry of the line away, which is out of date; an idle run stands further back."""
        _, _, run = heappop(self._line)
        run.in_line = False
        if not run.holders:
            self._line_up(run)

    def _remove(self, run: _Run) -> None:
        runs = self._passages[run.key]
        runs.remove(run)
        if not runs:
            del self._passages[run.key]


def _stop_of(run: _Run) -> int:
    return run.stop
