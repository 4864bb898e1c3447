"""The KV cache: keys and values of every request, contiguous or in pages, behind one interface.

Each token of each layer has `kv_heads` keys and then `kv_heads` values, so KV is one array [2 kv_heads, tokens, d].
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from simserve.numerics.arrays import Array, Precision
from simserve.numerics.config import LlamaConfig
from simserve.numerics.ledger import Ledger


class KVCache(ABC):
    """Holds the KV of open requests. The base class knows their lengths; a subclass where their tokens are."""

    def __init__(self, config: LlamaConfig, capacity_tokens: int, precision: Precision) -> None:
        """Make an empty cache for `capacity_tokens` tokens of all requests together.

        Raises:
            ValueError: the capacity is below 1.
        """
        if capacity_tokens < 1:
            raise ValueError(f"a KV cache holds at least 1 token, not {capacity_tokens}")
        self.capacity_tokens = capacity_tokens
        self.precision = precision
        self.layers, self.kv_rows, self.head_dim = config.layers, 2 * config.kv_heads, config.head_dim
        self._lengths: dict[int, int] = {}
        self._limits: dict[int, int] = {}

    @property
    @abstractmethod
    def free_tokens(self) -> int:
        """Tokens for which nothing is set aside yet."""

    @abstractmethod
    def _reserve(self, request_id: int, max_tokens: int) -> None:
        """Set aside what a newly opened request must have from the start."""

    @abstractmethod
    def _release(self, request_id: int) -> None:
        """Take back what a request has."""

    @abstractmethod
    def _why_no_room(self, new_tokens: Mapping[int, int]) -> str | None:
        """Return why so many more tokens of each request, within their limits, do not fit, or None if they do."""

    @abstractmethod
    def _make_room(self, request_id: int, total_tokens: int) -> None:
        """Make room for `total_tokens` of a request; there is enough."""

    @abstractmethod
    def _store(self, layer: int, request_id: int, past: int, kv: Array) -> Array:
        """Write `kv`, [2 kv_heads, n, d], behind `past` tokens; return that of all, [2 kv_heads, past + n, d]."""

    def check_fits(self, config: LlamaConfig, precision: Precision) -> None:
        """Check that the cache is for such a model.

        Raises:
            ValueError: it was made for another architecture or precision.
        """
        made = (self.layers, self.kv_rows, self.head_dim, self.precision.__name__)
        wanted = (config.layers, 2 * config.kv_heads, config.head_dim, precision.__name__)
        if made != wanted:
            what = "layers, 2 * kv_heads, head_dim, precision"
            raise ValueError(f"the KV cache does not fit the model: ({what}) is {made}, not {wanted}")

    def open(self, request_id: int, max_tokens: int) -> None:
        """Let a request in, empty; it may grow to `max_tokens`.

        Raises:
            ValueError: it is in already, or what it must have from the start is not free.
        """
        if request_id in self._lengths:
            raise ValueError(f"request {request_id} is in the KV cache already")
        self._reserve(request_id, max_tokens)
        self._lengths[request_id] = 0
        self._limits[request_id] = max_tokens

    def close(self, request_id: int) -> None:
        """Forget a request.

        Raises:
            ValueError: there is no such request.
        """
        self.length(request_id)
        self._release(request_id)
        del self._lengths[request_id], self._limits[request_id]

    def length(self, request_id: int) -> int:
        """Return the tokens of a request whose KV is here.

        Raises:
            ValueError: there is no such request.
        """
        if request_id not in self._lengths:
            raise ValueError(f"request {request_id} is not in the KV cache, which holds {sorted(self._lengths)}")
        return self._lengths[request_id]

    def grow(self, new_tokens: Mapping[int, int]) -> None:
        """Make room for so many more tokens of each request, whose KV then comes layer by layer with `extend`.

        Raises:
            ValueError: a request is unknown or would pass its limit, or the cache is full; nothing has changed then.
        """
        for request_id, new in new_tokens.items():
            if (total := self.length(request_id) + new) > (limit := self._limits[request_id]):
                raise ValueError(f"request {request_id} would have {total} tokens of KV; it was opened for {limit}")
        if why := self._why_no_room(new_tokens):
            raise ValueError(f"KV cache full: {why}")
        for request_id, new in new_tokens.items():
            self._lengths[request_id] += new
            self._make_room(request_id, self._lengths[request_id])

    def extend(self, layer: int, request_id: int, kv: Array, ledger: Ledger) -> Array:
        """Write the KV of the tokens that `grow` made room for; return that of the whole sequence.

        Args:
            layer: from 0.
            request_id: whose.
            kv: rotated keys, and values, of the new tokens, [n, 2 kv_heads, d].
            ledger: where reading the past and writing the new tokens is entered.

        Returns:
            [2 kv_heads, past + n, d]: to be read, and only until the next call.
        """
        past = self._lengths[request_id] - len(kv)
        whole = self._store(layer, request_id, past, kv.swapaxes(0, 1))
        ledger.enter_kv(read=whole[:, :past], written=whole[:, past:])
        return whole
