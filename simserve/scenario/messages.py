"""What is wrong with a scenario, in plain English: from pydantic's findings to one line each.

A line names the place as the user wrote it, says what was given and what is accepted, and guesses what was meant.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from simserve.scenario.errors import among
from simserve.scenario.shape import CATALOGS, Shape, shape_of
from simserve.spec import nearest

LONGEST = 60
"""Characters of a value that a message shows."""

PATTERNS = {
    r"^[A-Za-z0-9_-]+$": "letters, digits, '-' and '_'",
    r"^[A-Za-z0-9_-]+(\.([A-Za-z0-9_-]+|\*))*$": "a dotted path such as workload.arrivals.rate_per_s",
    r"^[a-z0-9.-]+(/[A-Za-z0-9._-]+)*$": "lower-case letters, digits, '.' and '-', and further parts behind '/'",
}
"""What the patterns of names mean."""

BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "greater than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}

NOUNS = {"string": "text", "boolean": "true or false", "array": "a list", "object": "a mapping"}

ABSENT: Any = object()
"""Stands for a value that the scenario does not give."""


def problems_of(fault: ValidationError, raw: Any, kind: type[BaseModel]) -> list[str]:
    """Return a line for each thing that is wrong with `raw` as a scenario of this kind, in the order of the schema."""
    shape = shape_of(kind)
    lines = [_line(error, raw, shape) for error in fault.errors(include_url=False) if not _is_echo(error)]
    return list(dict.fromkeys(lines))  # each member of a union complains, in the same words


def _is_echo(error: ErrorDetails) -> bool:
    """Whether a list is called too short only because entries of it are wrong, which is said of them."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def shown(value: Any) -> str:
    """Return a value as its YAML looks, cut to a readable length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


@dataclass
class _Place:
    """Where pydantic found fault: the keys as the user wrote them, the value there, and the shape it should have."""

    root: Shape
    value: Any
    shape: Shape
    keys: list[str]
    unwritten: list[str]
    """Keys inside what the user gave as a shorthand, or not at all."""
    key_at_fault: bool = False

    def enter(self, step: str | int) -> None:
        """Go one step further in. Steps that name the member of a union are pydantic's own, and lead to no key."""
        if step == "[key]":
            self.key_at_fault = True
            return
        if "discriminator" in self.shape:
            self.shape = self.resolved({"$ref": self.shape["discriminator"]["mapping"].get(step, "")})
            return
        child = self.child(step)
        if self._holds(step) or (child is not None and isinstance(self.value, dict | list) and not self.unwritten):
            self.keys.append(str(step))
            self.value = self.value[step] if self._holds(step) else ABSENT
        elif child is not None:
            self.unwritten.append(str(step))
        else:
            return
        self.shape = child or {}

    def _holds(self, step: str | int) -> bool:
        if isinstance(self.value, dict):
            return step in self.value
        return isinstance(self.value, list | tuple) and isinstance(step, int) and step < len(self.value)

    def child(self, step: str | int) -> Shape | None:
        """Return the shape of what lies at a key or an index, or None where nothing may."""
        for member in self.members():
            if step in member.get("properties", {}):
                return self.resolved(member["properties"][step])
            for pattern in member.get("patternProperties", {}).values():
                return self.resolved(pattern)
            inner = member.get("items" if isinstance(step, int) else "additionalProperties")
            if isinstance(inner, dict):
                return self.resolved(inner)
        return None

    def members(self) -> list[Shape]:
        """Return the alternatives of a plain union, or else the shape itself."""
        return [self.resolved(member) for member in self.shape.get("anyOf", [self.shape])]

    def resolved(self, shape: Shape) -> Shape:
        """Return the shape behind a reference, and behind `or null` where that is the only alternative."""
        if "$ref" in shape:
            found: Shape = self.root.get("$defs", {}).get(shape["$ref"].rpartition("/")[2], {})
            return self.resolved(found)
        options = [member for member in shape.get("anyOf", ()) if member.get("type") != "null"]
        return self.resolved(options[0]) if len(options) == 1 else shape


def _line(error: ErrorDetails, raw: Any, shape: Shape) -> str:
    place = _Place(shape, raw, shape, [], [])
    for step in error["loc"]:
        place.enter(step)
    tail, message = _told(error, place)
    return ": ".join(filter(None, (".".join([*place.keys, *tail]), message)))


