"""Reading checkpoints: files written by hand in the safetensors format, and config.json in all its dialects."""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simserve.numerics import Llama, Llama3Scaling, LlamaConfig, from_safetensors
from simserve.numerics.arrays import Array
from simserve.numerics.hf_config import read_config
from tests.test_numerics_forward import SMALL, model

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 24,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
}
"""`SMALL`, as Hugging Face writes it."""

LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

PROJECTIONS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def tensors_of(llama: Llama) -> dict[str, Array]:
    """Return the weights under Hugging Face's names, linear layers as [out, in]."""
    weights, config = llama.weights, llama.config
    queries, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    cuts = {"qkv": [queries, queries + kv], "gate_up": [config.ffn], "output": [], "down": []}
    tensors = {"model.embed_tokens.weight": weights.embedding, "model.norm.weight": weights.norm}
    if not config.tied_embeddings:
        tensors["lm_head.weight"] = weights.head.T
    for index, layer in enumerate(weights.layers):
        prefix = f"model.layers.{index}."
        tensors[f"{prefix}input_layernorm.weight"] = layer.attention_norm
        tensors[f"{prefix}post_attention_layernorm.weight"] = layer.mlp_norm
        for field, names in PROJECTIONS.items():
            parts = np.split(getattr(layer, field).T, cuts[field])
            tensors |= {f"{prefix}{name}.weight": part for name, part in zip(names, parts, strict=True)}
    return tensors


