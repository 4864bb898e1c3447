"""Prefix cache of single tokens in a radix tree: SGLang's RadixAttention (Zheng et al., NeurIPS 2024, section 3).

Every path from the root is a cached text. A prompt is matched to the last token, whatever the size of blocks; where it
leaves a node in the middle, the node is split. Who holds a node holds all above it. Nodes without holders and without
children are evicted, those unused for longest first.

A node is a run of one segment. SGLang's node may join several, and goes as a whole; here a long tail goes run by run,
the last one first, and what room does not take stays.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Optional

from simserve.content import Content, runs
from simserve.memory.prefix.base import Counters, Handover, Match


class _Node:
    """Tokens `start` to `stop` of a segment, behind all that stands above it in the tree."""

    __slots__ = ("children", "holders", "in_line", "parent", "segment_id", "start", "stop", "used")

    def __init__(self, segment_id: int, start: int, stop: int, parent: Optional["_Node"]) -> None:
        self.segment_id = segment_id
        self.start = start
        self.stop = stop
        self.parent = parent
        self.children: dict[tuple[int, int], _Node] = {}
        """By segment and place of their first token."""
        self.holders = 0
        """How many requests hold it, or something below it."""
        self.used = 0
        """When it was last let go, in releases of the cache."""
        self.in_line = False
        """Whether the line for eviction has an entry for it."""

    @property
    def tokens(self) -> int:
        return self.stop - self.start

    @property
    def is_idle_leaf(self) -> bool:
        return not self.children and not self.holders and self.parent is not None


class RadixPrefixCache:
    """A tree of runs of tokens. A page is one token.

    Matching costs a dictionary access for each run on the way, not for each token.
    """

    page_tokens = 1
    found_at_once = False
    """SGLang enters a piece of a prompt into the tree when it has been computed."""

    def __init__(self) -> None:
        self.version = 0
        self.counters = Counters()
        self.cached_pages = 0
        self.evictable_pages = 0
        self._root = _Node(0, 0, 0, None)
        self._held: dict[int, tuple[_Node, int]] = {}
        """By holder: the lowest node that it holds, and the length of the text that ends there."""
        self._line: list[tuple[int, int, _Node]] = []
        """A heap of (used, number, node): the idle leaves, one entry each, and some that have come into use again."""
        self._numbers = count()
        self._releases = 0

    def match(self, content: Content, prompt_tokens: int) -> Match:
        """Return how many tokens of a prompt are cached, and how many of those are idle."""
        matched = idle = 0
        for node, tokens in self._cached_path(content, prompt_tokens):
            matched += tokens
            idle += 0 if node.holders else tokens
        return Match(matched, idle)

    def _cached_path(self, content: Content, prompt_tokens: int) -> Iterator[tuple[_Node, int]]:
        """Yield the nodes that a prompt runs through, and how many tokens of each; the last may be used in part."""
        node = self._root
        for segment_id, start, stop in runs(content, 0, prompt_tokens - 1):
            while start < stop:
                child = node.children.get((segment_id, start))
                if child is None:
                    return
                end, whole = min(stop, child.stop), child.stop <= stop
                yield child, end - start  # the child may be cut there before the next is asked for
                if not whole:
                    return
                node, start = child, end

    def acquire(self, holder: int, content: Content, prompt_tokens: int) -> int:
        """Hold the cached tokens of a prompt, and return how many they are."""
        if holder in self._held:
            raise AssertionError(f"request {holder} acquires while it holds {self.held_pages(holder)} tokens")
        lowest, matched = self._root, 0
        for node, tokens in self._cached_path(content, prompt_tokens):
            lowest = self._cut(node, node.start + tokens)
            self._hold(lowest)
            matched += tokens
        self._held[holder] = (lowest, matched)
        self.counters.lookups += 1
        self.counters.prompt_tokens += prompt_tokens
        self.counters.hit_tokens += matched
        return matched

    def _cut(self, node: _Node, stop: int) -> _Node:
        """Return the part of a node up to `stop`: all of it, or a new node above the rest."""
        if stop == node.stop:
            return node
        parent = node.parent
        assert parent is not None, "the root has no tokens to cut"
        upper = _Node(node.segment_id, node.start, stop, parent)
        upper.holders = node.holders  # whoever cuts holds it next, so that when it is let go is known then
        upper.children[node.segment_id, stop] = node
        parent.children[node.segment_id, node.start] = upper
        node.parent, node.start = upper, stop
        return upper

    def _hold(self, node: _Node) -> None:
        if not node.holders:
            self.evictable_pages -= node.tokens
        node.holders += 1

    def insert(self, holder: int, content: Content, tokens: int) -> Handover:
        """Take over the tokens that are not cached yet; where others have cached the same, theirs are held instead."""
        lowest, known = self._held[holder]
        kept = spare = 0
        for segment_id, start, stop in runs(content, known, tokens):
            while start < stop:
                child = lowest.children.get((segment_id, start))
                if child is None:
                    lowest = self._grow(lowest, segment_id, start, stop)
                    kept += stop - start
                else:
                    lowest = self._cut(child, min(stop, child.stop))
                    self._hold(lowest)
                    spare += lowest.tokens
                start = lowest.stop
        self._held[holder] = (lowest, known + kept + spare)
        self.counters.inserted_pages += kept
        self.version += kept > 0
        return Handover(kept, spare)

    def _grow(self, parent: _Node, segment_id: int, start: int, stop: int) -> _Node:
        """Return a new node with one holder."""
        node = parent.children[segment_id, start] = _Node(segment_id, start, stop, parent)
        node.holders = 1
        self.cached_pages += node.tokens
        return node

    def held_pages(self, holder: int) -> int:
        """Return how many of a holder's tokens are the cache's."""
        return self._held[holder][1]

    def release(self, holder: int) -> None:
        """Let go of a holder's text, which counts as used now."""
        node: _Node | None
        lowest, _ = self._held.pop(holder)
        self._releases += 1
        node = lowest
        while node is not None and node.parent is not None:
            node.used = self._releases
            node.holders -= 1
            if not node.holders:
                self.evictable_pages += node.tokens
            node = node.parent
        self._line_up(lowest)

    def _line_up(self, node: _Node) -> None:
        """Let a node that may be evicted join the line, unless it stands there."""
        if node.is_idle_leaf and not node.in_line:
            node.in_line = True
            heappush(self._line, (node.used, next(self._numbers), node))

    def evict(self, pages: int) -> int:
        """Forget idle leaves until `pages` tokens or all idle ones are gone, and return how many went."""
        evicted = 0
        while evicted < pages and self._line:
            used, _, node = heappop(self._line)
            node.in_line = False
            if node.used != used:
                self._line_up(node)  # used again since it joined: it stands further back
            elif node.is_idle_leaf:
                evicted += node.tokens
                self._prune(node)
        self.cached_pages -= evicted
        self.evictable_pages -= evicted
        self.counters.evicted_pages += evicted
        self.version += evicted > 0
        return evicted

    def _prune(self, leaf: _Node) -> None:
        """Take a leaf out of the tree; its parent may be a leaf now."""
        parent = leaf.parent
        assert parent is not None, "the root is no leaf"
        del parent.children[leaf.segment_id, leaf.start]
        leaf.parent = None
        self._line_up(parent)
