"""The folder of a result: filled beside its place, moved there when it is complete.

Like a new edition on the shelf: the old one stays until the new one is bound.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class OutputError(Exception):
    """The results cannot be written where they were asked for; the message is one line for the user."""


@contextmanager
def result_folder(out: Path, name: str) -> Iterator[Path]:
    """Give an empty folder to fill; when the block ends well, it replaces `out/name` as a whole.

    On any exception, Ctrl-C too, it is removed and the old `out/name` stays as it was. What dead processes left behind
    while they wrote the same result is cleared away; nothing else in `out` is touched.

    Raises:
        OutputError: see `check_writable`.
    """
    check_writable(out, name)
    _clear_leftovers(out, name)
    staging = _hidden(out, name, "partial")
    try:
        staging.mkdir()
        yield staging
        _replace(out / name, staging, _hidden(out, name, "old"))
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def check_writable(out: Path, name: str) -> None:
    """Make sure that `out/name` can be written, before hours of work depend on it; creates `out` where it is missing.

    Raises:
        OutputError: `out` or `out/name` is a file, is not permitted, or `out/name` is no result that may be replaced.
    """
    target = out / name
    if target.exists() and not target.is_dir():
        raise OutputError(f"cannot write results to {target}: it is a file")
    # A scenario `src` with `--out .` must not cost anyone their sources.
    if target.is_dir() and any(target.iterdir()) and not _is_result(target):
        raise OutputError(f"cannot write results to {target}: it holds files that are no result of simserve")
    probe = _hidden(out, name, "probe")
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError as error:
        raise OutputError(f"cannot write results to {target}: {error.strerror} ({error.filename})") from error


def _is_result(folder: Path) -> bool:
    """Whether the folder holds a manifest that simserve wrote."""
    try:
        return "simserve" in json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _hidden(out: Path, name: str, role: str) -> Path:
    return out / f".{name}.{os.getpid()}.{role}"


def _replace(target: Path, staging: Path, aside: Path) -> None:
    """Put `staging` in the place of `target`; whatever comes between leaves one of the two there."""
    try:
        if os.path.lexists(target):
            target.rename(aside)
        staging.rename(target)
    finally:
        _settle(target, aside)


def _settle(target: Path, aside: Path) -> None:
    """Bring the old result back if there is no new one, else remove it."""
    if not os.path.lexists(aside):
        return
    if not os.path.lexists(target):
        aside.rename(target)
    elif aside.is_symlink():
        aside.unlink()
    else:
        shutil.rmtree(aside, ignore_errors=True)


def _clear_leftovers(out: Path, name: str) -> None:
    for path in out.glob(f".{name}.*"):
        match = re.fullmatch(rf"\.{re.escape(name)}\.(\d+)\.(partial|old|probe)", path.name)
        if match is None or _another_runs(int(match[1])):
            continue
        if match[2] == "old":
            _settle(out / name, path)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _another_runs(pid: int) -> bool:
    """Tell whether `pid` is a living process other than this one, whose number a dead one may have had before."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
