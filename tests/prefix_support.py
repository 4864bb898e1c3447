"""A memory manager in small, as simserve/memory/prefix/base.py describes one, and texts for it."""

from collections.abc import Sequence

from hypothesis import strategies as st

from simserve.content import Content, num_tokens
from simserve.memory.prefix import PrefixCache
from simserve.request import Request
from simserve.scheduling import WaitingQueue

SEGMENTS = st.tuples(st.integers(0, 3), st.integers(1, 7))
TEXTS = st.lists(SEGMENTS, min_size=1, max_size=5).map(tuple)


def tokens_of(content: Content) -> list[tuple[int, int]]:
    """Write a text out: each token is its passage and its place in it."""
    return [(segment_id, i) for segment_id, tokens in content for i in range(tokens)]


class ReadingRoom:
    """Pages are free, private, or the cache's."""

    def __init__(self, cache: PrefixCache, total_pages: int) -> None:
        self.cache = cache
        self.total_pages = total_pages
        self.free = total_pages
        self.private: dict[int, int] = {}

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.cache.page_tokens)

    def admit(self, holder: int, text: Content, tokens: int) -> int | None:
        """Return the tokens that are cached, or None, with nothing changed, where there is no room."""
        found = self.cache.match(text, tokens)
        new = self.pages(tokens) - found.tokens // self.cache.page_tokens
        if new > self.free + self.cache.evictable_pages - found.idle_pages:
            return None
        assert self.cache.acquire(holder, text, tokens) == found.tokens
        self.private[holder] = 0
        self._take(holder, new)
        return found.tokens

    def _take(self, holder: int, pages: int) -> None:
        if pages > self.free:
            self.free += self.cache.evict(pages - self.free)
        self.free -= pages
        self.private[holder] += pages

    def grow(self, holder: int, tokens: int) -> bool:
        """Let a request have room for so many tokens, if there is."""
        new = self.pages(tokens) - self.private[holder] - self.cache.held_pages(holder)
        if new > self.free + self.cache.evictable_pages:
            return False
        self._take(holder, new)
        return True

    def share(self, holder: int, text: Content, computed: int) -> None:
        kept, spare = self.cache.insert(holder, text, computed)
        self.private[holder] -= kept + spare
        self.free += spare

    def leave(self, holder: int, text: Content, computed: int) -> None:
        self.share(holder, text, computed)
        self.cache.release(holder)
        self.free += self.private.pop(holder)

    def serve(self, holder: int, text: Content) -> int:
        """Let a request come, compute its prompt and go; return how many tokens it computes."""
        tokens = num_tokens(text)
        hit = self.admit(holder, text, tokens)
        assert hit is not None, f"{tokens} tokens do not fit into {self.total_pages} pages"
        self.leave(holder, text, tokens)
        self.check()
        return tokens - hit

    def check(self) -> None:
        assert min(self.free, *self.private.values(), 0) >= 0
        assert self.free + sum(self.private.values()) + self.cache.cached_pages == self.total_pages
        assert 0 <= self.cache.evictable_pages <= self.cache.cached_pages


def serve_in_order(room: ReadingRoom, queue: WaitingQueue, requests: Sequence[Request]) -> int:
    """Serve requests that all wait from the start, one by one; return the tokens that are computed."""
    for request in requests:
        queue.push(request)
    computed = 0
    for now_s in range(len(requests)):
        queue.head(float(now_s))
        request = queue.pop()
        computed += room.serve(request.id, request.text())
    assert not queue
    return computed