def _told(error: ErrorDetails, place: _Place) -> tuple[list[str], str]:
    """Return the keys to add to the place, and what is wrong there."""
    match error["type"]:
        case "missing":
            return place.unwritten, "is missing"
        case "extra_forbidden":
            return [], _unknown_key(error, place)
        case "value_error":
            return [], str(error["ctx"]["error"])
        case "union_tag_invalid" | "union_tag_not_found":
            return _wrong_member(place)
    return [], _wrong_value(error, place)


def _unknown_key(error: ErrorDetails, place: _Place) -> str:
    """Return the message for a key that its mapping does not have; the place is that key."""
    mapping = _Place(place.root, ABSENT, place.root, [], [])
    for step in error["loc"][:-1]:
        mapping.enter(step)
    known = [key for member in mapping.members() for key in member.get("properties", {})]
    return f"unknown key{among(error['loc'][-1], known)}"


def _wrong_member(place: _Place) -> tuple[list[str], str]:
    """Return the message for a mapping whose `kind` (or `engine`) is unknown or missing."""
    selector, known = _selector(place.shape)
    if not isinstance(place.value, dict):
        return [], f"unknown {selector} {shown(place.value)}{among(place.value, known)}"  # a bare name
    if selector in place.value:
        given = place.value[selector]
        return [selector], f"unknown {selector} {shown(given)}{among(given, known)}"
    close = [key for key in place.value if nearest(key, [selector]) != "."]
    return [selector], f"is missing{f'; is {close[0]!r} meant?' if close else '.'} Accepted: {', '.join(known)}"


def _selector(shape: Shape) -> tuple[str, list[str]]:
    tagged = shape["discriminator"]
    return tagged["propertyName"], list(tagged["mapping"])


def _wrong_value(error: ErrorDetails, place: _Place) -> str:
    given = error["input"] if place.value is ABSENT or place.key_at_fault else place.value
    if place.key_at_fault and error["type"] == "string_pattern_mismatch":
        return f"its name must be {_pattern(error['ctx']['pattern'])}; got {shown(given)}"
    choices = _choices(place.shape)
    if choices and isinstance(given, str):
        what = error["loc"][-1] if error["loc"][-1] in ("kind", "engine") else "value"
        return f"unknown {what} {shown(given)}{among(given, choices)}"
    match error["type"]:
        case "finite_number":
            return f"must be finite; got {shown(given)}"
        case "too_short":
            return f"must have at least {error['ctx']['min_length']} entry; got {shown(given)}"
        case "string_pattern_mismatch":
            return f"must be {_pattern(error['ctx']['pattern'])}; got {shown(given)}"
    wanted = " or ".join(filter(None, (_wanted(member, given) for member in place.members())))
    return f"must be {wanted}; got {shown(given)}" if wanted else f"cannot be used; got {shown(given)}"


def _pattern(pattern: str) -> str:
    return PATTERNS.get(pattern, f"text of the form {pattern}")


def _choices(shape: Shape) -> list[str]:
    """Return the strings a value may be, where it must be one of a few."""
    return [str(choice) for choice in ([shape["const"]] if "const" in shape else shape.get("enum", ()))]


def _wanted(shape: Shape, given: Any) -> str:
    """Return what a value of this shape is, in words that follow `must be`."""
    if choices := _choices(shape):
        return f"one of {', '.join(choices)}" if len(choices) > 1 else repr(choices[0])
    if "discriminator" in shape:
        selector, known = _selector(shape)
        bare = "a name or " if selector == "kind" else ""
        return f"{bare}a mapping with {selector}, one of {', '.join(known)}"
    match shape.get("type"):
        case "integer":
            bounds = " and ".join(_bounds(shape))
            return f"a whole number of {bounds}" if bounds else "a whole number"
        case "number":
            bounds = " and ".join(_bounds(shape))
            is_number = isinstance(given, int | float) and not isinstance(given, bool)
            return bounds if bounds and is_number else " ".join(filter(None, ("a number", bounds)))
        case "object" if shape.get("title") in CATALOGS:
            return f"a mapping or one of {', '.join(CATALOGS[shape['title']])}"
        case "object" if kind := _choices(shape.get("properties", {}).get("kind", {})):
            return f"a name or a mapping with kind, one of {kind[0]}"
        case named:
            return NOUNS.get(str(named), "")


def _bounds(shape: Shape) -> Iterator[str]:
    for bound, words in BOUNDS.items():
        if bound in shape:
            yield f"{words} {shape[bound]:g}" if isinstance(shape[bound], float) else f"{words} {shape[bound]}"
