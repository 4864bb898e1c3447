"""The one place where the parts of a run are wired together."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from simserve.catalog import Hardware, Model
from simserve.engine import Arrivals, Clock, ContinuousEngine, Engine, RequestLevelEngine
from simserve.integrity import check_integrity
from simserve.memory import Memory, Paged, PreemptionSpec, PrefixCache, Recompute, SharedMemory
from simserve.records import Log, Records
from simserve.scenario.serving import ContinuousSystem, ServingScenario, SystemSpec
from simserve.scheduling import FCFS, Chunked, LongestPrefix, Mixed, PrefillPlacement, WaitingQueue
from simserve.workload import Streams, Workload

DEFAULT_STREAMS = Streams(seed=1)

ENGINES: dict[str, type[Engine]] = {"continuous": ContinuousEngine, "request_level": RequestLevelEngine}


def run(scenario: ServingScenario, system: str, replication: int = 0, *, fast_forward: bool = True) -> Records:
    """Send the scenario's workload through one of its systems until every request has ended.

    The scenario, its seed and the replication decide everything: the same arguments give the same records.

    Raises:
        KeyError: no system of that name.
        IntegrityError: the records contradict each other, which is a fault of simserve.
    """
    streams = Streams(scenario.seed, replication)
    workload = scenario.workload.draw(streams)
    chosen = scenario.systems[system]
    return simulate(workload, chosen, scenario.model, scenario.hardware, streams, fast_forward=fast_forward)


def simulate(
    workload: Workload,
    system: SystemSpec,
    model: Model,
    hardware: Hardware,
    streams: Streams = DEFAULT_STREAMS,
    *,
    fast_forward: bool = True,
) -> Records:
    """Send a workload, drawn or made by hand, through a system; `streams` are for what the system draws: predictions.

    `fast_forward=False` makes every iteration an event of its own: slower, with the same records to the last digit.

    Raises:
        IntegrityError: the records contradict each other, which is a fault of simserve.
    """
    clock, log = Clock(), Log(len(workload))
    memory, cache = _memory(system, hardware.kv_capacity_tokens(model))
    engine = ENGINES[system.engine](
        clock=clock,
        arrivals=Arrivals(workload),
        log=log,
        cost=system.cost.price(model, hardware),
        memory=memory,
        host=_preemption(system).host_memory(model.kv_bytes_per_token),
        queue=_queue(system, workload, streams, cache),
        placement=_placement(system),
        max_batch_size=system.max_batch_size,
        fast_forward=fast_forward,
    )
    clock.process(engine.process())
    with _no_garbage_collection():
        clock.run()
    records = log.records(workload)
    check_integrity(
        records,
        memory,
        in_order=isinstance(system.order, FCFS) and not system.order.skip_ahead,
        budget_tokens=_token_budget(system),
    )
    return records


def _memory(system: SystemSpec, capacity_tokens: int) -> tuple[Memory, PrefixCache | None]:
    """Return the system's KV memory, and the prefix cache that is part of it, if there is one."""
    if not isinstance(system, ContinuousSystem) or system.prefix is None:
        return system.memory.manager(capacity_tokens), None
    assert isinstance(system.memory, Paged), "a prefix cache needs paged memory"
    cache = system.prefix.cache(system.memory.block_tokens)
    return SharedMemory(system.memory, capacity_tokens, cache, watched=isinstance(system.order, LongestPrefix)), cache


def _queue(system: SystemSpec, workload: Workload, streams: Streams, cache: PrefixCache | None) -> WaitingQueue:
    """Return the system's waiting queue."""
    if isinstance(system.order, LongestPrefix):
        assert cache is not None, "lpm needs a prefix cache"
        return system.order.prefix_queue(cache)
    return system.order.queue(workload, streams.generator("predictions"))


def _token_budget(system: SystemSpec) -> int | None:
    """Return the most tokens of an iteration, where the system has such a limit."""
    if isinstance(system, ContinuousSystem) and isinstance(system.prefill, Chunked):
        return system.prefill.budget_tokens
    return None


def _preemption(system: SystemSpec) -> PreemptionSpec:
    """Return how the system preempts; request-level batching never does."""
    return system.preemption if isinstance(system, ContinuousSystem) else Recompute()


def _placement(system: SystemSpec) -> PrefillPlacement:
    """Return the system's prefill placement; request-level batching has but one way."""
    return system.prefill.placement() if isinstance(system, ContinuousSystem) else Mixed()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Switch the cycle collector off: a run leaves no cycles behind, and looking for some takes a third of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
