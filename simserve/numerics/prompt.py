"""A request with words: its prompt as token ids."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simserve.numerics.config import LlamaConfig
from simserve.numerics.segment import check_length, check_tokens
from simserve.request import Request


class Prompt(NamedTuple):
    """A request and the tokens of its prompt."""

    request: Request
    tokens: tuple[int, ...]


def random_prompts(config: LlamaConfig, shapes: Sequence[tuple[float, int, int]], seed: int) -> list[Prompt]:
    """Return requests with ids from 0 and (arrival, prompt tokens, output tokens), and prompts drawn from `seed`.

    The prompt of a request depends on the seed, its id and its length, and on no other request.
    """
    prompts = []
    for request_id, (arrival_s, prompt_tokens, output_tokens) in enumerate(shapes):
        stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(request_id,)))
        tokens = tuple(stream.integers(config.vocab, size=prompt_tokens).tolist())
        request = Request(request_id, arrival_s, prompt_tokens, output_tokens, prompt_tokens + output_tokens)
        prompts.append(Prompt(request, tokens))
    return prompts


def check_prompts(config: LlamaConfig, prompts: Sequence[Prompt]) -> None:
    """Check that the model can serve the prompts.

    Raises:
        ValueError: two with one id; an empty prompt, or one of another length than its request says; a token outside
            the vocabulary; no output wanted; no time of arrival; or more tokens than the model has positions.
    """
    ids = [request.id for request, _ in prompts]
    if len(set(ids)) < len(ids):
        raise ValueError(f"request ids must differ: {ids}")
    for request, tokens in prompts:
        check_tokens(request.id, tokens, config.vocab)
        if len(tokens) != request.prompt_tokens:
            raise ValueError(f"request {request.id} has a prompt of {len(tokens)} tokens, not {request.prompt_tokens}")
        if request.output_tokens < 1:
            raise ValueError(f"request {request.id} wants {request.output_tokens} output tokens; at least 1 comes out")
        if not 0 <= request.arrival_s < math.inf:
            raise ValueError(f"request {request.id} arrives at {request.arrival_s} s; time starts at 0")
        check_length(request.id, request.total_tokens, config.max_positions)
