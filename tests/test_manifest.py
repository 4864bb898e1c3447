import hashlib
import json
import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import simserve
from simserve.report.manifest import checkout, fingerprint, write_manifest
from simserve.report.tables import write_csv

SCENARIO = {"name": "goodput", "seed": 7, "replications": 3, "systems": {"static": {}, "orca": {}}, "source": "§5.3"}

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def written(folder: Path) -> Any:
    write_manifest(
        folder, scenario=SCENARIO, overrides=["seed=7"], quick=True, wall_s=1.5, started_at="2026-01-02T03:04:05+00:00"
    )
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def test_it_says_what_made_the_result(tmp_path: Path) -> None:
    entries = written(tmp_path)
    assert entries["scenario"] == SCENARIO
    assert (entries["seed"], entries["replications"], entries["quick"]) == (7, 3, True)
    assert (entries["overrides"], entries["wall_s"]) == (["seed=7"], 1.5)
    assert entries["started_at"] == "2026-01-02T03:04:05+00:00"
    assert entries["simserve"] == simserve.__version__
    assert entries["packages"]["numpy"] == version("numpy")
    assert set(entries["packages"]) == {"matplotlib", "numpy", "pandas", "pydantic", "scipy", "simpy"}
    assert set(entries["git"]) == {"commit", "dirty"}


def test_keys_are_sorted_where_their_order_says_nothing(tmp_path: Path) -> None:
    for name in ("summary.csv", "figure.png", "runs.csv"):
        (tmp_path / name).write_text("")
    entries = written(tmp_path)
    assert list(entries) == sorted(entries)
    assert list(entries["files"]) == ["figure.png", "runs.csv", "summary.csv"]
    assert list(entries["packages"]) == sorted(entries["packages"])
    assert list(entries["scenario"]["systems"]) == ["static", "orca"]
    text = (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert '\n  "files": {' in text
    assert "§5.3" in text


def test_every_file_is_counted_and_hashed_but_the_manifest(tmp_path: Path) -> None:
    write_csv(pd.DataFrame({"a": [1, 2, 3], "b": ["x", 'two\nlines, "quoted"\n', "y"]}), tmp_path / "runs.csv")
    (tmp_path / "figure.png").write_bytes(b"\n\n\n")
    written(tmp_path)
    files = written(tmp_path)["files"]
    content = (tmp_path / "runs.csv").read_bytes()
    assert files == {
        "figure.png": {"bytes": 3, "sha256": hashlib.sha256(b"\n\n\n").hexdigest()},
        "runs.csv": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "rows": 3},
    }


@pytest.mark.parametrize(("text", "rows"), [("", 0), ("a,b\n", 0), ('a\n""\n', 1), ('a\n"x\n\n"""\n', 1)])
def test_rows_of_small_tables(tmp_path: Path, text: str, rows: int) -> None:
    (tmp_path / "table.csv").write_text(text)
    assert fingerprint(tmp_path / "table.csv")["rows"] == rows


def test_quotes_are_followed_from_chunk_to_chunk(tmp_path: Path) -> None:
    rows = 40_000
    # A mebibyte is no whole number of rows of 35 bytes: chunks end inside of quotes too.
    (tmp_path / "table.csv").write_text("head,er\n" + 'a,"first line\nsecond line\n third"\n' * rows)
    entry = fingerprint(tmp_path / "table.csv")
    assert int(entry["bytes"]) > 1 << 20
    assert entry["rows"] == rows


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "repository" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    return package


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


def commit(package: Path, *files: str) -> str:
    git(package.parent, "init", "--quiet")
    git(package.parent, "add", *files)
    git(package.parent, "commit", "--quiet", "--message", "first")
    return git(package.parent, "rev-parse", "HEAD").strip()


@needs_git
def test_the_commit_and_whether_something_changed(package: Path) -> None:
    head = commit(package, "package")
    assert checkout(package) == {"commit": head, "dirty": False}
    (package / "my_order.py").write_text("")
    assert checkout(package) == {"commit": head, "dirty": True}
    (package / "my_order.py").unlink()
    (package / "__init__.py").write_text("changed")
    assert checkout(package) == {"commit": head, "dirty": True}


@needs_git
def test_variables_of_a_git_hook_do_not_mislead(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = commit(package, "package")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert checkout(package)["commit"] == head


@needs_git
def test_an_installed_copy_has_no_part_in_the_checkout_around_it(package: Path) -> None:
    (package.parent / "README").write_text("another project")
    commit(package, "README")
    assert checkout(package) == {"commit": None, "dirty": None}


@needs_git
def test_a_checkout_without_a_commit(package: Path) -> None:
    git(package.parent, "init", "--quiet")
    git(package.parent, "add", "package")
    assert checkout(package) == {"commit": None, "dirty": None}


def test_without_git(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object, **options: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert checkout(package) == {"commit": None, "dirty": None}
