"""The config.json of a Hugging Face Llama checkpoint, read as a `LlamaConfig`."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simserve.numerics.config import LlamaConfig


def read_config(folder: Path) -> LlamaConfig:
    """Return the architecture that a folder's config.json describes.

    Raises:
        ValueError: there is no such file, or it describes something that `Llama` does not compute.
    """
    path = folder / "config.json"
    raw = read_json(path)
    _refuse_others(raw, path)
    # Since version 5 of transformers everything rotary is in rope_parameters.
    rope = {"rope_theta": raw.get("rope_theta")} | (raw.get("rope_scaling") or {}) | (raw.get("rope_parameters") or {})
    try:
        return LlamaConfig.model_validate(
            {
                "layers": raw["num_hidden_layers"],
                "hidden": raw["hidden_size"],
                "heads": raw["num_attention_heads"],
                "kv_heads": raw.get("num_key_value_heads") or raw["num_attention_heads"],
                "head_dim": raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
                "ffn": raw["intermediate_size"],
                "vocab": raw["vocab_size"],
                "tied_embeddings": raw.get("tie_word_embeddings", False),
                "max_positions": raw.get("max_position_embeddings", 2048),
                "norm_eps": raw.get("rms_norm_eps", 1e-6),
                "rope_theta": rope.get("rope_theta") or 10_000.0,
                "rope_scaling": _rope_scaling(rope, path),
            }
        )
    except KeyError as fault:
        raise ValueError(f"{path} has no {fault}") from fault
    except ValidationError as fault:
        raise ValueError(f"{path} describes no Llama: {fault}") from fault


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ValueError: there is none.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise ValueError(f"cannot read {path}: {fault}") from fault
    if not isinstance(raw, dict):
        raise ValueError(f"{path} holds no JSON object")
    return raw


def _refuse_others(raw: dict[str, Any], path: Path) -> None:
    """Refuse what would be computed wrongly: values left out are Llama's own."""
    for key, accepted in (
        ("model_type", "llama"),
        ("hidden_act", "silu"),
        ("attention_bias", False),
        ("mlp_bias", False),
    ):
        if (given := raw.get(key, accepted)) != accepted:
            raise ValueError(f"{path}: {key} is {given!r}; only {accepted!r} is computed here")


def _rope_scaling(rope: dict[str, Any], path: Path) -> dict[str, Any] | None:
    """Return the fields of a `Llama3Scaling`, or None for plain rotary embedding."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"{path}: rotary scaling {kind!r}; only 'default' and 'llama3' are computed here")
    return {
        "factor": rope["factor"],
        "low_freq_factor": rope["low_freq_factor"],
        "high_freq_factor": rope["high_freq_factor"],
        "original_max_positions": rope["original_max_position_embeddings"],
    }
