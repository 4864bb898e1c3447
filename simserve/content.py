"""What a text is made of, as far as caching goes: which parts of it are the same as parts of other texts.

Nobody stores the words. A text is a sequence of *segments* `(segment_id, tokens)`, each the first `tokens` tokens of a
passage known by its number: think of "Genesis, the first 500 words". A token is its passage and its place in it, so two
texts share a prefix exactly as far as their segments agree from the start, and where they quote the same passage at
different length, as far as the shorter quotation goes.

Numbers from 0 up name passages that requests share (system prompts, edges of a tree, blocks of a trace). Numbers
below 0 belong to one request: what its prompt says that nobody said before (`own_prompt`), and its output
(`own_output`), which the next turn of a conversation quotes.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

Segment = tuple[int, int]
"""A passage's number, and how many of its first tokens, at least one."""

Content = tuple[Segment, ...]
"""A text from its first token."""

_64_BITS = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def own_prompt(request_id: int) -> int:
    """Return the number of the passage that is new in the prompt of a request."""
    return -2 - 2 * request_id


def own_output(request_id: int) -> int:
    """Return the number of the passage that a request generates."""
    return -1 - 2 * request_id


def num_tokens(content: Iterable[Segment]) -> int:
    """Return the length of a text."""
    return sum(tokens for _, tokens in content)


def leading(content: Content, tokens: int) -> Content:
    """Return the first `tokens` tokens of a text, or all of a shorter one."""
    return tuple((segment_id, stop) for segment_id, _, stop in runs(content, 0, tokens))


def runs(content: Content, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the part of a text from token `start` up to token `stop`, segment by segment: (segment_id, first, end)."""
    position = 0
    for segment_id, tokens in content:
        if position >= stop:
            return
        first, end = max(start - position, 0), min(stop - position, tokens)
        if first < end:
            yield segment_id, first, end
        position += tokens


def common_tokens(one: Content, other: Content) -> int:
    """Return the length of the longest common prefix of two texts."""
    common = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            return common + (min(mine[1], its[1]) if mine[0] == its[0] else 0)
        common += mine[1]
    return common


def block_runs(
    content: Content, block_tokens: int, tokens: int, first_block: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Yield the full blocks among the first `tokens` tokens of a text, from block `first_block` on: (key, first, stop).

    Those that end in the same segment are together, by their place in the text. Two texts whose blocks have the same
    key and place are equal from the first token to the end of the block, as with vLLM's chained block hashes: the key
    is a fingerprint of all that goes before the segment, and of its number. It is the same on any machine, and has 60
    bits: among a million segments two differing ones are confused with a probability of less than one in a million.
    """
    key, position = _GOLDEN, 0
    for segment_id, length in content:
        key = _mixed(key, segment_id)
        first = max(position // block_tokens, first_block)
        position += length
        stop = min(position, tokens) // block_tokens
        if first < stop:
            yield key, first, stop
        if position >= tokens:
            return
        key += length


@lru_cache(maxsize=4096)  # a request's text is gone through several times within a short while
def _mixed(fingerprint: int, segment_id: int) -> int:
    """Return 60 bits that differ when either number does (the finalizer of SplitMix64, Steele et al., OOPSLA 2014)."""
    x = (fingerprint + segment_id * _GOLDEN) & _64_BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return (x ^ (x >> 31)) >> 4
