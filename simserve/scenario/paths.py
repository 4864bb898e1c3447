"""Dotted paths: how overrides, sweeps, searches and claims name a place in a scenario.

A path works on the raw scenario, the nested mappings and lists that its YAML gives, shorthands included.
"""

from collections.abc import Mapping
from typing import Any

from simserve.catalog import GPU_BY_NAME, MODEL_BY_NAME
from simserve.numerics import CONFIG_BY_NAME
from simserve.scenario.errors import among
from simserve.spec import Spec

LENGTHS = ("prompt_tokens", "output_tokens")
"""Where a bare number is short for a constant length."""

CATALOGS: dict[str, Mapping[str, Spec]] = {"model": {**MODEL_BY_NAME, **CONFIG_BY_NAME}, "gpu": GPU_BY_NAME}
"""Where a bare name stands for an entry of the catalog, not for a kind."""


EVERY = "*"
"""Stands for every system."""


class PathError(ValueError):
    """A path that leads nowhere; the message starts with the place where it stops."""


def split(dotted: str) -> list[str]:
    """Return the keys of a path. What follows `sweep.` or `claims.N.at.` is one key: these mappings hold paths.

    Raises:
        PathError: a key is empty, as in `a..b`.
    """
    keys = dotted.split(".")
    if not all(keys):
        raise PathError(f"{dotted!r} is not a dotted path such as workload.num_requests")
    if keys[0] == "sweep":
        return ["sweep", *([".".join(keys[1:])] if keys[1:] else [])]
    if keys[0] == "claims" and keys[2:3] == ["at"] and len(keys) > 3:
        return [*keys[:3], ".".join(keys[3:])]
    return keys


def set_path(raw: Mapping[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """Return a copy of the scenario with the value at the path; what the path does not touch is shared.

    `systems.*` is every system. Mappings missing on the way are created, and shorthands are written out: a bare name as
    `{kind: name}`, a bare number as a constant length, the name of a model or GPU as its entry in the catalog.

    Raises:
        PathError: the path has an empty key, or enters an unknown system, a list beyond its end, or a plain value.
    """
    keys = split(dotted)
    if keys[0] == "systems" and len(keys) > 1:
        if keys[1] == EVERY:
            return _in_every_system(raw, keys[2:], value)
        _check_system(raw.get("systems"), keys[1])
    changed: dict[str, Any] = _with(raw, keys, value, ())
    return changed


def _in_every_system(raw: Mapping[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    if not keys:
        raise PathError(f"systems.{EVERY}: is every system as a whole; name what in them")
    changed: dict[str, Any] = dict(raw)
    for name in raw.get("systems") or ():
        changed = _with(changed, ["systems", name, *keys], value, ())
    return changed


def _check_system(systems: Any, name: str) -> None:
    known = list(systems) if isinstance(systems, Mapping) else []
    if name not in known:
        raise PathError(f"systems.{name}: there is no such system{among(name, known, 'The scenario has')}")


def _with(node: Any, keys: list[str], value: Any, done: tuple[str, ...]) -> Any:
    """Return `node`, which lies at the keys `done`, with the value at the keys further in."""
    if not keys:
        return value
    key, *rest = keys
    if isinstance(node, list | tuple):
        index = _index(node, key, done)
        return [*node[:index], _with(node[index], rest, value, (*done, key)), *node[index + 1 :]]
    mapping = _written_out(node, done)
    return {**mapping, key: _with(mapping.get(key), rest, value, (*done, key))}


def _index(node: list[Any] | tuple[Any, ...], key: str, done: tuple[str, ...]) -> int:
    if not (key.isascii() and key.isdigit() and int(key) < len(node)):
        raise PathError(f"{'.'.join(done)}: is a list of {len(node)}, counted from 0; there is no {key!r} in it")
    return int(key)


def _written_out(node: Any, done: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the mapping that a value on the way stands for."""
    if node is None:
        return {}
    if isinstance(node, Mapping):
        return node
    last = done[-1]
    if isinstance(node, str) and last in CATALOGS:
        if node in CATALOGS[last]:
            return CATALOGS[last][node].model_dump(exclude_unset=True)
        raise PathError(f"{'.'.join(done)}: unknown name {node!r}{among(node, CATALOGS[last], 'The catalog has')}")
    if isinstance(node, str):
        return {"kind": node}
    if last in LENGTHS and isinstance(node, int | float) and not isinstance(node, bool):
        return {"kind": "constant", "tokens": node}
    raise PathError(f"{'.'.join(done)}: is {node!r}; there is nothing inside it")
