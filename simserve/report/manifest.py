"""manifest.json: what a result was made from and with, and a fingerprint of every file in it."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import simserve

PACKAGES = ("matplotlib", "numpy", "pandas", "pydantic", "scipy", "simpy")
"""The packages whose version can change a number or a figure."""

NAME = "manifest.json"


def write_manifest(
    folder: Path,
    *,
    scenario: dict[str, Any],
    overrides: list[str],
    quick: bool,
    wall_s: float,
    started_at: str,
    machine_dependent: Sequence[str] = (),
) -> None:
    """Write manifest.json for the files that are in `folder` now; the only file with times of day in it.

    `machine_dependent` names the columns of wall time, which no seed reproduces.

    Raises:
        OSError: a file cannot be read or written.
    """
    entries = {
        "files": {file: fingerprint(folder / file) for file in _files(folder)},
        "git": checkout(Path(simserve.__file__).parent),
        "machine_dependent_columns": list(machine_dependent),
        "overrides": overrides,
        "packages": {name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "python": platform.python_version(),
        "quick": quick,
        "replications": scenario.get("replications"),
        # In the scenario's own order: that of systems and sweeps is the order of rows and figures.
        "scenario": scenario,
        "seed": scenario.get("seed"),
        "simserve": simserve.__version__,
        "started_at": started_at,
        "wall_s": wall_s,
    }
    (folder / NAME).write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def fingerprint(path: Path) -> dict[str, int | str]:
    """Return size and SHA-256 of a file and, of a CSV, the number of its rows without the header."""
    digest = hashlib.sha256()
    lines = 0
    quoted = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            # Every other piece between quotation marks is quoted text, whose line ends are no ends of rows.
            pieces = chunk.split(b'"')
            lines += sum(piece.count(b"\n") for piece in pieces[quoted::2])
            quoted = (quoted + len(pieces) - 1) % 2
    entry: dict[str, int | str] = {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
    return entry | {"rows": max(lines - 1, 0)} if path.suffix == ".csv" else entry


def checkout(package: Path) -> dict[str, str | bool | None]:
    """Return the commit of the git checkout that `package` is part of, and whether it was changed or added to since.

    Both are None where there is no git, no commit, or the package only happens to lie inside someone else's checkout.
    """
    try:
        # An installed copy in the virtual environment of another project is not part of that project's commit.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        commit = _git(package, "rev-parse", "--verify", "HEAD").strip()
        dirty = bool(_git(package, "status", "--porcelain", "--untracked-files=normal"))
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": dirty}


def _git(folder: Path, *arguments: str) -> str:
    # Inside a git hook, variables such as GIT_DIR would point at the repository of the hook.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30).stdout


def _files(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(file for file in found if file != NAME)