def write_safetensors(path: Path, tensors: dict[str, Array], kind: str = "F32") -> None:
    """Write the format by hand: the length of the header, the header as JSON, the raw values."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    raw = b""
    for name, tensor in tensors.items():
        values = np.ascontiguousarray(tensor, np.float32)
        data = {
            "F32": lambda v=values: v.tobytes(),
            "F16": lambda v=values: v.astype(np.float16).tobytes(),
            "BF16": lambda v=values: (v.view(np.uint32) >> 16).astype(np.uint16).tobytes(),
            "I8": lambda v=values: v.astype(np.int8).tobytes(),
        }[kind]()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(raw), len(raw) + len(data)]}
        raw += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw)


def write_checkpoint(
    folder: Path, tensors: dict[str, Array], kind: str = "F32", shards: int = 1, **config: object
) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, kind)
        return folder
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    home = {name: files[i % shards] for i, name in enumerate(tensors)}
    for file in files:
        write_safetensors(folder / file, {name: tensors[name] for name in tensors if home[name] == file}, kind)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": home}))
    return folder


def assert_same_weights(one: Llama, other: Llama) -> None:
    assert one.config == other.config
    for mine, others in zip(tensors_of(one).items(), tensors_of(other).items(), strict=True):
        assert mine[0] == others[0]
        assert (mine[1] == others[1]).all(), mine[0]


@pytest.fixture
def safetensors() -> None:
    pytest.importorskip("safetensors", reason="reading checkpoints needs the extra `checkpoint`")


# Tensors.


@pytest.mark.usefixtures("safetensors")
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_checkpoint_is_read_to_the_last_bit(tmp_path: Path, shards: int, tied: bool) -> None:
    llama = model(SMALL.model_copy(update={"tied_embeddings": tied}), np.float32)
    folder = write_checkpoint(tmp_path, tensors_of(llama), shards=shards, tie_word_embeddings=tied)
    assert_same_weights(from_safetensors(folder), llama)
    assert from_safetensors(str(folder), np.float64).precision is np.float64


@pytest.mark.usefixtures("safetensors")
@pytest.mark.parametrize("kind", ["BF16", "F16"])
def test_half_precision_is_widened(tmp_path: Path, kind: str) -> None:
    llama = model(SMALL, np.float32)
    read = from_safetensors(write_checkpoint(tmp_path, tensors_of(llama), kind))
    for name, tensor in tensors_of(llama).items():
        # BF16 keeps 8 bits of a float32's 24, cut off here; F16 keeps 11, and less of values below 6e-5.
        kept = (tensor.view(np.uint32) & 0xFFFF0000).view(np.float32) if kind == "BF16" else tensor.astype(np.float16)
        assert (tensors_of(read)[name] == kept.astype(np.float32)).all()


@pytest.mark.usefixtures("safetensors")
def test_what_follows_from_the_config_is_ignored(tmp_path: Path) -> None:
    llama = model(SMALL.model_copy(update={"tied_embeddings": True}), np.float32)
    more = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(3), "lm_head.weight": np.ones((40, 16))}
    folder = write_checkpoint(tmp_path, tensors_of(llama) | more, tie_word_embeddings=True)
    assert_same_weights(from_safetensors(folder), llama)


@pytest.mark.usefixtures("safetensors")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.norm.weight": None}, "has no tensor model.norm.weight"),
        ({"model.norm.weight": np.ones(15)}, r"model.norm.weight is \[15\], not \[16\]"),
        ({"lm_head.weight": np.ones((16, 40))}, r"lm_head.weight is \[16, 40\], not \[40, 16\]"),
        (
            {"model.layers.0.self_attn.q_proj.bias": np.ones(24)},
            "has tensors of no use here: model.layers.0.self_attn.q_proj.bias",
        ),
        ({"model.layers.2.mlp.up_proj.weight": np.ones((24, 16))}, "has tensors of no use here: model.layers.2"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, change: dict[str, Array | None], message: str) -> None:
    tensors = {name: t for name, t in (tensors_of(model()) | change).items() if t is not None}
    write_checkpoint(tmp_path, tensors)
    with pytest.raises(ValueError, match=message):
        from_safetensors(tmp_path)


@pytest.mark.usefixtures("safetensors")
def test_unreadable_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tensors_of(model()), "I8")
    with pytest.raises(ValueError, match=r"\.weight is I8; readable are F64, F32, F16, BF16"):
        from_safetensors(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"cannot read .*model\.safetensors"):
        from_safetensors(tmp_path)


def test_missing_shards(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tensors_of(model()), shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no model-00002-of-00003.safetensors"):
        from_safetensors(tmp_path)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    write_checkpoint(tmp_path, tensors_of(model()))
    with pytest.raises(ImportError, match=r"needs safetensors: pip install 'simserve\[checkpoint\]'"):
        from_safetensors(tmp_path)


# config.json.


def config_of(folder: Path, without: tuple[str, ...] = (), **fields: object) -> LlamaConfig:
    raw = {key: value for key, value in (CONFIG | fields).items() if key not in without}
    (folder / "config.json").write_text(json.dumps(raw))
    return read_config(folder)


def test_a_config(tmp_path: Path) -> None:
    assert config_of(tmp_path) == SMALL


def test_what_is_left_out_has_hugging_face_s_defaults(tmp_path: Path) -> None:
    left_out = ("head_dim", "num_key_value_heads", "rms_norm_eps", "rope_theta", "max_position_embeddings")
    expected = {"head_dim": 4, "kv_heads": 4, "norm_eps": 1e-6, "rope_theta": 1e4, "max_positions": 2048}
    assert config_of(tmp_path, without=left_out) == SMALL.model_copy(update=expected)


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA_3}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA_3}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA_3}},
    ],
)
def test_llama_3_scaling(tmp_path: Path, fields: dict[str, object]) -> None:
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=32)
    assert config_of(tmp_path, **fields) == SMALL.model_copy(update={"rope_theta": 5e5, "rope_scaling": scaling})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "qwen2"}, "model_type is 'qwen2'; only 'llama' is computed here"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is computed here"),
        ({"attention_bias": True}, "attention_bias is True; only False is computed here"),
        ({"mlp_bias": True}, "mlp_bias is True; only False is computed here"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rotary scaling 'yarn'; only 'default' and 'llama3'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "has no 'low_freq_factor'"),
        ({"num_key_value_heads": 3}, r"describes no Llama: .*\n.*heads \(4\) must be a multiple of kv_heads \(3\)"),
    ],
)
def test_other_architectures_are_refused(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(tmp_path, **fields)


def test_unreadable_configs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no 'vocab_size'"):
        config_of(tmp_path, without=("vocab_size",))
    for text, message in (("[1]", "holds no JSON object"), ("{", "cannot read .*config.json")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_config(tmp_path)
    with pytest.raises(ValueError, match=r"cannot read .*nowhere"):
        from_safetensors(tmp_path / "nowhere")
