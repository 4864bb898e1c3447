"""The array types of the package. Shapes are in docstrings: N tokens, H hidden, T keys, d head dimension."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
"""Weights and activations: float32 or float64, the same within one model."""

Mask = NDArray[np.bool_]

Ints = NDArray[np.integer[Any]]
"""Token ids and positions."""

Precision = type[np.float32] | type[np.float64]
