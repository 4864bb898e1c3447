"""Speed of the numerics half, as ratios measured in one process: `OMP_NUM_THREADS=1 python -m tests.bench_numerics`.

With one thread, both sides of a ratio do the same arithmetic on the same core. BLAS reads the variable when NumPy is
imported, so it must be set outside.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from simserve.numerics import MINI_13M, Ledger, Llama, model, time_decodes
from simserve.numerics.arrays import Array
from simserve.numerics.timing import decodes_with_past

BATCH = 64
CONTEXT_TOKENS = 64
ROUNDS = 15


def batching_speedup() -> float:
    """Return how many times faster one batch of 64 decodes of the 13M model is than one by one: at least 3."""
    (row,) = time_decodes(MINI_13M, (BATCH,), ROUNDS, context_tokens=CONTEXT_TOKENS)
    return row.speedup


def linear_layers_of_bare_products() -> float:
    """Return how fast the linear layers run inside a batched pass, as a share of bare products: at least 0.5."""
    return statistics.median(bare_s / linear_s for bare_s, linear_s, _ in _rounds())


def forward_of_bare_products() -> float:
    """Return how fast a whole batched pass runs, if only its linear layers counted, as a share of bare products."""
    return statistics.median(bare_s / forward_s for bare_s, _, forward_s in _rounds())


def _rounds() -> list[tuple[float, float, float]]:
    """Return the seconds of bare products, of the same ones inside a pass, and of the pass, in each of the rounds."""
    llama = Llama.random(MINI_13M)
    rng = np.random.default_rng(0)
    operands = [
        (rng.standard_normal((BATCH, len(weight)), dtype=np.float32), weight)
        for layer in llama.weights.layers
        for weight in (layer.qkv, layer.output, layer.gate_up, layer.down)
    ]

    def bare_products() -> None:
        for tokens, weight in operands:
            np.matmul(tokens, weight)

    return [(_seconds(bare_products), *_forward_s(llama)) for _ in range(ROUNDS + 1)][1:]


def _forward_s(llama: Llama) -> tuple[float, float]:
    """Return the seconds in the linear layers of one batched pass, and those of the pass."""
    spent_s = 0.0
    linear = model.linear

    def timed(tokens: Array, weight: Array, ledger: Ledger) -> Array:
        nonlocal spent_s
        started_s = time.perf_counter()
        product = linear(tokens, weight, ledger)
        spent_s += time.perf_counter() - started_s
        return product

    segments, cache = decodes_with_past(llama, BATCH, CONTEXT_TOKENS)
    model.linear = timed
    try:
        forward_s = _seconds(lambda: llama.forward(segments, cache))
    finally:
        model.linear = linear
    return spent_s, forward_s


def _seconds(call: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s


def main() -> None:
    """Print the table."""
    table = Table("what", "measured", "required", title=f"{BATCH} decodes of the 13M model", title_justify="left")
    table.add_row("speed of one batch over one by one", f"{batching_speedup():.1f}", "3")
    table.add_row("speed of linear layers over bare products", f"{linear_layers_of_bare_products():.2f}", "0.5")
    table.add_row("speed of the whole pass over bare products", f"{forward_of_bare_products():.2f}", "")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
