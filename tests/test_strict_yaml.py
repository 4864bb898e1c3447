"""What a scalar means, and what is refused."""

import math

import pytest
import yaml

from simserve import strict_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("-2", -2),
        ("+7", 7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("1e", "1e"),
        ("'5'", "5"),
        ("0o8", "0o8"),
        ("[1, a]", [1, "a"]),
        ("{a: {b: [1]}}", {"a": {"b": [1]}}),
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}),
        ('"<<": 1', {"<<": 1}),
    ],
)
def test_values(text: str, value: object) -> None:
    loaded = strict_yaml.load(text)
    assert loaded == value
    assert type(loaded) is type(value)


def test_nan() -> None:
    assert math.isnan(strict_yaml.load(".nan"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "key 'a' is given twice"),
        ("a: {b: 1, b: 1}", "key 'b' is given twice"),
        ("- {b: 1, 'b': 1}", "key 'b' is given twice"),
        ("1: a", "key 1 is not a name"),
        ("true: a", "key True is not a name"),
        ("? [a]\n: 1", "is not a name"),
        ("a: [1", "expected ',' or ']'"),
        ("a: 1\n---\nb: 2", "expected a single document"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        strict_yaml.load(text)
    assert message in str(caught.value)


def test_a_key_given_twice_is_placed() -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        strict_yaml.load("a: 1\nb:\n  c: 1\n  c: 2\n")
    mark = caught.value.problem_mark
    assert mark is not None
    assert (mark.line, mark.column) == (3, 2)


def test_the_same_key_in_different_mappings_is_fine() -> None:
    assert strict_yaml.load("a: {x: 1}\nb: {x: 2}") == {"a": {"x": 1}, "b": {"x": 2}}
