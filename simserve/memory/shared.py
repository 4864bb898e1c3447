"""Paged memory with a prefix cache: blocks that several requests read, and blocks kept for those to come.

The library's reading room of `simserve.memory.prefix.base`. Cached blocks that nobody holds are as good as free, so
`reserved_tokens` counts private blocks and held ones, each once; a block is wiped only when blank ones run out.
"""

from collections.abc import Sequence

from simserve.content import Content
from simserve.memory.paged import Paged, PagedMemory
from simserve.memory.prefix import PrefixCache
from simserve.request import Request


class SharedMemory(PagedMemory):
    """Paged memory whose requests find what others have computed.

    What a request generates is cached when it leaves or is preempted; vLLM caches a block of it as soon as it is full.
    """

    def __init__(self, policy: Paged, capacity_tokens: int, cache: PrefixCache, *, watched: bool = False) -> None:
        """`watched` says whether who is next in line depends on what is cached."""
        super().__init__(policy, capacity_tokens)
        self._cache = cache
        self._watched = watched
        self._computed: dict[int, int] = {}
        """Tokens of each admitted request that are cached or scheduled, by request id, until it decodes."""
        self._refused: tuple[int, int, int] = (-1, 0, 0)
        """Who was refused last: which request, of how many tokens, with how many pages ever inserted in the cache."""
        self._refused_hit_tokens = 0
        """What that one found. As long as nothing is inserted, it can find no more."""
        self._held_tokens = 0
        """Tokens of cached blocks that requests hold, counted for each of them."""

    @property
    def _read_tokens(self) -> int:
        """Tokens of cached blocks that requests hold, counted once."""
        return (self._cache.cached_pages - self._cache.evictable_pages) * self._block_tokens

    @property
    def shared_tokens(self) -> int:
        """Tokens in held blocks, as often as they are read more than once."""
        return self._held_tokens - self._read_tokens

    def try_admit(self, request: Request, tokens: int) -> bool:
        """Take the blocks of `tokens` that are not cached, if there is room for them and for those that are idle."""
        need, attempt = self._in_blocks(tokens), (request.id, tokens, self._cache.counters.inserted_pages)
        if attempt == self._refused and not self._has_room(need - self._refused_hit_tokens):
            return False
        text = self._text(request, tokens)
        match = self._cache.match(text, tokens)
        missing = need - match.tokens
        if not self._has_room(missing + match.idle_pages * self._block_tokens):
            self._refused, self._refused_hit_tokens = attempt, match.tokens
            return False
        self._cache.acquire(request.id, text, tokens)
        self._admitted[request.id] = tokens
        self._computed[request.id] = match.tokens
        self._held_tokens += match.tokens
        self.reserved_tokens += missing + match.idle_pages * self._block_tokens
        self._wipe()
        return True

    @staticmethod
    def _text(request: Request, tokens: int) -> Content:
        """Return the first `tokens` tokens of what a request has said, the prompt at least."""
        return request.text(max(0, tokens - request.prompt_tokens))

    def _wipe(self) -> None:
        """Wipe idle blocks where blank ones have run out."""
        if (missing := -self._blank_tokens) > 0:
            read = self._read_tokens
            self._cache.evict(-(-missing // self._block_tokens))
            if self._blank_tokens < 0 or self._read_tokens != read:
                raise AssertionError(
                    f"{missing} tokens had to be wiped: {-self._blank_tokens} are missing still, "
                    f"and {read - self._read_tokens} went that somebody reads"
                )

    @property
    def _blank_tokens(self) -> int:
        """Tokens of blocks that hold nothing; below 0, of those that have to be wiped."""
        return self.capacity_tokens - self.reserved_tokens - self._cache.evictable_pages * self._block_tokens

    def cached_tokens(self, request: Request) -> int:
        """Return how many tokens of a request just admitted were in the cache."""
        return self._computed[request.id]

    def computed(self, request: Request, tokens: int) -> None:
        """Let others find the first `tokens` of a request, now or once the iteration that computes them is over."""
        self._insert(request, tokens if self._cache.found_at_once else self._computed[request.id])
        self._computed[request.id] = tokens

    def _insert(self, request: Request, tokens: int) -> None:
        """Hand computed blocks to the cache; a copy of what somebody reads or has left there becomes blank."""
        read = self._read_tokens
        kept, spare = self._cache.insert(request.id, self._text(request, tokens), tokens)
        if kept or spare:
            handed = (kept + spare) * self._block_tokens
            self._held_tokens += handed
            self.reserved_tokens += self._read_tokens - read - handed

    def join(self, request: Request) -> None:
        """Let an admitted request grow with the others from now on; its prompt is computed."""
        tokens = self._computed.pop(request.id)
        if not self._cache.found_at_once:
            self._insert(request, tokens)
        super().join(request)

    def grow(self, steps: int) -> Sequence[float]:
        """Take the blocks of the next steps, and wipe idle ones for them where no blank ones are left.

        A wiped block may be what a waiting request would have found. That does not let anyone in who was refused, for
        what he finds no more he needs room for; but if it changes who is next in line, a step that wipes is the last.
        """
        if self._watched:
            held = self._grow_within(self.reserved_tokens + self._blank_tokens, steps)
            if held:
                return held
            steps = 1
        held = self._grow_within(self.capacity_tokens, steps)
        self._wipe()
        return held

    def free(self, request: Request) -> None:
        """Leave the request's blocks to the cache, or give back those that nobody could find."""
        decoding = request.id in self._decoding
        computed = self._decoding[request.id] + self._steps if decoding else self._computed.pop(request.id)
        self._insert(request, computed)
        held, read = self._cache.held_pages(request.id) * self._block_tokens, self._read_tokens
        self._cache.release(request.id)
        self._held_tokens -= held
        private = self._in_blocks(self._leave(request)) - held
        self.reserved_tokens += self._read_tokens - read - private
        self._check_books(request)

    def _check_books(self, request: Request) -> None:
        """Raise AssertionError unless blocks are free, private, read or idle, and none is read that nobody holds."""
        self._check_empty(request)
        read, held = self._read_tokens, self._held_tokens
        nobody = not self._admitted and not self._decoding
        if not read <= self.reserved_tokens or self._blank_tokens < 0 or not read <= held or (nobody and held):
            raise AssertionError(
                f"of {self.capacity_tokens} tokens {self.reserved_tokens} are reserved, of which {read} are cached and "
                f"read {held} times over, and {self._blank_tokens} are blank, after request {request.id} has left"
            )
