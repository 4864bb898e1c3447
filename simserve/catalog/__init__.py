"""Models and GPUs: their architecture and data sheets as YAML, and the counts that follow from them."""

from simserve.catalog.gpu import GPU
from simserve.catalog.hardware import Hardware
from simserve.catalog.library import GPU_BY_NAME, MODEL_BY_NAME, NamedModel
from simserve.catalog.model import Model

__all__ = ["GPU", "GPU_BY_NAME", "MODEL_BY_NAME", "Hardware", "Model", "NamedModel"]
