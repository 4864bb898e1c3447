"""The layers that do not care which request a token belongs to: they see one flat matrix [N, H] of tokens."""

import numpy as np

from simserve.numerics.arrays import Array
from simserve.numerics.ledger import Ledger


def linear(tokens: Array, weight: Array, ledger: Ledger) -> Array:
    """Return [N, in] times [in, out], a linear layer without bias."""
    ledger.enter_linear(len(tokens), weight)
    return tokens @ weight


def rms_norm(tokens: Array, weight: Array, eps: float, ledger: Ledger) -> Array:
    """Return each row divided by its root mean square, times `weight` (Zhang and Sennrich, arXiv 1910.07467)."""
    ledger.norm_bytes += weight.nbytes
    mean_square = np.vecdot(tokens, tokens)[:, np.newaxis] / tokens.shape[1]
    normed: Array = tokens / np.sqrt(mean_square + eps)
    normed *= weight
    return normed


def swiglu(gate_up: Array) -> Array:
    """Return silu(gate) * up, [N, F], of both side by side, [N, 2F] (Shazeer, GLU Variants, arXiv 2002.05202)."""
    gate, up = np.split(gate_up, 2, axis=1)
    with np.errstate(over="ignore"):  # exp may become infinite; a gate divided by that is 0, as it should be
        divisor = np.exp(-gate)
    divisor += 1
    activated: Array = np.divide(gate, divisor, out=divisor)
    activated *= up
    return activated


def softmax(scores: Array) -> None:
    """Turn each row of scores, along the last axis, into weights that sum to 1, in place. A score of -inf weighs 0."""
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, axis=-1, keepdims=True)
