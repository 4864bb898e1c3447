"""Models, GPUs and presets of systems as YAML with their sources, and the counts that follow from them."""

from simserve.catalog.gpu import GPU
from simserve.catalog.hardware import Hardware
from simserve.catalog.library import GPU_BY_NAME, MODEL_BY_NAME, PRESET_BY_NAME, NamedModel
from simserve.catalog.model import Model
from simserve.catalog.preset import Preset

__all__ = ["GPU", "GPU_BY_NAME", "MODEL_BY_NAME", "PRESET_BY_NAME", "Hardware", "Model", "NamedModel", "Preset"]
