"""Weights of a real checkpoint: a folder as Hugging Face's `LlamaForCausalLM.save_pretrained` writes it."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from simserve.numerics.arrays import Array, Precision
from simserve.numerics.config import LlamaConfig
from simserve.numerics.hf_config import read_config, read_json
from simserve.numerics.model import Llama
from simserve.numerics.weights import LayerWeights, Weights

_NUMPY_TYPE = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
"""How the values of a tensor are read. NumPy has no bfloat16, the upper half of a float32: its bits are read."""


def from_safetensors(folder: str | Path, precision: Precision = np.float32) -> Llama:
    """Return the model of a checkpoint folder: config.json, and safetensors in one file or in shards with an index.

    Raises:
        ValueError: no such checkpoint, an architecture that is not `Llama`'s, or tensors that do not fit it.
        ImportError: the package safetensors is missing.
    """
    folder = Path(folder)
    config = read_config(folder)
    tensors = _Tensors(
        {name: tensor for file in _shards(folder) for name, tensor in _read(file, precision)}, str(folder)
    )
    return Llama(config, _weights(config, tensors))


def _shards(folder: Path) -> list[Path]:
    """Return the files that hold the tensors."""
    index = folder / "model.safetensors.index.json"
    names = set(read_json(index).get("weight_map", {}).values()) if index.exists() else {"model.safetensors"}
    files = [folder / name for name in sorted(names)]
    if missing := [file.name for file in files if not file.exists()]:
        raise ValueError(f"{folder} has no {', '.join(missing)}")
    return files


def _read(file: Path, precision: Precision) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of one file by name."""
    try:
        safetensors = importlib.import_module("safetensors")  # by its name: it is optional, and has no types
    except ImportError as fault:
        raise ImportError("reading a checkpoint needs safetensors: pip install 'simserve[checkpoint]'") from fault
    try:
        tensors = safetensors.deserialize(file.read_bytes())
    except safetensors.SafetensorError as fault:
        raise ValueError(f"cannot read {file}: {fault}") from fault
    for name, tensor in tensors:
        kind = tensor["dtype"]
        if kind not in _NUMPY_TYPE:
            raise ValueError(f"{file}: {name} is {kind}; readable are {', '.join(_NUMPY_TYPE)}")
        values = np.frombuffer(tensor["data"], _NUMPY_TYPE[kind]).reshape(tensor["shape"])
        if kind == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        yield name, values.astype(precision)


class _Tensors:
    """The tensors of a checkpoint, handed out once each."""

    def __init__(self, by_name: dict[str, Array], origin: str) -> None:
        self._by_name = by_name
        self._origin = origin

    def take(self, name: str, *shape: int) -> Array:
        """Return a tensor of the expected shape."""
        if name not in self._by_name:
            raise ValueError(f"{self._origin} has no tensor {name}")
        tensor = self._by_name.pop(name)
        if tensor.shape != shape:
            raise ValueError(f"{self._origin}: {name} is {list(tensor.shape)}, not {list(shape)}")
        return tensor

    def take_linear(self, inputs: int, outputs: dict[str, int]) -> Array:
        """Return linear layers of one input side by side, [in, sum of out]; a checkpoint has each as [out, in]."""
        stacked = [self.take(f"{name}.weight", out, inputs) for name, out in outputs.items()]
        return np.ascontiguousarray(np.concatenate(stacked).T)

    def drop(self, *endings: str) -> None:
        """Leave tensors aside whose names end so."""
        self._by_name = {name: tensor for name, tensor in self._by_name.items() if not name.endswith(endings)}

    def check_all_taken(self) -> None:
        """Refuse a checkpoint with tensors that the model would ignore, such as biases."""
        if self._by_name:
            raise ValueError(f"{self._origin} has tensors of no use here: {', '.join(sorted(self._by_name))}")


def _weights(config: LlamaConfig, tensors: _Tensors) -> Weights:
    """Take all weights out of the tensors."""
    embedding = tensors.take("model.embed_tokens.weight", config.vocab, config.hidden)
    layers = tuple(_layer_weights(config, tensors, f"model.layers.{index}") for index in range(config.layers))
    norm = tensors.take("model.norm.weight", config.hidden)
    tensors.drop("rotary_emb.inv_freq")  # old checkpoints store the frequencies, which follow from the config
    if config.tied_embeddings:
        tensors.drop("lm_head.weight")
        head = embedding.T
    else:
        head = tensors.take_linear(config.hidden, {"lm_head": config.vocab})
    tensors.check_all_taken()
    return Weights(embedding, layers, norm, head)


def _layer_weights(config: LlamaConfig, tensors: _Tensors, layer: str) -> LayerWeights:
    """Take the weights of one block out of the tensors."""
    hidden, queries, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
    return LayerWeights(
        attention_norm=tensors.take(f"{layer}.input_layernorm.weight", hidden),
        qkv=tensors.take_linear(
            hidden, {f"{attention}.q_proj": queries, f"{attention}.k_proj": kv, f"{attention}.v_proj": kv}
        ),
        output=tensors.take_linear(queries, {f"{attention}.o_proj": hidden}),
        mlp_norm=tensors.take(f"{layer}.post_attention_layernorm.weight", hidden),
        gate_up=tensors.take_linear(hidden, {f"{mlp}.gate_proj": config.ffn, f"{mlp}.up_proj": config.ffn}),
        down=tensors.take_linear(config.ffn, {f"{mlp}.down_proj": hidden}),
    )
