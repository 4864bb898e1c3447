"""The command line as a user meets it, in a folder of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from simserve import console
from simserve.cli import main

SCENARIO = """
name: tiny
title: A tiny scenario
model: llama-3-8b
workload: {num_requests: 40, arrivals: {kind: poisson, rate_per_s: 8}, prompt_tokens: 100, output_tokens: {kind: geometric, mean: 20}}
slo: {ttft_s: 1.0}
systems: {orca: {engine: continuous}, static: {engine: request_level, max_batch_size: 4}}
replications: 3
sweep: {workload.arrivals.rate_per_s: [4, 8, 16]}
claims:
  - {id: everyone, source: here, system: orca, metric: finished, exactly: 40}
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Simserve:
    """The command line, called in this process: starting one for each call would take most of the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["simserve", *words])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *self._capsys.readouterr())


@pytest.fixture
def simserve(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Simserve:
    return Simserve(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "tiny.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def test_run_writes_every_file_and_says_where(simserve: Simserve, folder: Path) -> None:
    done = simserve("run", "tiny")
    assert (done.returncode, done.stderr) == (0, "")
    assert "A tiny scenario" in done.stdout
    assert "1 of 1 claims hold" in done.stdout
    assert "results in results/tiny/" in done.stdout
    tables = {"runs.csv", "summary.csv", "requests.csv", "diagnostics.csv", "claims.csv"}
    others = {"figure.png", "figure.svg", "report.html", "manifest.json"}
    assert {path.name for path in (folder / "results/tiny").iterdir()} == tables | others
    manifest = json.loads((folder / "results/tiny/manifest.json").read_text())
    assert manifest["files"]["runs.csv"]["rows"] == 2 * 3 * 3
    assert [path.name for path in (folder / "results").iterdir()] == ["tiny"]


def test_same_seed_same_bytes_under_any_hash_seed_and_number_of_workers(folder: Path) -> None:
    for out, hash_seed, workers in (("a", "1", "1"), ("b", "2", "2"), ("c", "3", "3")):
        command = [sys.executable, "-m", "simserve", "run", "tiny", "--out", out, "--workers", workers]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True, capture_output=True)
    first = contents(folder / "a/tiny")
    assert len(first) == 8
    assert contents(folder / "b/tiny") == first
    assert contents(folder / "c/tiny") == first


def test_another_seed_gives_other_results(simserve: Simserve, folder: Path) -> None:
    simserve("run", "tiny", "--out", "a")
    simserve("run", "tiny", "--out", "b", "--set", "seed=2")
    assert (folder / "a/tiny/runs.csv").read_bytes() != (folder / "b/tiny/runs.csv").read_bytes()


def test_overrides_and_quick(simserve: Simserve, folder: Path) -> None:
    done = simserve("run", "scenarios/tiny.yaml", "--quick", "--set", "workload.num_requests=80")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (folder / "results").iterdir()] == ["tiny-quick"]
    assert not (folder / "results/tiny-quick/claims.csv").exists()
    manifest = json.loads((folder / "results/tiny-quick/manifest.json").read_text())
    assert manifest["quick"] is True
    assert manifest["overrides"] == ["workload.num_requests=80"]
    assert manifest["scenario"]["workload"]["num_requests"] == 20
    assert manifest["files"]["runs.csv"]["rows"] == 2 * 3 * 2


@pytest.mark.usefixtures("folder")
def test_the_ledger(simserve: Simserve) -> None:
    none = simserve("claims")
    assert none.returncode == 1
    assert "0 of 0 claims hold" in none.stdout
    assert "tiny" in none.stdout  # not run yet
    simserve("run", "tiny")
    simserve("run", "tiny", "--set", "name=worse", "--set", "claims.0.exactly=39")
    ledger = simserve("claims")
    assert ledger.returncode == 1
    assert "holds  everyone: orca: finished: expected 40, measured 40; exact in every run" in ledger.stdout
    assert "FAILS  everyone" in ledger.stdout
    assert "1 of 2 claims hold" in ledger.stdout


def test_validate_names_every_fault_and_runs_nothing(simserve: Simserve, folder: Path) -> None:
    (folder / "bad.yaml").write_text(
        SCENARIO.replace("rate_per_s: 8", "rate_per_s: -8").replace("engine: continuous", "engine: continous")
    )
    done = simserve("validate", "tiny", "bad.yaml", "nowhere")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "bad.yaml: workload.arrivals.rate_per_s:" in done.stderr
    assert "bad.yaml: systems.orca" in done.stderr
    assert "'continuous'" in done.stderr
    assert "nowhere:" in done.stderr
    assert simserve("validate", "tiny").stdout == "tiny: valid\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "tiny", "--workers", "0"], "--workers"),
        (["run", "tiny", "--executor", "spark"], "unknown executor 'spark'"),
        (["run", "tiny", "--out", "scenarios/tiny.yaml"], "scenarios/tiny.yaml"),
        (["run", "tiny", "--set", "workload.num_request=3"], "num_requests"),
        (["run", "tinny"], "tiny"),
        (["run", "tiny", "scenarios/tiny.yaml"], "tiny: given twice"),
        (["run", "tiny"], "it holds files that are no result of simserve"),
        (["run"], "Missing argument"),
        (["list", "modles"], "models"),
        (["runn"], "run"),
    ],
)
def test_bad_input_ends_in_a_message(simserve: Simserve, folder: Path, words: list[str], message: str) -> None:
    (folder / "results/tiny").mkdir(parents=True)
    (folder / "results/tiny/runs.csv").write_text("mine")
    done = simserve(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in (folder / "results/tiny").iterdir()] == ["runs.csv"]


@pytest.mark.usefixtures("folder")
def test_list_names_what_can_be_named(simserve: Simserve) -> None:
    everything = simserve("list").stdout
    for name in ("tiny", "llama-3-8b", "qwen2.5-7b", "h100-sxm", "a100-80g", "h200"):
        assert name in everything
    assert "llama" not in simserve("list", "gpus").stdout


@pytest.mark.usefixtures("folder")
def test_schema_is_json(simserve: Simserve) -> None:
    assert "systems" in json.dumps(json.loads(simserve("schema").stdout))


def test_an_interrupt_leaves_the_old_results(simserve: Simserve, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simserve("run", "tiny")
    old = contents(folder / "results/tiny")

    @contextmanager
    def interrupted(_: str) -> Iterator[Callable[[int, int], None]]:
        def press_ctrl_c(done: int, total: int) -> None:
            raise KeyboardInterrupt

        yield press_ctrl_c

    monkeypatch.setattr(console, "progress", interrupted)
    done = simserve("run", "tiny", "--set", "seed=2")
    assert (done.returncode, done.stderr) == (130, "interrupted; results/tiny/ is as it was\n")
    assert contents(folder / "results/tiny") == old
    assert [path.name for path in (folder / "results").iterdir()] == ["tiny"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="watches for workers in /proc, which Linux has")
@pytest.mark.usefixtures("folder")
def test_ctrl_c_ends_the_workers_in_the_middle_of_a_run() -> None:
    words = ["run", "tiny", "--workers", "2", "--set", "workload.num_requests=500000", "--set", "replications=50"]
    command = [sys.executable, "-m", "simserve", *words]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while running.poll() is None and len(children.read_text().split()) < 2:
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    _, errors = running.communicate(timeout=30)
    assert (running.returncode, errors) == (130, "interrupted; results/tiny/ is as it was\n")
