"""Prefix caches: hits and evictions by hand, and any sequence of operations against texts written out in full."""

import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simserve.content import Content, num_tokens
from simserve.memory.prefix import BlockPrefixCache, Handover, Match, PrefixCache, PrefixSpec, RadixPrefixCache
from tests.prefix_support import TEXTS, ReadingRoom, tokens_of

CACHES: list[Callable[[], PrefixCache]] = [RadixPrefixCache, *(lambda n=n: BlockPrefixCache(n) for n in (1, 3, 16))]
NAMES = ["radix", "blocks of 1", "blocks of 3", "blocks of 16"]
each_cache = pytest.mark.parametrize("make", CACHES, ids=NAMES)


def store(cache: PrefixCache, *texts: Content) -> None:
    """Let each text be computed and left."""
    for holder, text in enumerate(texts, start=1000):
        cache.acquire(holder, text, num_tokens(text))
        cache.insert(holder, text, num_tokens(text))
        cache.release(holder)


# Hits


def test_a_block_is_found_only_behind_the_same_beginning() -> None:
    # The second block of both holds the same 16 tokens, but the KV in it depends on the first.
    cache = BlockPrefixCache(16)
    store(cache, ((1, 16), (9, 16)))
    assert cache.match(((2, 16), (9, 16)), 32) == Match(0, 0)
    assert cache.match(((1, 16), (9, 16)), 33) == Match(32, 2)


