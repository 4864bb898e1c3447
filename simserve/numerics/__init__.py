"""The numerics half: selective batching proved on a real forward pass.

A Llama in NumPy computes any mixture of prompts, chunks of prompts and decodes in one flat pass. It shows that batching
changes when a token is computed and not which, and counts every operation and byte on the way: what the simulator's
cost model says of a batch, an implementation has done. The shortest tour:

    model = Llama.random(MINI)
    cache = PagedCache(MINI, capacity_tokens=1024)
    cache.open(0, max_tokens=64)
    ledger = Ledger()
    logits = model.forward([Segment(0, [1, 2, 3])], cache, ledger)
    ledger.work(MINI.layers)    # the Work of a Batch with this prefill
"""

from simserve.numerics.checkpoint import from_safetensors
from simserve.numerics.config import CONFIG_BY_NAME, MINI, MINI_13M, Llama3Scaling, LlamaConfig
from simserve.numerics.contiguous_cache import ContiguousCache
from simserve.numerics.generation import generate_continuous, generate_sequential, generate_static
from simserve.numerics.kv_cache import KVCache
from simserve.numerics.ledger import Ledger, Waste
from simserve.numerics.machine import Generated
from simserve.numerics.model import Llama
from simserve.numerics.padded import forward_padded
from simserve.numerics.padding import Padding, padding
from simserve.numerics.paged_cache import PagedCache
from simserve.numerics.prompt import Prompt, random_prompts
from simserve.numerics.sampling import Greedy, Sampled, Sampler
from simserve.numerics.schedule import Cell, Iteration, Schedule, chart, chart_rows
from simserve.numerics.segment import Segment
from simserve.numerics.timing import DecodeTiming, time_decodes
from simserve.numerics.weights import Weights, random_weights

__all__ = [
    "CONFIG_BY_NAME",
    "MINI",
    "MINI_13M",
    "Cell",
    "ContiguousCache",
    "DecodeTiming",
    "Generated",
    "Greedy",
    "Iteration",
    "KVCache",
    "Ledger",
    "Llama",
    "Llama3Scaling",
    "LlamaConfig",
    "Padding",
    "PagedCache",
    "Prompt",
    "Sampled",
    "Sampler",
    "Schedule",
    "Segment",
    "Waste",
    "Weights",
    "chart",
    "chart_rows",
    "forward_padded",
    "from_safetensors",
    "generate_continuous",
    "generate_sequential",
    "generate_static",
    "padding",
    "random_prompts",
    "random_weights",
    "time_decodes",
]
