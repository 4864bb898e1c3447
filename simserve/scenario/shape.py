"""The shape of a scenario as JSON Schema: for editors, and to look up what a faulty value could have been."""

from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from simserve.catalog import GPU_BY_NAME, MODEL_BY_NAME
from simserve.numerics import CONFIG_BY_NAME
from simserve.scenario.schema import DEFAULT_KIND, KINDS

Shape = dict[str, Any]
"""A JSON Schema, or a part of one."""

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Bounds that pydantic leaves under its own names where a validator stands before them, as JSON Schema names them."""

CATALOGS = {"Model": list(MODEL_BY_NAME), "GPU": list(GPU_BY_NAME), "LlamaConfig": list(CONFIG_BY_NAME)}
"""What a name may stand for, by the class it stands for."""

NAMED = ("Operand",)
"""Parts for which any name may stand."""


@cache
def shape_of(kind: type[BaseModel]) -> Shape:
    """Return the shape of a spec, with its parts under `$defs`; shorthands are left out."""
    shape: Shape = _with_bounds(kind.model_json_schema())
    return shape


def json_schema() -> Shape:
    """Return the JSON Schema of all kinds of scenario, shorthands included, for editors of their YAML."""
    references, schema = models_json_schema([(kind, "validation") for kind in KINDS.values()])
    parts = _with_bounds(schema["$defs"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"kind": {"enum": list(KINDS)}},
        "allOf": [{"if": _of_kind(name), "then": references[kind, "validation"]} for name, kind in KINDS.items()],
        "$defs": _with_shorthands(parts, parts),
    }


def _of_kind(name: str) -> Shape:
    """Return what holds for scenarios of a kind: that it is named, or none is where it is the default."""
    named = {"properties": {"kind": {"const": name}}}
    return named if name == DEFAULT_KIND else {**named, "required": ["kind"]}


def _with_bounds(node: Any) -> Any:
    """Return the node with its bounds under the names of JSON Schema."""
    if isinstance(node, list):
        return [_with_bounds(item) for item in node]
    if not isinstance(node, dict):
        return node
    names = BOUNDS if node.get("type") in ("integer", "number") else {}
    return {names.get(key, key): _with_bounds(item) for key, item in node.items()}


def _with_shorthands(node: Any, parts: Shape) -> Any:
    """Return the node with every part that has a shorthand accepted in both forms."""
    if isinstance(node, list):
        return [_with_shorthands(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    tagged = "discriminator" in node  # its members are told apart by their kind, which a shorthand does not have
    written_out = dict(node) if tagged else {key: _with_shorthands(item, parts) for key, item in node.items()}
    if short := _shorthands(node, parts):
        notes = {key: written_out.pop(key) for key in ("default", "description", "title") if key in written_out}
        return {**notes, "anyOf": [*short, written_out]}
    return written_out


def _shorthands(node: Shape, parts: Shape) -> list[Shape]:
    """Return what may stand in place of the mapping that `node` describes."""
    targets = list(node["discriminator"]["mapping"].values()) if "discriminator" in node else [node.get("$ref")]
    names = [target.rpartition("/")[2] for target in targets if isinstance(target, str)]
    short: list[Shape] = [{"enum": CATALOGS[name]} for name in names if name in CATALOGS]
    short += [{"type": "string"} for name in names if name in NAMED]
    kinds = {parts[name]["properties"]["kind"]["const"]: parts[name] for name in names if _has_kind(parts[name])}
    if bare := [kind for kind, part in kinds.items() if set(part.get("required", ())) <= {"kind"}]:
        short.append({"enum": bare})
    if constant := kinds.get("constant"):
        (value,) = set(constant["required"]) - {"kind"}
        short.append(constant["properties"][value])
    return short


def _has_kind(part: Shape) -> bool:
    return "const" in part.get("properties", {}).get("kind", {})
