"""Parts of the user's own, named by import path."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from simserve import simulation
from simserve.experiment import open_executor, run_study
from simserve.plugin import PartError
from simserve.scenario import ScenarioError, load
from simserve.scheduling import OrderSpec, PrefillSpec
from simserve.scheduling.predictor import PredictorSpec
from tests.scenarios import small

MODULE = """
class ByPrompt:
    def __init__(self, sign=1):
        self.sign = sign

    def key(self, request, predicted_tokens):
        return self.sign * request.prompt_tokens


class Flat:
    def predict(self, workload, rng):
        return [5.0] * len(workload)


class Short:
    def predict(self, workload, rng):
        return [5.0]


class Halves:
    pauses_decodes = False

    def prompt_budget(self, decode_sequences):
        return 256


class Lazy(Halves):
    def prompt_budget(self, decode_sequences):
        return 0


class Fragile(Halves):
    def __init__(self):
        raise RuntimeError("no disk")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"parts_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_broken.py").write_text("import nothing_of_that_name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def systems(**parts: Any) -> dict[str, Any]:
    return {"orca": {"engine": "continuous", "max_batch_size": 4, **parts}}


def test_an_order_with_parameters(module: str) -> None:
    order = {"kind": f"{module}:ByPrompt", "sign": -1}
    scenario = small(systems=systems(order=order))
    admitted = simulation.run(scenario, "orca").requests.admitted_iteration
    plain = simulation.run(small(systems=systems()), "orca").requests.admitted_iteration
    assert not np.array_equal(admitted, plain)
    assert scenario.systems["orca"].order.make().sign == -1


def test_a_predictor(module: str) -> None:
    order = {"kind": "sjf", "predictor": f"{module}:Flat"}
    records = simulation.run(small(systems=systems(order=order)), "orca")
    plain = simulation.run(small(systems=systems()), "orca")
    np.testing.assert_array_equal(records.finish_s, plain.finish_s)  # all alike: by arrival


def test_a_placement(module: str) -> None:
    records = simulation.run(small(systems=systems(prefill=f"{module}:Halves")), "orca")
    assert records.iterations.prefill_tokens.max() == 256


def test_worker_processes_find_it(module: str) -> None:
    with open_executor(workers=2) as executor:
        run_study(small(systems=systems(order=f"{module}:ByPrompt"), replications=2), executor)


@pytest.mark.parametrize(
    ("family", "kind", "message"),
    [
        (OrderSpec, "nowhere_at_all:X", "cannot import 'nowhere_at_all': ModuleNotFoundError"),
        (
            OrderSpec,
            "{}_broken:X",
            "cannot import '{}_broken': ModuleNotFoundError: No module named 'nothing_of_that_name'",
        ),
        (OrderSpec, "{}:ByPromt", "{} has no class 'ByPromt'; did you mean 'ByPrompt'?"),
        (OrderSpec, "{}:Flat", "{}:Flat does not fit: it has no method key"),
        (PredictorSpec, "{}:ByPrompt", "{}:ByPrompt does not fit: it has no method predict"),
        (PrefillSpec, "{}:Flat", "{}:Flat does not fit: it has no method prompt_budget"),
        (PrefillSpec, "{}:Lazy", "{}:Lazy leaves an idle GPU idle: prompt_budget(0) is 0"),
        (PrefillSpec, "{}:Fragile", "{}:Fragile cannot be made with {{}}: no disk"),
        (OrderSpec, {"kind": "{}:ByPrompt", "sgn": 1}, "unexpected keyword argument 'sgn'"),
    ],
)
def test_what_does_not_fit_is_explained(module: str, family: Any, kind: Any, message: str) -> None:
    part = kind.format(module) if isinstance(kind, str) else kind | {"kind": kind["kind"].format(module)}
    with pytest.raises(ValueError, match="error") as caught:
        TypeAdapter(family).validate_python(part)
    assert message.format(module) in str(caught.value)


def test_the_loader_says_where(module: str, tmp_path: Path) -> None:
    text = f"""
name: own
model: llama-3-8b
workload: {{num_requests: 5, arrivals: {{kind: poisson, rate_per_s: 1}}, prompt_tokens: 5, output_tokens: 5}}
systems: {{orca: {{engine: continuous, order: "{module}:ByPromt"}}}}
"""
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=r"systems\.orca\.order") as caught:
        load(Path("own.yaml"))
    assert "did you mean 'ByPrompt'?" in str(caught.value)
    scenario = load(Path("own.yaml"), [f"systems.orca.order={{kind: '{module}:ByPrompt', sign: 2}}"])
    assert scenario.systems["orca"].order.parameters == {"sign": 2}


def test_a_wrong_number_of_predictions_is_a_fault_of_the_predictor(module: str) -> None:
    order = {"kind": "sjf", "predictor": f"{module}:Short"}
    with pytest.raises(PartError, match="must predict one number for each of the 60 requests"):
        simulation.run(small(systems=systems(order=order)), "orca")
