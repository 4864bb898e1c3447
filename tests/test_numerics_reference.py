"""The mini-Llama against Hugging Face transformers' LlamaForCausalLM on the same random weights.

It reads the checkpoint that transformers itself saves, so the loader is tested with the real thing too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simserve.numerics import ContiguousCache, Llama, Prompt, Segment, from_safetensors, generate_continuous
from simserve.numerics.arrays import Array
from simserve.request import Request

pytestmark = pytest.mark.reference

torch = pytest.importorskip("torch", reason="the reference needs torch")
transformers = pytest.importorskip("transformers", reason="the reference needs transformers")
pytest.importorskip("safetensors", reason="the reference needs safetensors")

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "initializer_range": 0.125,  # 1 / sqrt(64): activations near unit scale, so that attention is not nearly uniform
}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped-query": {"num_key_value_heads": 2},
    "multi-head": {"num_key_value_heads": 4},
    "multi-query": {"num_key_value_heads": 1},
    "tied embeddings": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "wide heads": {"num_key_value_heads": 2, "head_dim": 32},
    "llama 3 rotary": {"num_key_value_heads": 2, "rope_scaling": LLAMA_3},
    "rotary base": {"num_key_value_heads": 2, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5},
}

LENGTHS = (150, 37, 9)


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def reference_model(variant: dict[str, Any]) -> Any:
    """Return a random model whose norms are no plain ones."""
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **variant)).eval()
    for name, parameter in made.named_parameters():
        if "norm" in name:
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(256, size=length).tolist() for length in LENGTHS]


def reference_logits(reference: Any, tokens: list[int]) -> Array:
    """Return the logits behind every token, [tokens, vocab]."""
    logits: Array = reference(torch.tensor([tokens])).logits[0].float().numpy()
    return logits


def ragged_logits(llama: Llama) -> list[Array]:
    """Return the logits of each prompt behind its first third, and behind every token from there, all in one batch."""
    cache = ContiguousCache(llama.config, sum(LENGTHS))
    logits: list[list[Array]] = [[] for _ in LENGTHS]
    given = [[tokens[: len(tokens) // 3], *([token] for token in tokens[len(tokens) // 3 :])] for tokens in prompts()]
    for request_id, length in enumerate(LENGTHS):
        cache.open(request_id, length)
    for step in range(max(map(len, given))):
        segments = [Segment(request_id, steps[step]) for request_id, steps in enumerate(given) if step < len(steps)]
        for segment, row in zip(segments, llama.forward(segments, cache), strict=True):
            logits[segment.request_id].append(row)
    return [np.stack(rows) for rows in logits]


def assert_close(llama: Llama, reference: Any) -> None:
    for tokens, logits in zip(prompts(), ragged_logits(llama), strict=True):
        expected = reference_logits(reference, tokens)[len(tokens) // 3 - 1 :]
        assert np.abs(expected).max() > 1
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_logits(variant: dict[str, Any], tmp_path: Path) -> None:
    reference = reference_model(variant)
    reference.save_pretrained(tmp_path)
    assert_close(from_safetensors(tmp_path), reference)


def test_bfloat16_in_shards(tmp_path: Path) -> None:
    """Both sides read the same bfloat16 checkpoint and compute in float32."""
    saved = reference_model(VARIANTS["grouped-query"]).to(torch.bfloat16)
    saved.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    reference = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_close(from_safetensors(tmp_path), reference)


def test_greedy_generation(tmp_path: Path) -> None:
    reference = reference_model(VARIANTS["grouped-query"])
    reference.save_pretrained(tmp_path)
    requests = [
        Prompt(Request(i, float(i), len(tokens), 20, len(tokens) + 20), tuple(tokens))
        for i, tokens in enumerate(prompts())
    ]
    generated = generate_continuous(from_safetensors(tmp_path), requests, 2, budget_tokens=16, block_tokens=8).tokens
    for request, tokens in requests:
        known = list(tokens)
        for _ in range(20):
            known.append(int(reference_logits(reference, known)[-1].argmax()))
        assert generated[request.id] == tuple(known[len(tokens) :])
