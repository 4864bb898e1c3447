"""What one iteration runs (`Batch`), and what that costs in countable things (`Work`).

A batch is the only thing that passes from scheduling to cost. A request's next piece is described by two numbers: new
tokens to compute and past tokens whose KV is already there. A prefill is (prompt, 0), a decode (1, context), a chunk of
a prefill (chunk, computed so far): no phases.
"""

from collections.abc import Sequence
from typing import NamedTuple

from simserve.request import Request


class Work(NamedTuple):
    """The countable work of one iteration."""

    new_tokens: int
    """Tokens that pass through the linear layers."""
    attention_pairs: int
    """(query, key) pairs under the causal mask: n*p + n*(n+1)/2 for n new and p past tokens."""
    kv_read_tokens: int
    """Past tokens whose KV is read."""
    kv_written_tokens: int
    """New tokens whose KV is written."""
    emitting: int
    """Sequences that emit a token, each through the LM head once."""


Piece = tuple[Request, int, int]
"""A piece of a prompt: whose, the new tokens to compute of it, and the past tokens that are computed already."""


class Batch(NamedTuple):
    """One iteration: pieces of prompts, and the group of sequences that decode one token each."""

    prefills: Sequence[Piece]
    emitting_prefills: int
    """How many of them are a prompt's last, out of which the first token comes."""
    decode_sequences: int
    decode_context_tokens: int
    """KV tokens of the whole decoding group before this iteration."""

    def work(self) -> Work:
        """Count the work of the batch.

        A decode with p past tokens has one query and p + 1 keys, reads p tokens of KV, writes one, and emits.
        """
        prefills, emitting, new, read = self
        emitting += new
        pairs = read + new
        for _, piece, past in prefills:
            new += piece
            pairs += piece * past + piece * (piece + 1) // 2
            read += past
        return _tuple(Work, (new, pairs, read, new, emitting))


_tuple = tuple.__new__
"""Makes a named tuple of a tuple in half the time of calling its class."""
