"""From a YAML file to a checked scenario, or to everything that is wrong with it at once."""

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.constructor import ConstructorError

from simserve import strict_yaml
from simserve.scenario.errors import ScenarioError, among
from simserve.scenario.messages import problems_of, shown
from simserve.scenario.paths import PathError, set_path
from simserve.scenario.schema import DEFAULT_KIND, KINDS
from simserve.scenario.soundness import study_problems
from simserve.scenario.study import Study

FOLDER = "scenarios"
"""Where scenarios are looked up by name: here in the working directory, and in the installed package."""


def available() -> dict[str, Path]:
    """Return the scenarios that can be run by name; one in the working directory hides a shipped one of its name."""
    folders = (Path(str(files("simserve"))) / FOLDER, Path(FOLDER))
    found = {path.stem: path for folder in folders for path in folder.glob("*.yaml")}
    return dict(sorted(found.items()))


def find(name_or_path: str) -> Path:
    """Return the file of a scenario given by path or by name.

    Raises:
        ScenarioError: there is no such file, nor a scenario of that name.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    known = available()
    if name_or_path in known:
        return known[name_or_path]
    if path.is_dir():
        raise ScenarioError(name_or_path, ["is a directory, not a scenario"])
    raise ScenarioError(name_or_path, [f"there is no such file or scenario{among(path.stem, known, 'Scenarios')}"])


def load(path: Path, overrides: Sequence[str] = ()) -> Study:
    """Return the scenario of a file, with each override (`dotted.path=value`, the value in YAML) put in its place.

    Raises:
        ScenarioError: the file cannot be read, or the scenario cannot be run; it holds all problems found.
    """
    raw, problems = _overridden(_read(path), overrides)
    try:
        scenario = _scenario(raw, path)
        problems += study_problems(scenario)
    except ScenarioError as fault:
        problems += fault.problems
    if problems:
        raise ScenarioError(str(path), problems)
    return scenario


def _read(path: Path) -> dict[str, Any]:
    """Return what the file holds, as nested mappings and lists."""
    try:
        raw = _parsed(path.read_bytes().decode("utf-8"))
    except UnicodeDecodeError as fault:
        problem = f"is not UTF-8 text: byte {fault.start} is 0x{fault.object[fault.start]:02x}"
    except OSError as fault:
        problem = "is a directory, not a scenario" if path.is_dir() else _unreadable(fault)
    except ValueError as fault:
        problem = str(fault)
    else:
        if isinstance(raw, dict):
            return raw
        problem = "is empty" if raw is None else f"must be a mapping of names to values; got {shown(raw)}"
    raise ScenarioError(str(path), [problem])


def _parsed(text: str) -> Any:
    """Return the YAML in `text` as plain values; raise ValueError, with line and column, where it is not YAML."""
    try:
        value = strict_yaml.load(text)
        json.dumps(value)  # refuses what plain values cannot be: sets, dates, aliases that contain themselves
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        # what the constructor refuses is well-formed, a key given twice for one
        said = "" if isinstance(fault, ConstructorError) else "not YAML: "
        raise ValueError(place + said + ", ".join(filter(None, (fault.context, fault.problem)))) from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as fault:
        raise ValueError(f"not YAML of plain values: {' '.join(str(fault).split())}") from None
    except (KeyError, AttributeError):  # what PyYAML's own constructors raise for `!!bool maybe`, `!!int x`
        raise ValueError("not YAML of plain values: a type written with !! does not fit its value") from None
    return value


def _unreadable(fault: OSError) -> str:
    return "there is no such file" if isinstance(fault, FileNotFoundError) else f"cannot be read: {fault.strerror}"


def _overridden(raw: dict[str, Any], overrides: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario with the overrides that can be applied, and what is wrong with the others."""
    problems = []
    for override in overrides:
        dotted, equals, text = override.partition("=")
        try:
            if not equals:
                raise PathError("must be dotted.path=value")
            raw = set_path(raw, dotted.strip(), _parsed(text))
        except ValueError as fault:
            problems.append(f"override {override!r}: {fault}")
    return raw, problems


def _scenario(raw: dict[str, Any], path: Path) -> Study:
    """Return the scenario in `raw`, each part checked by its own schema."""
    kind = raw.get("kind", DEFAULT_KIND)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ScenarioError(str(path), [f"kind: unknown kind {shown(kind)}{among(kind, KINDS)}"])
    raw = _swept_from_folder(raw, path.parent)
    try:
        return KINDS[kind].model_validate(raw, context={"folder": path.parent})
    except ValidationError as fault:
        raise ScenarioError(str(path), problems_of(fault, raw, KINDS[kind])) from None


def _swept_from_folder(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Let file names among the swept values start at the scenario's folder, as all others do.

    The folder is known while loading only, and swept values are put in their places later.
    """
    changed = dict(raw)
    if "sweep" in raw:
        changed["sweep"] = _from_folder(raw["sweep"], folder)
    if isinstance(claims := raw.get("claims"), list):
        changed["claims"] = [_at_from_folder(claim, folder) for claim in claims]
    return changed


def _at_from_folder(claim: Any, folder: Path) -> Any:
    return {**claim, "at": _from_folder(claim["at"], folder)} if isinstance(claim, dict) and "at" in claim else claim


def _from_folder(values: Any, folder: Path, key: str = "") -> Any:
    """Return the values with each `path` among them, at any depth, as seen from where the program runs."""
    if isinstance(values, list):
        return [_from_folder(value, folder, key) for value in values]
    if isinstance(values, dict):
        return {name: _from_folder(value, folder, name) for name, value in values.items()}
    # `package.module:Class` is the path of a part of the user's, not a file.
    is_path = isinstance(values, str) and key.rpartition(".")[2] == "path" and ":" not in values
    return str(folder / values) if is_path else values
