"""Prefix caches: KV of texts that have been computed before, found again by what they say."""

from typing import Annotated, Literal

from pydantic import Field

from simserve.memory.prefix.base import Counters, Handover, Match, PrefixCache
from simserve.memory.prefix.blocks import BlockPrefixCache
from simserve.memory.prefix.radix import RadixPrefixCache
from simserve.spec import BareName, Spec


class BlockPrefix(Spec):
    """Full blocks by their hash (vLLM)."""

    kind: Literal["blocks"] = "blocks"

    def cache(self, block_tokens: int) -> PrefixCache:
        """Return an empty cache of blocks of `block_tokens` tokens."""
        return BlockPrefixCache(block_tokens)


class RadixPrefix(Spec):
    """Single tokens in a tree (SGLang)."""

    kind: Literal["radix"] = "radix"

    def cache(self, block_tokens: int) -> PrefixCache:
        """Return an empty cache.

        Raises:
            ValueError: memory is not given out by single tokens.
        """
        if block_tokens != 1:
            raise ValueError(f"prefix: radix shares single tokens: give block_tokens 1, not {block_tokens}")
        return RadixPrefixCache()


PrefixSpec = Annotated[Annotated[BlockPrefix | RadixPrefix, Field(discriminator="kind")], BareName]
"""The prefix caches, told apart by `kind`. Each builds a `PrefixCache` with `cache(block_tokens)`."""

__all__ = [
    "BlockPrefix",
    "BlockPrefixCache",
    "Counters",
    "Handover",
    "Match",
    "PrefixCache",
    "PrefixSpec",
    "RadixPrefix",
    "RadixPrefixCache",
]
