import os
import subprocess
import sys
from pathlib import Path

import pytest

from simserve.report.folder import OutputError, check_writable, result_folder

MANIFEST = '{"simserve": "0.1.0"}'


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "goodput"
    folder.mkdir()
    (folder / "runs.csv").write_text("old")
    (folder / "manifest.json").write_text(MANIFEST)
    return folder


def test_a_result_appears_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "not" / "yet"
    with result_folder(out, "goodput") as folder:
        (folder / "runs.csv").write_text("new")
        assert not (out / "goodput").exists()
        assert folder.parent == out
    assert tree(out) == {"goodput/runs.csv": "new"}
    assert sorted(path.name for path in out.iterdir()) == ["goodput"]


def test_the_old_result_is_replaced_as_a_whole(tmp_path: Path, old: Path) -> None:
    (old / "gone.csv").write_text("old")
    (tmp_path / "another").mkdir()
    (tmp_path / "another" / "mine.txt").write_text("mine")
    with result_folder(tmp_path, "goodput") as folder:
        (folder / "runs.csv").write_text("new")
        assert tree(old)["runs.csv"] == "old"
    assert tree(tmp_path) == {"goodput/runs.csv": "new", "another/mine.txt": "mine"}


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_run_leaves_the_old_result(tmp_path: Path, old: Path, problem: type[BaseException]) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "runs.csv").write_text("half")
        raise problem

    before = tree(tmp_path)
    with pytest.raises(problem), result_folder(tmp_path, "goodput") as folder:
        interrupted(folder)
    assert tree(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["goodput"]


def test_a_failure_while_replacing_brings_the_old_result_back(
    tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(tmp_path)
    rename = Path.rename

    def fail_for_the_new_one(path: Path, target: Path) -> Path:
        if path.name.endswith(".partial"):
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new_one)
    with pytest.raises(KeyboardInterrupt), result_folder(tmp_path, "goodput") as folder:
        (folder / "runs.csv").write_text("new")
    assert tree(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["goodput"]


def test_leftovers_of_the_dead_are_cleared_and_no_others(tmp_path: Path, dead_pid: int) -> None:
    alive = os.getppid()
    kept = [
        f".goodput.{alive}.partial",
        f".goodput-2.{dead_pid}.partial",
        ".goodput.notes",
        f"goodput.{dead_pid}.partial",
    ]
    for name in [*kept, f".goodput.{dead_pid}.partial", f".goodput.{os.getpid()}.partial"]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "runs.csv").write_text("half")
    with result_folder(tmp_path, "goodput") as folder:
        assert list(folder.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "goodput"])


def test_an_old_result_that_a_dead_process_put_aside_comes_back(tmp_path: Path, dead_pid: int, old: Path) -> None:
    before = tree(tmp_path)
    old.rename(tmp_path / f".goodput.{dead_pid}.old")
    with pytest.raises(ValueError, match="stop"), result_folder(tmp_path, "goodput"):
        raise ValueError("stop")
    assert tree(tmp_path) == before


def test_an_old_result_put_aside_is_removed_where_there_is_a_new_one(tmp_path: Path, dead_pid: int, old: Path) -> None:
    before = tree(tmp_path)
    (tmp_path / f".goodput.{dead_pid}.old").mkdir()
    with pytest.raises(ValueError, match="stop"), result_folder(tmp_path, "goodput"):
        raise ValueError("stop")
    assert tree(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["goodput"]


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_replaced_and_what_it_points_to_kept(tmp_path: Path, dangling: bool) -> None:
    kept = {} if dangling else {"elsewhere/runs.csv": "old", "elsewhere/manifest.json": MANIFEST}
    if not dangling:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "runs.csv").write_text("old")
        (tmp_path / "elsewhere" / "manifest.json").write_text(MANIFEST)
    out = tmp_path / "out"
    out.mkdir()
    (out / "goodput").symlink_to(tmp_path / "elsewhere")
    with result_folder(out, "goodput") as folder:
        (folder / "runs.csv").write_text("new")
    assert tree(tmp_path) == {**kept, "out/goodput/runs.csv": "new"}
    assert sorted(path.name for path in out.iterdir()) == ["goodput"]


def test_checking_leaves_nothing_but_the_folder_it_needs(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b", "goodput")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_out_must_not_be_a_file(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match=r"cannot write results to .*goodput: ") as caught:
        check_writable(tmp_path / place, "goodput")
    assert "\n" not in str(caught.value)
    assert tree(tmp_path) == {"file": "mine"}


def test_the_result_must_not_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "goodput").write_text("mine")
    with pytest.raises(OutputError, match="goodput: it is a file"):
        check_writable(tmp_path, "goodput")


def test_a_folder_that_is_no_result_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    check_writable(tmp_path, "src")  # nothing to lose
    for content in ("print()", "{}", "[]"):
        (tmp_path / "src" / "main.py").write_text("mine")
        (tmp_path / "src" / "manifest.json").write_text(content)
        with pytest.raises(OutputError, match="it holds files that are no result of simserve"):
            check_writable(tmp_path, "src")
    (tmp_path / "src" / "manifest.json").write_text(MANIFEST)
    check_writable(tmp_path, "src")


def test_permission_is_asked_for_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        if path.name.startswith("."):
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError, match="Permission denied"), result_folder(tmp_path, "goodput"):
        pytest.fail("the block must not run")