@each_cache
def test_half_of_a_prompt(make: Callable[[], PrefixCache]) -> None:
    cache = make()
    store(cache, ((1, 512),))
    hit = 510 if cache.page_tokens == 3 else 512
    assert cache.match(((1, 512), (2, 512)), 1024) == Match(hit, hit // cache.page_tokens)
    assert cache.match(((1, 1024),), 1024).tokens == hit  # the same passage, quoted further


@each_cache
def test_the_last_token_is_always_computed(make: Callable[[], PrefixCache]) -> None:
    cache = make()
    store(cache, ((1, 1024),))
    assert cache.match(((1, 1024),), 1024).tokens == 1023 // cache.page_tokens * cache.page_tokens
    # 1023 single tokens, 341 blocks of 3, 63 blocks of 16 (1008 tokens)
    if cache.page_tokens == 16:
        assert cache.match(((1, 1024),), 1024).tokens == 1008


def test_blocks_are_found_in_full_only_and_tokens_in_part() -> None:
    text, longer = ((1, 20),), ((1, 20), (2, 20))
    blocks, radix = BlockPrefixCache(16), RadixPrefixCache()
    store(blocks, text)
    store(radix, text)
    assert (blocks.cached_pages, radix.cached_pages) == (1, 20)
    assert (blocks.match(longer, 40).tokens, radix.match(longer, 40).tokens) == (16, 20)
    assert radix.match(((1, 7), (3, 9)), 16) == Match(7, 7)


def test_a_match_changes_nothing_and_an_acquired_prefix_is_no_longer_idle() -> None:
    for cache in (BlockPrefixCache(4), RadixPrefixCache()):
        store(cache, ((1, 16),))
        before = (cache.version, cache.cached_pages, cache.evictable_pages)
        found = cache.match(((1, 8), (2, 9)), 17)
        assert found == Match(8, 8 // cache.page_tokens)
        assert (cache.version, cache.cached_pages, cache.evictable_pages) == before
        assert cache.acquire(7, ((1, 8), (2, 9)), 17) == 8
        assert cache.evictable_pages == before[2] - found.idle_pages
        assert cache.held_pages(7) == found.idle_pages
        assert cache.match(((1, 8), (2, 9)), 17) == Match(8, 0)
        assert cache.version == before[0]  # what is cached is the same
        cache.release(7)
        assert cache.evictable_pages == before[2]


def test_the_output_is_found_by_the_next_turn() -> None:
    for cache in (BlockPrefixCache(4), RadixPrefixCache()):
        store(cache, ((1, 8), (-1, 12)))
        assert cache.match(((1, 8), (-1, 12), (-4, 5)), 25).tokens == 20


def test_counters() -> None:
    cache = BlockPrefixCache(4)
    assert cache.counters.hit_rate is None
    store(cache, ((1, 16),), ((1, 8), (2, 8)))
    counters = cache.counters
    assert (counters.lookups, counters.prompt_tokens, counters.hit_tokens) == (2, 32, 8)
    assert counters.hit_rate == 0.25
    assert (counters.inserted_pages, counters.evicted_pages) == (6, 0)
    cache.evict(4)
    assert (counters.inserted_pages, counters.evicted_pages) == (6, 4)


def test_a_request_acquires_once() -> None:
    for cache in (BlockPrefixCache(4), RadixPrefixCache()):
        cache.acquire(1, ((1, 8),), 8)
        with pytest.raises(AssertionError, match="request 1 acquires while it holds 0"):
            cache.acquire(1, ((1, 8),), 8)


# Two who compute the same


def test_of_two_copies_of_a_block_one_is_cached_and_the_other_private() -> None:
    cache = BlockPrefixCache(4)
    for holder in (1, 2):
        assert cache.acquire(holder, ((1, 9),), 9) == 0
    assert cache.insert(1, ((1, 9),), 9) == Handover(2, 0)
    assert cache.insert(2, ((1, 9),), 9) == Handover(0, 0)
    assert (cache.held_pages(1), cache.held_pages(2)) == (2, 0)
    assert cache.insert(2, ((1, 9), (-3, 3)), 12) == Handover(1, 0)  # what nobody else has is cached
    cache.release(1)
    assert cache.evictable_pages == 2


def test_an_idle_block_takes_the_place_of_a_copy() -> None:
    # A prompt that is cached to the end computes its last block again, and must not let the cached one grow old.
    cache = BlockPrefixCache(4)
    store(cache, ((1, 8),), ((2, 8),))
    assert cache.acquire(1, ((1, 8),), 8) == 4
    assert cache.insert(1, ((1, 8),), 8) == Handover(0, 1)
    assert cache.held_pages(1) == 2
    cache.release(1)
    cache.evict(2)
    assert [cache.match(((i, 8), (8, 1)), 9).tokens for i in (1, 2)] == [8, 0]


def test_of_two_copies_of_a_token_one_is_blank_again() -> None:
    cache = RadixPrefixCache()
    for holder in (1, 2):
        assert cache.acquire(holder, ((1, 9), (holder + 1, 3)), 12) == 0
    assert cache.insert(1, ((1, 9), (2, 3)), 12) == Handover(12, 0)
    assert cache.insert(2, ((1, 9), (3, 3)), 12) == Handover(3, 9)
    cache.release(1)
    assert (cache.cached_pages, cache.evictable_pages) == (15, 3)  # the other still reads the common 9


# Evictions


def test_tails_go_before_what_they_hang_on() -> None:
    for cache in (BlockPrefixCache(4), RadixPrefixCache()):
        store(cache, ((1, 4), (2, 4), (3, 4)))
        for left in (8, 4, 0):
            cache.evict(1)
            assert cache.match(((1, 4), (2, 4), (3, 4), (4, 1)), 13).tokens == left


def test_the_least_recently_used_goes_first() -> None:
    for cache in (BlockPrefixCache(4), RadixPrefixCache()):
        store(cache, ((1, 4),), ((2, 4),), ((3, 4),), ((1, 4), (9, 1)))  # 1 is used again
        cache.evict(1)
        assert [cache.match(((i, 4), (8, 1)), 5).tokens for i in (1, 2, 3)] == [4, 0, 4]


def test_what_is_used_again_goes_to_the_end_of_the_line() -> None:
    for cache in (BlockPrefixCache(4), RadixPrefixCache()):
        store(cache, ((1, 4),), ((2, 4),), ((1, 4),))
        cache.evict(4 // cache.page_tokens)
        assert [cache.match(((i, 4), (8, 1)), 5).tokens for i in (1, 2)] == [4, 0]


def test_the_line_does_not_grow_with_use() -> None:
    cache = RadixPrefixCache()
    store(cache, *[((1, 9),)] * 100)
    assert len(cache._line) <= 2  # 8 tokens that the next one finds, and the last


def test_what_is_held_stays() -> None:
    for cache in (BlockPrefixCache(4), RadixPrefixCache()):
        store(cache, ((1, 8), (2, 8)), ((3, 16),))
        cache.acquire(1, ((1, 8), (4, 8)), 16)  # holds the 8 tokens of passage 1
        assert cache.evict(10**6) == 24 // cache.page_tokens
        assert cache.evict(1) == 0
        assert cache.match(((1, 8), (4, 8)), 16) == Match(8, 0)
        assert cache.cached_pages == 8 // cache.page_tokens


def test_a_whole_run_goes_at_once() -> None:
    cache = RadixPrefixCache()
    store(cache, ((1, 10), (2, 5)))
    assert cache.evict(1) == 5
    assert cache.evict(1) == 10


# Any sequence of operations


class PlainBlocks:
    """Blocks as the whole text up to their end, in plain lists."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.idle: list[tuple[Any, ...]] = []
        self.holders: Counter[tuple[Any, ...]] = Counter()
        self.held: dict[int, list[tuple[Any, ...]]] = {}
        self.seen: dict[int, int] = {}

    def blocks(self, text: Content, tokens: int) -> list[tuple[Any, ...]]:
        return [tuple(tokens_of(text)[:end]) for end in range(self.page, tokens + 1, self.page)]

    def found(self, text: Content, tokens: int) -> list[tuple[Any, ...]]:
        found = []
        for block in self.blocks(text, tokens - 1):
            if block not in self.holders and block not in self.idle:
                break
            found.append(block)
        return found

    def match(self, text: Content, tokens: int) -> Match:
        found = self.found(text, tokens)
        return Match(len(found) * self.page, sum(block in self.idle for block in found))

    def acquire(self, holder: int, text: Content, tokens: int) -> None:
        self.held[holder] = self.found(text, tokens)
        self.seen[holder] = len(self.held[holder])
        for block in self.held[holder]:
            self.idle = [other for other in self.idle if other != block]
            self.holders[block] += 1

    def insert(self, holder: int, text: Content, tokens: int) -> Handover:
        new = self.blocks(text, tokens)[self.seen[holder] :]
        self.seen[holder] += len(new)
        new = [block for block in new if block not in self.holders]
        spare = [block for block in new if block in self.idle]
        self.idle = [block for block in self.idle if block not in new]
        self.holders.update(new)
        self.held[holder] += new
        return Handover(len(new) - len(spare), len(spare))

    def release(self, holder: int) -> None:
        for block in self.held.pop(holder)[::-1]:
            self.holders[block] -= 1
            if not self.holders[block]:
                del self.holders[block]
                self.idle.append(block)

    def evict(self, pages: int, evicted: int) -> None:
        assert evicted == min(pages, len(self.idle))
        del self.idle[:evicted]

    def sizes(self) -> tuple[int, int]:
        return len(self.idle) + len(self.holders), len(self.idle)


class PlainTokens:
    """Tokens as the whole text up to them, in a dictionary: when each was last let go, and who holds it."""

    def __init__(self) -> None:
        self.used: dict[tuple[Any, ...], int] = {}
        self.holders: Counter[tuple[Any, ...]] = Counter()
        self.held: dict[int, list[tuple[Any, ...]]] = {}
        self.releases = 0

    @staticmethod
    def tokens(text: Content, tokens: int) -> list[tuple[Any, ...]]:
        return [tuple(tokens_of(text)[: i + 1]) for i in range(tokens)]

    def found(self, text: Content, tokens: int) -> list[tuple[Any, ...]]:
        return [token for token in self.tokens(text, tokens - 1) if token in self.used]

    def match(self, text: Content, tokens: int) -> Match:
        found = self.found(text, tokens)
        return Match(len(found), sum(not self.holders[token] for token in found))

    def acquire(self, holder: int, text: Content, tokens: int) -> None:
        self.held[holder] = self.found(text, tokens)
        self.holders.update(self.held[holder])

    def insert(self, holder: int, text: Content, tokens: int) -> Handover:
        more = self.tokens(text, tokens)[len(self.held[holder]) :]
        new = [token for token in more if token not in self.used]
        self.used.update((token, 0) for token in new)
        self.holders.update(more)
        self.held[holder] += more
        return Handover(len(new), len(more) - len(new))

    def release(self, holder: int) -> None:
        self.releases += 1
        for token in self.held.pop(holder):
            self.holders[token] -= 1
            self.used[token] = self.releases

    def evict(self, pages: int, evicted: int) -> None:
        """Take off as many tokens, one at a time: of the ends nobody holds, the one unused for longest."""
        assert evicted >= min(pages, self.sizes()[1])
        for _ in range(evicted):
            inner = {token[:-1] for token in self.used}
            ends = [token for token in self.used if token not in inner and not self.holders[token]]
            del self.used[min(ends, key=lambda token: self.used[token])]

    def sizes(self) -> tuple[int, int]:
        return len(self.used), sum(not self.holders[token] for token in self.used)


OPERATION = st.tuples(
    st.sampled_from(["come", "insert", "leave", "finish", "evict"]), st.integers(0, 10**6), st.integers(0, 12)
)


class Both:
    """A cache and its plain likeness, asked the same."""

    def __init__(self, cache: PrefixCache, plain: Any) -> None:
        self.cache, self.plain = cache, plain
        self.running: dict[int, tuple[Content, int]] = {}
        """Who holds something: his text, and how much of it is computed."""

    def come(self, holder: int, text: Content, prompt_tokens: int) -> None:
        found = self.plain.match(text, prompt_tokens).tokens
        assert self.cache.acquire(holder, text, prompt_tokens) == found
        self.plain.acquire(holder, text, prompt_tokens)
        self.running[holder] = (text, found)

    def insert(self, holder: int, more: int) -> None:
        text, computed = self.running[holder]
        computed = min(num_tokens(text), computed + more)
        self.running[holder] = (text, computed)
        assert self.cache.insert(holder, text, computed) == self.plain.insert(holder, text, computed)

    def leave(self, holder: int) -> None:
        del self.running[holder]
        self.cache.release(holder)
        self.plain.release(holder)

    def act(self, operation: str, holder: int, more: int) -> None:
        if operation in ("insert", "finish"):
            self.insert(holder, more if operation == "insert" else 10**6)
        if operation in ("leave", "finish"):
            self.leave(holder)

    def check(self, texts: list[Content]) -> None:
        assert (self.cache.cached_pages, self.cache.evictable_pages) == self.plain.sizes()
        for text in texts:
            for prompt in (num_tokens(text), num_tokens(text) + 1):
                assert self.cache.match(text, prompt) == self.plain.match(text, prompt)
        for holder in self.running:
            assert self.cache.held_pages(holder) == len(self.plain.held[holder])


@pytest.mark.parametrize("page", [None, 1, 2, 3], ids=["radix", "blocks of 1", "blocks of 2", "blocks of 3"])
@settings(deadline=None, max_examples=200)
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), operations=st.lists(OPERATION, max_size=40))
def test_any_sequence_agrees_with_plain_lists(
    page: int | None, texts: list[Content], operations: list[tuple[str, int, int]]
) -> None:
    both = Both(RadixPrefixCache(), PlainTokens()) if page is None else Both(BlockPrefixCache(page), PlainBlocks(page))
    for number, (operation, choice, amount) in enumerate(operations):
        version, (cached, _) = both.cache.version, both.plain.sizes()
        if operation == "come":
            text = texts[choice % len(texts)]
            both.come(number, text, max(1, num_tokens(text) - amount))
        elif operation == "evict":
            both.plain.evict(amount, both.cache.evict(amount))
        elif both.running:
            both.act(operation, sorted(both.running)[choice % len(both.running)], amount)
        both.check(texts)
        assert (both.cache.version != version) == (both.plain.sizes()[0] != cached)


class Visitors:
    """Requests that come, grow, hand in what they computed and go, in a room of their own."""

    def __init__(self, room: ReadingRoom) -> None:
        self.room = room
        self.running: dict[int, tuple[Content, int]] = {}
        """Who is there: his prompt, and how much he has generated."""

    def text(self, holder: int) -> Content:
        prompt, generated = self.running[holder]
        return (*prompt, (-1 - holder, generated)) if generated else prompt

    def come(self, holder: int, prompt: Content) -> None:
        if self.room.admit(holder, prompt, num_tokens(prompt)) is not None:
            self.running[holder] = (prompt, 0)

    def act(self, operation: str, holder: int, more: int) -> None:
        text = self.text(holder)
        if operation == "share":
            self.room.share(holder, text, num_tokens(text))
        elif operation == "grow" and self.room.grow(holder, num_tokens(text) + more):
            prompt, generated = self.running[holder]
            self.running[holder] = (prompt, generated + more)
        elif operation == "go":
            self.room.leave(holder, text, num_tokens(text))
            del self.running[holder]

    def check(self) -> None:
        self.room.check()
        for holder in self.running:
            pages = self.room.private[holder] + self.room.cache.held_pages(holder)
            assert pages == self.room.pages(num_tokens(self.text(holder)))
            if isinstance(self.room.cache, RadixPrefixCache):  # what is held is never evicted
                held = self.room.cache.held_pages(holder)
                assert self.room.cache.match(self.text(holder), held + 1) == Match(held, 0)


@each_cache
@settings(deadline=None, max_examples=100)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=6),
    total_pages=st.integers(1, 60),
    operations=st.lists(
        st.tuples(st.sampled_from(["come", "share", "grow", "go"]), st.integers(0, 10**6), st.integers(1, 9)),
        max_size=60,
    ),
)
def test_every_page_is_free_private_or_cached(
    make: Callable[[], PrefixCache],
    texts: list[Content],
    total_pages: int,
    operations: list[tuple[str, int, int]],
) -> None:
    visitors = Visitors(ReadingRoom(make(), total_pages))
    for number, (operation, choice, amount) in enumerate(operations):
        if operation == "come":
            visitors.come(number, texts[choice % len(texts)])
        elif visitors.running:
            visitors.act(operation, sorted(visitors.running)[choice % len(visitors.running)], amount)
        visitors.check()
    for holder in sorted(visitors.running):
        visitors.act("go", holder, 0)
    room = visitors.room
    room.check()
    assert room.free + room.cache.evictable_pages == total_pages  # nothing is held at the end
    assert room.free + room.cache.evict(total_pages) == total_pages
    assert room.cache.cached_pages == 0


# Specs


def test_specs_by_name() -> None:
    spec: TypeAdapter[Any] = TypeAdapter(PrefixSpec)
    assert isinstance(spec.validate_python("blocks").cache(16), BlockPrefixCache)
    assert spec.validate_python({"kind": "blocks"}).cache(16).page_tokens == 16
    assert isinstance(spec.validate_python("radix").cache(1), RadixPrefixCache)
    with pytest.raises(ValueError, match="give block_tokens 1, not 16"):
        spec.validate_python("radix").cache(16)
    with pytest.raises(ValidationError):
        spec.validate_python("tree")


# Size


@pytest.mark.slow
def test_a_million_cached_blocks_fit_in_300_mb() -> None:
    """Measured as the peak of all allocations from the first to the last block."""
    cache = BlockPrefixCache(16)
    tracemalloc.start()
    try:
        for i in range(100):
            text = ((i, 160_000),)
            cache.acquire(i, text, 160_000)
            cache.insert(i, text, 160_000)
            cache.release(i)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.evictable_pages == 1_000_000
    assert peak_bytes < 300e6
