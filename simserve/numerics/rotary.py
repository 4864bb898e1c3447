"""Rotary position embedding (Su et al., RoFormer, arXiv 2104.09864), in Llama's half-split layout.

Dimension i of a head is turned together with dimension i + d/2, by the position times a frequency of their own.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.numerics.arrays import Array, Ints, Precision
from simserve.numerics.config import Llama3Scaling, LlamaConfig


def frequencies(config: LlamaConfig) -> NDArray[np.float64]:
    """Return how far a step of one position turns each pair of dimensions, in radians: [d/2]."""
    turns = config.rope_theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    return turns if config.rope_scaling is None else _stretched(turns, config.rope_scaling)


def _stretched(turns: NDArray[np.float64], scaling: Llama3Scaling) -> NDArray[np.float64]:
    """Slow down the frequencies that turn seldom within the original context, and blend those in between.

    As `_compute_llama3_parameters` of Hugging Face transformers.
    """
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    full_turns = scaling.original_max_positions * turns / (2 * np.pi)
    unchanged = np.clip((full_turns - low) / (high - low), 0, 1)
    return turns * (unchanged + (1 - unchanged) / scaling.factor)


class Rotation(NamedTuple):
    """Cosine and sine of the angle by which each token's pairs of dimensions are turned, [N, 1, d/2]."""

    cos: Array
    sin: Array


def rotation(positions: Ints, turns: NDArray[np.float64], precision: Precision) -> Rotation:
    """Return the rotation of tokens at `positions`, [N], by the `frequencies` of a model.

    Angles are float64 whatever the precision: a float32 angle of 100,000 is off by up to 0.004.
    """
    angles = positions[:, np.newaxis, np.newaxis] * turns
    return Rotation(np.cos(angles).astype(precision), np.sin(angles).astype(precision))


def rotate(heads: Array, by: Rotation) -> None:
    """Turn the queries or keys of tokens, [N, heads, d], in place."""
    first, second = np.split(heads, 2, axis=-1)
    turned = first * by.cos - second * by.sin
    second[...] = second * by.cos + first * by.sin
    first[...] = turned
