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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from simserve.content import Content, block_keys
from simserve.memory.prefix.base import Counters, Handover, Match


@dataclass(eq=False, slots=True)
class _Bundle:
    """Blocks that are held by the same requests, or have been let go together."""

    keys: list[int]
    """In the order of the text."""
    holders: list["_Held"]
    """Nobody for an idle bundle, which stands in line."""


@dataclass(eq=False, slots=True)
class _Held:
    """What one request holds."""

    bundles: list[_Bundle] = field(default_factory=list)
    """Its cached blocks, in the order of its text."""
    blocks: int = 0
    """How many blocks these are."""
    blocks_seen: int = 0
    """How many blocks of its text were hit or inserted; some may be its own copies of cached ones."""


class BlockPrefixCache:
    """Full blocks by key, tied in bundles that come and go together.

    Looking up costs a dictionary access for each block that hits; holding and letting go, a step for each bundle. A
    bundle is untied where a request uses its first blocks only. A million idle blocks take 140 MB.
    """

    found_at_once = True
    """vLLM enters a block when it is scheduled: a request admitted in the same iteration finds it."""

    def __init__(self, block_tokens: int) -> None:
        self.page_tokens = block_tokens
        self.version = 0
        self.counters = Counters()
        self.evictable_pages = 0
        """Blocks in the cache that nobody holds."""
        self._cached: dict[int, _Bundle] = {}
        self._line: OrderedDict[_Bundle, None] = OrderedDict()
        """Idle bundles, those unused for longest first."""
        self._held: dict[int, _Held] = {}

    @property
    def cached_pages(self) -> int:
        """Blocks in the cache, held or idle."""
        return len(self._cached)

    def match(self, content: Content, prompt_tokens: int) -> Match:
        """Return how many tokens of a prompt lie in cached blocks, and how many of those blocks are idle."""
        hits = idle = 0
        for _, bundle in self._hits(content, prompt_tokens):
            hits += 1
            idle += not bundle.holders
        return Match(hits * self.page_tokens, idle)

    def _hits(self, content: Content, prompt_tokens: int) -> Iterator[tuple[int, _Bundle]]:
        """Yield the cached blocks of a prompt, up to the first that is not, each with its bundle."""
        cached = self._cached
        for key in block_keys(content, self.page_tokens, prompt_tokens - 1):
            bundle = cached.get(key)
            if bundle is None:
                return
            yield key, bundle

    def acquire(self, holder: int, content: Content, prompt_tokens: int) -> int:
        """Hold the cached blocks of a prompt, and return their tokens."""
        if holder in self._held:
            raise AssertionError(f"request {holder} acquires while it holds {self.held_pages(holder)} blocks")
        held = self._held[holder] = _Held()
        hits = list(self._hits(content, prompt_tokens))
        for bundle, blocks in groupby(hits, key=lambda hit: hit[1]):
            self._hold(held, bundle, [key for key, _ in blocks])
        held.blocks_seen = held.blocks
        tokens = held.blocks * self.page_tokens
        self.counters.lookups += 1
        self.counters.prompt_tokens += prompt_tokens
        self.counters.hit_tokens += tokens
        return tokens

    def _hold(self, held: _Held, bundle: _Bundle, keys: list[int]) -> None:
        """Let a request hold some blocks of a bundle: its first, or any of an idle one."""
        if len(keys) < len(bundle.keys):
            bundle = self._untie(bundle, keys)
        if not bundle.holders:
            self._line.pop(bundle, None)
            self.evictable_pages -= len(keys)
        bundle.holders.append(held)
        held.bundles.append(bundle)
        held.blocks += len(keys)

    def _untie(self, bundle: _Bundle, keys: list[int]) -> _Bundle:
        """Return some of a bundle's blocks as one of their own; an idle one has yet to be held."""
        part = _Bundle(keys, bundle.holders.copy())
        gone = set(keys)
        bundle.keys = [key for key in bundle.keys if key not in gone]
        self._cached.update(dict.fromkeys(keys, part))
        for held in part.holders:
            held.bundles.insert(held.bundles.index(bundle), part)
        return part

    def insert(self, holder: int, content: Content, tokens: int) -> Handover:
        """Take over the full blocks that are not cached yet, and hold idle ones in the place of copies of them."""
        held, cached = self._held[holder], self._cached
        if tokens // self.page_tokens <= held.blocks_seen:
            return Handover(0, 0)
        keys = list(block_keys(content, self.page_tokens, tokens, held.blocks_seen))
        held.blocks_seen += len(keys)
        kept = spare = 0
        # As a rule none is cached: one look at them all.
        groups = [(None, keys)] if cached.keys().isdisjoint(keys) else _grouped(keys, [cached.get(key) for key in keys])
        for bundle, some in groups:
            if bundle is None:
                self._keep(held, some)
                kept += len(some)
            elif not bundle.holders:
                self._hold(held, bundle, some)
                spare += len(some)
            # else the copies stay private
        self.counters.inserted_pages += kept
        self.version += kept > 0
        return Handover(kept, spare)

    def _keep(self, held: _Held, keys: list[int]) -> None:
        """Cache new blocks for the request that holds them."""
        bundle = _Bundle(keys, [held])
        self._cached.update(dict.fromkeys(keys, bundle))
        held.bundles.append(bundle)
        held.blocks += len(keys)

    def held_pages(self, holder: int) -> int:
        """Return how many of a holder's blocks are the cache's."""
        return self._held[holder].blocks

    def release(self, holder: int) -> None:
        """Let go of a holder's blocks; those that nobody else holds join the line for eviction, the last one first."""
        held = self._held.pop(holder)
        for bundle in reversed(held.bundles):
            bundle.holders.remove(held)
            if not bundle.holders:
                self._line[bundle] = None
                self.evictable_pages += len(bundle.keys)

    def evict(self, pages: int) -> int:
        """Forget the idle blocks unused for longest, and return how many: `pages`, or all there are."""
        evicted = 0
        while evicted < pages and self._line:
            bundle = next(iter(self._line))
            start = max(0, len(bundle.keys) - (pages - evicted))
            for key in islice(bundle.keys, start, None):
                del self._cached[key]
            evicted += len(bundle.keys) - start
            del bundle.keys[start:]
            if not bundle.keys:
                del self._line[bundle]
        self.evictable_pages -= evicted
        self.counters.evicted_pages += evicted
        self.version += evicted > 0
        return evicted


def _grouped(keys: Sequence[int], bundles: Sequence[_Bundle | None]) -> list[tuple[_Bundle | None, list[int]]]:
    """Return blocks by their bundle, None for those that have none, in order of the text."""
    pairs = groupby(zip(keys, bundles, strict=True), key=lambda pair: pair[1])
    return [(bundle, [key for key, _ in some]) for bundle, some in pairs]
