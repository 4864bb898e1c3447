"""The study of wall time: what it reports of its measurements, and how it says that they are the machine's."""

import json
from pathlib import Path
from typing import Any

import pytest

from simserve.experiment import cpu_timing, publish
from simserve.experiment.executors import InProcess
from simserve.experiment.task import Task
from simserve.numerics import DecodeTiming
from simserve.report import read_csv
from simserve.scenario.cpu_timing import CpuTimingScenario

TINY = {"layers": 1, "hidden": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "ffn": 8, "vocab": 16}


def scenario(**changes: Any) -> CpuTimingScenario:
    fields: dict[str, Any] = {"name": "cpu", "model": TINY, "context_tokens": 4, "repeats": 1, "batch_size": 2}
    return CpuTimingScenario.model_validate(fields | {"systems": {"one": {"threads": 1}}} | changes)


def test_what_is_reported_of_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def timed(*arguments: Any) -> list[DecodeTiming]:
        asked.append(arguments)
        return [DecodeTiming(batch_size=64, one_by_one_s=0.037, batched_s=0.0082)]

    monkeypatch.setattr(cpu_timing, "time_decodes", timed)
    measures = cpu_timing.run(scenario(batch_size=64), Task("one", {}, 0)).measures
    ((config, sizes, repeats, seed, context),) = asked
    assert (config.vocab, sizes, repeats, seed, context) == (16, [64], 1, 1, 4)
    # 37 ms / 8.2 ms = 4.51; 64 tokens in 8.2 ms are 7,805 a second
    assert measures["speedup"] == pytest.approx(4.512, abs=1e-3)
    assert measures["batched_throughput_tok_per_s"] == pytest.approx(7805, abs=1)


def test_wall_times_are_marked(tmp_path: Path) -> None:
    claim = {"id": "faster", "system": "one", "metric": "speedup", "low": 0.0}
    publish(scenario(claims=[claim]), tmp_path, InProcess())
    manifest = json.loads((tmp_path / "cpu/manifest.json").read_text())
    assert manifest["machine_dependent_columns"] == [
        "one_by_one_s",
        "batched_s",
        "speedup",
        "batched_throughput_tok_per_s",
    ]
    (rule,) = read_csv(tmp_path / "cpu/claims.csv")["rule"]
    assert rule == "mean in interval, machine-dependent"
    (run,) = read_csv(tmp_path / "cpu/runs.csv").to_dict("records")
    assert run["one_by_one_s"] > 0
    assert run["speedup"] == pytest.approx(run["one_by_one_s"] / run["batched_s"])


def test_context_must_leave_room_for_the_decode() -> None:
    with pytest.raises(ValueError, match="must be below the model's 2048 positions"):
        scenario(context_tokens=2048)
