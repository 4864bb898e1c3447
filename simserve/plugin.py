"""Parts of the user's own: a class named by its import path, `package.module:Class`, with its parameters beside it."""

import importlib
import os
import sys
from typing import Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from simserve.spec import Spec, nearest


class PartError(Exception):
    """A part of the user's has said in the middle of a run what it must not; the message says which, and what."""


class CustomPart(Spec):
    """A class of the user's, made with `parameters` as keyword arguments.

    `kind: my_package.my_module:MyClass` with parameters beside it is short for this. The module must be importable from
    the folder in which simserve runs.
    """

    required_methods: ClassVar[tuple[str, ...]] = ()

    kind: Literal["custom"] = "custom"
    path: str
    """`package.module:Class`"""
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        self.make()
        return self

    def make(self) -> Any:
        """Return a new instance.

        Raises:
            ValueError: there is no such class, it does not take the parameters, or it lacks a method.
        """
        made_class = _find_class(self.path)
        if missing := [name for name in self.required_methods if not callable(getattr(made_class, name, None))]:
            raise ValueError(f"{self.path} does not fit: it has no method {', '.join(missing)}")
        try:
            return made_class(**self.parameters)
        except Exception as fault:
            raise ValueError(f"{self.path} cannot be made with {self.parameters}: {fault}") from fault


def _find_class(path: str) -> type:
    module_name, _, class_name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as fault:
        raise ValueError(f"cannot import {module_name!r}: {type(fault).__name__}: {fault}") from fault
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ValueError(f"{module_name} has no class {class_name!r}{nearest(class_name, classes)}")
    return found


def custom(part: type[CustomPart]) -> BeforeValidator:
    """Return the validator that writes `{kind: package.module:Class, x: 1}` out as the fields of `part`."""

    def write_out(value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(kind := value.get("kind"), str):
            return value
        if ":" not in kind and kind != "custom":
            return value
        fields = {name: item for name, item in value.items() if name in part.model_fields}
        others = {name: item for name, item in value.items() if name not in part.model_fields}
        path = kind if ":" in kind else value.get("path")
        return fields | {"kind": "custom", "path": path, "parameters": {**fields.get("parameters", {}), **others}}

    return BeforeValidator(write_out)
