"""Points: a scenario with some of its values replaced, as a sweep or a search asks for them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

from pydantic import ValidationError

from simserve.memory import Paged, RadixPrefix, Reservation, Swap, Unlimited
from simserve.scenario.errors import ScenarioError
from simserve.scenario.messages import problems_of
from simserve.scenario.paths import EVERY, PathError, set_path
from simserve.scenario.serving import ContinuousSystem, ServingScenario, SystemSpec
from simserve.scenario.study import Study
from simserve.scheduling import LongestPrefix
from simserve.spec import nearest

Kind = TypeVar("Kind", bound=Study)

_KEPT = frozenset({"claims", "sweep"})
"""The large parts that no point changes: checked once, when the scenario is loaded."""


def at_point(scenario: Kind, point: Mapping[str, Any]) -> Kind:
    """Return the scenario with the value at each dotted path replaced, checked again.

    The paths are set in the order given, so that a part can be replaced first and a value inside it then.

    Raises:
        ScenarioError: a path that is unknown or may not vary, or a value that the scenario cannot have.
    """
    raw = scenario.model_dump(exclude_unset=True, exclude=set(_KEPT))
    for path, value in point.items():
        try:
            _check_root(path, scenario.VARYING)
            raw = set_path(raw, path, value)
        except PathError as fault:
            raise ScenarioError(scenario.name, [str(fault)]) from None
    try:
        moved = type(scenario).model_validate(raw)
    except ValidationError as fault:
        raise ScenarioError(scenario.name, problems_of(fault, raw, type(scenario))) from None
    if conflicts := conflicts_of(moved):
        raise ScenarioError(scenario.name, conflicts)
    return moved.model_copy(update={part: getattr(scenario, part) for part in _KEPT & scenario.model_fields_set})


def _check_root(path: str, roots: Sequence[str]) -> None:
    root, _, rest = path.partition(".")
    if root not in roots:
        raise PathError(f"{path}: cannot vary from point to point{nearest(root, roots)} What can: {', '.join(roots)}")
    if root == "systems" and not rest:
        raise PathError(f"{path}: cannot vary as a whole. Name a system: systems.NAME")


def conflicts_of(scenario: Study) -> list[str]:
    """Return what the values of a scenario say against each other."""
    if not isinstance(scenario, ServingScenario):
        return []
    return [
        f"systems.{name}.{problem}"
        for name, system in scenario.systems.items()
        for problem in (
            *_memory_conflicts(system, scenario),
            *_preemption_conflicts(system, scenario),
            *_prefix_conflicts(system),
        )
    ]


def _memory_conflicts(system: SystemSpec, scenario: ServingScenario) -> Iterator[str]:
    """Yield what is wrong with a system's KV memory, from `memory` on."""
    memory = system.memory
    if isinstance(memory, Unlimited):
        return
    if system.engine == "request_level":
        holds = "a reservation holds" if isinstance(memory, Reservation) else "pages are counted for"
        yield f"memory: request_level keeps finished seats running, beyond what {holds}: use unlimited"
    elif isinstance(memory, Paged):
        capacity = scenario.hardware.kv_capacity_tokens(scenario.model)
        if memory.block_tokens > capacity:
            yield f"memory.block_tokens: {memory.block_tokens} are more than the KV memory of {capacity} tokens"
    elif memory.reserve == "request" and scenario.workload.max_output_tokens is None:
        yield "memory.reserve: 'request' reserves each request's own limit: give workload.max_output_tokens"


def _preemption_conflicts(system: SystemSpec, scenario: ServingScenario) -> Iterator[str]:
    """Yield what is wrong with how a system preempts, from `preemption` on."""
    if not isinstance(system, ContinuousSystem) or not isinstance(system.preemption, Swap):
        return
    if not isinstance(system.memory, Paged):
        yield f"preemption: {system.memory.kind} memory never runs out, so nothing is swapped: use memory paged"
    if system.preemption.host_bytes < scenario.model.kv_bytes_per_token:
        yield (
            f"preemption.host_bytes: {system.preemption.host_bytes:g} bytes hold no token of "
            f"{scenario.model.kv_bytes_per_token} bytes"
        )


def _prefix_conflicts(system: SystemSpec) -> Iterator[str]:
    """Yield what is wrong with a system's prefix cache, or with the lack of one."""
    prefix = system.prefix if isinstance(system, ContinuousSystem) else None
    if prefix is None:
        if isinstance(system.order, LongestPrefix):
            yield "order: lpm looks into the prefix cache: give prefix"
        return
    assert isinstance(system, ContinuousSystem)
    if not isinstance(system.memory, Paged):
        yield f"prefix: cached KV lies in blocks, and {system.memory.kind} memory has none: use memory paged"
    elif isinstance(prefix, RadixPrefix) and system.memory.block_tokens != 1:
        yield f"prefix: radix shares single tokens: give memory.block_tokens 1, not {system.memory.block_tokens}"
    if isinstance(system.preemption, Swap):
        yield "preemption: with a prefix cache the KV of the preempted stays there for as long as it can: use recompute"


def grid(scenario: Study, system: str) -> list[dict[str, Any]]:
    """Return the points of the sweep that a system runs at: all combinations, the first path changing slowest.

    Paths into other systems make no difference to this one and are left out of its points. Without a sweep there is one
    point, with nothing in it.
    """
    paths = {path: distinct(values) for path, values in scenario.sweep.items() if matters_to(system, path)}
    return [dict(zip(paths, values, strict=True)) for values in product(*paths.values())]


def matters_to(system: str, path: str) -> bool:
    """Return whether a swept path can make a difference to a system."""
    root, *inner = path.split(".")
    return root != "systems" or inner[:1] in ([system], [EVERY])


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return the values without repetitions; they may be unhashable."""
    return [value for i, value in enumerate(values) if value not in values[:i]]
