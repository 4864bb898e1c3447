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

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from simserve.content import Content, block_keys
from simserve.memory.prefix.base import Counters, Handover, Match


@dataclass(slots=True)
class _Held:
    """What one request holds."""

    keys: list[int] = field(default_factory=list)
    """Its cached blocks, in the order of its text."""
    blocks_seen: int = 0
    """How many blocks of its text were hit or inserted; some may be its own copies of cached ones."""


class BlockPrefixCache:
    """Full blocks by key: how many hold each, or its place in the line for eviction.

    Looking up costs a dictionary access for each block that hits. A million idle blocks take 140 MB.
    """

    found_at_once = True
    """vLLM enters a block when it is scheduled: a request admitted in the same iteration finds it."""

    def __init__(self, block_tokens: int) -> None:
        self.page_tokens = block_tokens
        self.version = 0
        self.counters = Counters()
        self._holders: dict[int, int] = {}
        """Held blocks, and how many hold each."""
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Blocks that nobody holds, those unused for longest first."""
        self._held: dict[int, _Held] = {}

    @property
    def cached_pages(self) -> int:
        """Blocks in the cache, held or idle."""
        return len(self._holders) + len(self._idle)

    @property
    def evictable_pages(self) -> int:
        """Blocks in the cache that nobody holds."""
        return len(self._idle)

    def match(self, content: Content, prompt_tokens: int) -> Match:
        """Return how many tokens of a prompt lie in cached blocks, and how many of those blocks are idle."""
        hits = idle = 0
        for key in self._hits(content, prompt_tokens):
            hits += 1
            idle += key in self._idle
        return Match(hits * self.page_tokens, idle)

    def _hits(self, content: Content, prompt_tokens: int) -> Iterator[int]:
        """Yield the cached blocks of a prompt, up to the first that is not."""
        holders, idle = self._holders, self._idle
        for key in block_keys(content, self.page_tokens, prompt_tokens - 1):
            if key not in holders and key not in idle:
                return
            yield key

    def acquire(self, holder: int, content: Content, prompt_tokens: int) -> int:
        """Hold the cached blocks of a prompt, and return their tokens."""
        if holder in self._held:
            raise AssertionError(f"request {holder} acquires while it holds {self.held_pages(holder)} blocks")
        keys = list(self._hits(content, prompt_tokens))
        for key in keys:
            self._hold(key)
        self._held[holder] = _Held(keys, len(keys))
        tokens = len(keys) * self.page_tokens
        self.counters.lookups += 1
        self.counters.prompt_tokens += prompt_tokens
        self.counters.hit_tokens += tokens
        return tokens

    def _hold(self, key: int) -> None:
        if key in self._idle:
            del self._idle[key]
        self._holders[key] = self._holders.get(key, 0) + 1

    def insert(self, holder: int, content: Content, tokens: int) -> Handover:
        """Take over the full blocks that are not cached yet, and hold idle ones in the place of copies of them."""
        held = self._held[holder]
        new = [
            key
            for key in block_keys(content, self.page_tokens, tokens, held.blocks_seen)
            if key not in self._holders  # else the copy stays private
        ]
        spare = sum(key in self._idle for key in new)
        kept = len(new) - spare
        for key in new:
            self._hold(key)
        held.keys += new
        held.blocks_seen = max(held.blocks_seen, tokens // self.page_tokens)
        self.counters.inserted_pages += kept
        self.version += kept > 0
        return Handover(kept, spare)

    def held_pages(self, holder: int) -> int:
        """Return how many of a holder's blocks are the cache's."""
        return len(self._held[holder].keys)

    def release(self, holder: int) -> None:
        """Let go of a holder's blocks; those that nobody else holds join the line for eviction, the last one first."""
        holders = self._holders
        for key in reversed(self._held.pop(holder).keys):
            if holders[key] > 1:
                holders[key] -= 1
            else:
                del holders[key]
                self._idle[key] = None

    def evict(self, pages: int) -> int:
        """Forget the idle blocks unused for longest, and return how many: `pages`, or all there are."""
        evicted = min(pages, len(self._idle))
        for _ in range(evicted):
            self._idle.popitem(last=False)
        self.counters.evicted_pages += evicted
        self.version += evicted > 0
        return evicted
