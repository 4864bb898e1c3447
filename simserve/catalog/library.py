"""The models, GPUs and presets that ship with simserve, by name; a scenario may also spell one out as a mapping."""

from importlib.resources import files
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from simserve import strict_yaml
from simserve.catalog.gpu import GPU
from simserve.catalog.model import Model
from simserve.catalog.preset import Preset
from simserve.spec import nearest

Entry = TypeVar("Entry", Model, GPU, Preset)


def _shelf(folder: str, kind: type[Entry]) -> dict[str, Entry]:
    sheets = sorted(files("simserve.catalog").joinpath(folder).iterdir(), key=lambda sheet: sheet.name)
    entries = (kind.model_validate(strict_yaml.load(sheet.read_text(encoding="utf-8"))) for sheet in sheets)
    return {entry.name: entry for entry in entries}


MODEL_BY_NAME: dict[str, Model] = _shelf("models", Model)
GPU_BY_NAME: dict[str, GPU] = _shelf("gpus", GPU)
PRESET_BY_NAME: dict[str, Preset] = _shelf("presets", Preset)


def _by_name(value: Any, shelf: dict[str, Any], what: str) -> Any:
    if not isinstance(value, str):
        return value
    if value not in shelf:
        raise ValueError(f"unknown {what} {value!r}{nearest(value, shelf)} The catalog has: {', '.join(shelf)}")
    return shelf[value]


NamedModel = Annotated[Model, BeforeValidator(lambda value: _by_name(value, MODEL_BY_NAME, "model"))]
"""A model by its name in the catalog, or spelled out."""

NamedGPU = Annotated[GPU, BeforeValidator(lambda value: _by_name(value, GPU_BY_NAME, "GPU"))]
"""A GPU by its name in the catalog, or spelled out."""
