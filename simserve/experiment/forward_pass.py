"""One step of the kinds `padding` and `selective_batching`, computed and counted."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simserve.batch import Batch, Work
from simserve.catalog import Model
from simserve.experiment.task import RunResult, Task
from simserve.numerics import ContiguousCache, KVCache, Ledger, Llama, LlamaConfig, PagedCache, Segment, forward_padded
from simserve.request import Request
from simserve.scenario.forward_pass import (
    ForwardPassStudy,
    Layout,
    PaddingScenario,
    SelectiveBatchingScenario,
    Shape,
)
from simserve.workload import Streams

Logits = NDArray[np.floating]


def run_padding(scenario: PaddingScenario, task: Task) -> RunResult:
    """Compute the step and compare what was computed with what was useful."""
    _, ledger, _ = _Step(scenario, task.replication).computed(scenario.systems[task.system])
    work, waste = ledger.work(scenario.model.layers), ledger.waste(scenario.model.layers)
    tokens, pairs = work.new_tokens + waste.padding_tokens, work.attention_pairs + waste.masked_pairs
    measures = {
        "computed_tokens": tokens,
        "useful_tokens": work.new_tokens,
        "wasted_tokens_share": waste.padding_tokens / tokens,
        "computed_pairs": pairs,
        "useful_pairs": work.attention_pairs,
        "pairs_ratio": pairs / work.attention_pairs,
    }
    return RunResult(task, measures)


def run_selective_batching(scenario: SelectiveBatchingScenario, task: Task) -> RunResult:
    """Compute the step, and compare its logits with one by one and its ledger with the cost model."""
    step = _Step(scenario, task.replication)
    logits, ledger, passes = step.computed(scenario.systems[task.system])
    alone, _, _ = step.computed(Layout(layout="one_by_one"))
    measures = {
        "passes": passes,
        "flop": ledger.flop,
        "weight_bytes": ledger.weight_bytes,
        "linear_bytes": ledger.linear_bytes,
        "embedding_bytes": ledger.embedding_bytes,
        "head_bytes": ledger.head_bytes,
        "kv_bytes": ledger.kv_bytes,
        "logits_difference": float(np.abs(logits - alone).max()),
        "tokens_differing": int((logits.argmax(axis=1) != alone.argmax(axis=1)).sum()),
        "ledger_mismatches": len(mismatches(ledger, scenario.model, scenario.precision, scenario.requests, passes)),
    }
    return RunResult(task, measures)


class _Step:
    """The model, the requests' tokens, and their past, drawn once."""

    def __init__(self, scenario: ForwardPassStudy, replication: int) -> None:
        streams = Streams(scenario.seed, replication)
        self._model = Llama.random(
            scenario.model, int(streams.generator("weights").integers(2**32)), np.dtype(scenario.precision).type
        )
        rng, vocab = streams.generator("tokens"), scenario.model.vocab
        self._past = [rng.integers(vocab, size=shape.past).tolist() for shape in scenario.requests]
        self._new = [rng.integers(vocab, size=shape.new).tolist() for shape in scenario.requests]

    def computed(self, layout: Layout) -> tuple[Logits, Ledger, int]:
        """Return logits, [requests, vocab], the ledger, and the number of forward passes."""
        cache, ledger = self._cache(layout.block_tokens), Ledger()
        segments = [Segment(request, tokens) for request, tokens in enumerate(self._new)]
        if layout.layout == "padded":
            return forward_padded(self._model, segments, cache, ledger), ledger, 1
        groups = [segments] if layout.layout == "ragged" else [[segment] for segment in segments]
        logits = [self._model.forward(group, cache, ledger) for group in groups]
        return np.concatenate(logits), ledger, len(groups)

    def _cache(self, block_tokens: int | None) -> KVCache:
        """Return a cache that holds the past of every request."""
        lengths = [len(past) + len(new) for past, new in zip(self._past, self._new, strict=True)]
        config, precision = self._model.config, self._model.precision
        cache: KVCache
        if block_tokens is None:
            cache = ContiguousCache(config, sum(lengths), precision)
        else:
            blocks = sum(-(-length // block_tokens) for length in lengths)
            cache = PagedCache(config, blocks * block_tokens, precision, block_tokens)
        for request, length in enumerate(lengths):
            cache.open(request, length)
        pasts = [Segment(request, past, emits=False) for request, past in enumerate(self._past) if past]
        if pasts:
            self._model.forward(pasts, cache)
        return cache


def mismatches(ledger: Ledger, config: LlamaConfig, precision: str, shapes: Sequence[Shape], passes: int) -> list[str]:
    """Return the counters in which the ledger is not, to the last digit, what the cost model counts for the same work.

    Every pass reads the weights; embedding rows and LM head are lines of their own.
    """
    sizes = config.model_dump(include=set(Model.model_fields))
    model = Model(name="mini", bytes_per_value=np.dtype(precision).itemsize, **sizes)
    work = work_of(shapes)
    counted, modelled = ledger.work(config.layers), work
    pairs = {name: (getattr(counted, name), getattr(modelled, name)) for name in Work._fields}
    pairs |= {
        "linear_flop": (ledger.linear_flop, work.new_tokens * model.linear_flop_per_token),
        "attention_flop": (ledger.attention_flop, work.attention_pairs * model.attention_flop_per_pair),
        "head_flop": (ledger.head_flop, work.emitting * model.head_flop_per_token),
        "linear_bytes": (ledger.linear_bytes, passes * model.linear_parameters * model.bytes_per_value),
        "kv_read_bytes": (ledger.kv_read_bytes, work.kv_read_tokens * model.kv_bytes_per_token),
        "kv_written_bytes": (ledger.kv_written_bytes, work.kv_written_tokens * model.kv_bytes_per_token),
    }
    return [name for name, (found, expected) in pairs.items() if found != expected]


def work_of(shapes: Sequence[Shape]) -> Work:
    """Return what the simulator counts for the step: requests with one new token and a past are decodes."""
    decodes = [shape.past for shape in shapes if shape.new == 1 and shape.past]
    pieces = [
        (Request(0, 0.0, shape.new + shape.past, 1, shape.new + shape.past + 1), shape.new, shape.past)
        for shape in shapes
        if not (shape.new == 1 and shape.past)
    ]
    return Batch(pieces, len(pieces), len(decodes), sum(decodes)).work()
