"""YAML read strictly, by the YAML 1.2 core schema on PyYAML: no surprises in what a scalar means.

`1e3` is a number, `no` and `on` are strings, `1:30` and dates are strings, and a key given twice is an error. Of YAML
1.1 only `<<: *anchor` is kept: a mapping that differs from another in a few keys is common in scenarios.
"""

import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode

MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2 and unique keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (none of YAML 1.1's; filled below)

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConstructorError(None, None, f"key {key!r} is not a name; put it in quotes", key_node.start_mark)
            if key in seen:
                raise ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        mapping = super().construct_mapping(node, deep)
        if wrong := [key for key in mapping if not isinstance(key, str)]:  # out of what was merged
            raise ConstructorError(None, None, f"key {wrong[0]!r} is not a name; put it in quotes", node.start_mark)
        return mapping


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    base = {"0o": 8, "0x": 16}.get(node.value[:2], 10)  # 010 is ten, as in YAML 1.2
    return int(node.value, base)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def load(text: str) -> Any:
    """Return the value of the one YAML document in `text`.

    Raises:
        yaml.YAMLError: not YAML, more than one document, a key given twice or that is not a string.
    """
    return yaml.load(text, Loader=_Loader)
