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
    """Paged memory whose requests find what others have computed."""

    def __init__(self, policy: Paged, capacity_tokens: int, cache: PrefixCache) -> None:
        super().__init__(policy, capacity_tokens)
        self._cache = cache
        self._computed: dict[int, int] = {}
        """Tokens of each admitted request that are cached or scheduled, by request id, until it decodes."""
        self._looked_up: tuple[tuple[int, int, int], int] = ((-1, 0, 0), 0)
        """The last look into the cache: for which request, of how many tokens, at which version; what it found."""
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
        """Take the blocks of `tokens` that are not cached, if there is room for them and for those that are."""
        need = self._in_blocks(tokens)
        if not self._has_room(need - self._hit_tokens(request, tokens)):
            return False
        text = self._text(request, tokens)
        match = self._cache.match(text, tokens)
        missing = need - match.tokens
        if not self._has_room(missing + match.idle_pages * self._block_tokens):
            return False
        private = self.reserved_tokens - self._read_tokens + missing
        self._cache.acquire(request.id, text, tokens)
        self._admitted[request.id] = tokens
        self._computed[request.id] = match.tokens
        self._held_tokens += match.tokens
        self._settle(private)
        return True

    def _hit_tokens(self, request: Request, tokens: int) -> int:
        """Return how many of a request's tokens are cached; looked up once for as long as the cache stays as it is."""
        key = (request.id, tokens, self._cache.version)
        if self._looked_up[0] != key:
            self._looked_up = (key, self._cache.match(self._text(request, tokens), tokens).tokens)
        return self._looked_up[1]

    @staticmethod
    def _text(request: Request, tokens: int) -> Content:
        """Return the first `tokens` tokens of what a request has said, the prompt at least."""
        return request.text(max(0, tokens - request.prompt_tokens))

    def _settle(self, private_tokens: int) -> None:
        """Bring the account up to date, and wipe idle blocks where blank ones have run out."""
        self.reserved_tokens = private_tokens + self._read_tokens
        self._wipe()

    def _wipe(self) -> None:
        if (missing := -self._blank_tokens) > 0:
            self._cache.evict(-(-missing // self._block_tokens))

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
        private = self.reserved_tokens - self._read_tokens
        kept, spare = self._cache.insert(request.id, self._text(request, tokens), tokens)
        self._held_tokens += (kept + spare) * self._block_tokens
        self._settle(private - (kept + spare) * self._block_tokens)

    def join(self, request: Request) -> None:
        """Let an admitted request grow with the others from now on; its prompt is computed."""
        self._insert(request, self._computed.pop(request.id))
        super().join(request)

    def grow(self, steps: int) -> Sequence[float]:
        """Take the blocks of the next steps, as far as blank ones go, or of one for which idle ones are wiped.

        A wiped block may be what a waiting request would have found, so somebody else may be next in line.
        """
        held = self._grow_within(self.reserved_tokens + self._blank_tokens, steps)
        if not held:
            held = self._grow_within(self.capacity_tokens, 1)
            self._wipe()
        return held

    def free(self, request: Request) -> None:
        """Leave the request's blocks to the cache, or give back those that nobody could find."""
        if request.id in self._decoding:
            self._insert(request, self._decoding[request.id] + self._steps)
        else:
            self._insert(request, self._computed.pop(request.id))
        held = self._cache.held_pages(request.id) * self._block_tokens
        private = self.reserved_tokens - self._read_tokens - (self._in_blocks(self._leave(request)) - held)
        self._cache.release(request.id)
        self._held_tokens -= held
        self._settle(private)
        self._check_empty(request)
