"""The studies of one step: what they count, against arithmetic by hand, and what they refuse."""

from pathlib import Path
from typing import Any

import pytest

from simserve.batch import Work
from simserve.experiment.forward_pass import run_padding, run_selective_batching, work_of
from simserve.experiment.task import Task
from simserve.numerics import MINI
from simserve.scenario import ScenarioError, load
from simserve.scenario.forward_pass import PaddingScenario, SelectiveBatchingScenario, Shape

# A prompt of 3, a decode at context 4, a piece of 2 behind 5.
STEP = [{"new": 3}, {"past": 4}, {"new": 2, "past": 5}]
LAYOUTS = {
    "alone": {"layout": "one_by_one"},
    "ragged": {"layout": "ragged"},
    "paged": {"layout": "ragged", "block_tokens": 4},
    "padded": {"layout": "padded"},
}


def measured(kind: str, system: str, replication: int = 0, **changes: Any) -> dict[str, float]:
    fields = {"name": "step", "requests": STEP, "systems": LAYOUTS, **changes}
    task = Task(system, {}, replication)
    if kind == "padding":
        return dict(run_padding(PaddingScenario.model_validate(fields), task).measures)
    return dict(run_selective_batching(SelectiveBatchingScenario.model_validate(fields), task).measures)


def test_padding_by_hand() -> None:
    # Tokens: 3 requests x 3 = 9 computed, 3 + 1 + 2 = 6 useful.
    # Pairs: keys go up to 7 (5 + 2), so 9 x 7 = 63 computed; useful 1 + 2 + 3 = 6, 5, and 6 + 7 = 13: 24.
    padded = measured("padding", "padded")
    assert (padded["computed_tokens"], padded["useful_tokens"]) == (9, 6)
    assert padded["wasted_tokens_share"] == pytest.approx(1 / 3)
    assert (padded["computed_pairs"], padded["useful_pairs"]) == (63, 24)
    # Ragged: 3 x 3 + 1 x 5 + 2 x 7 = 28 computed.
    ragged = measured("padding", "ragged")
    assert (ragged["computed_tokens"], ragged["wasted_tokens_share"]) == (6, 0)
    assert (ragged["computed_pairs"], ragged["useful_pairs"]) == (28, 24)


def test_the_simulators_work_by_hand() -> None:
    # New 6, pairs 24, read 4 + 5, written 6, and all three emit.
    assert work_of([Shape.model_validate(shape) for shape in STEP]) == Work(6, 24, 9, 6, 3)


def test_weights_are_read_once_or_for_each_request() -> None:
    alone, ragged = measured("selective", "alone"), measured("selective", "ragged")
    assert (alone["passes"], ragged["passes"]) == (3, 1)
    assert alone["linear_bytes"] == 3 * ragged["linear_bytes"]
    # Rows of the embedding table, one for each of the 6 new tokens, 64 float32 wide.
    assert alone["embedding_bytes"] == ragged["embedding_bytes"] == 6 * 64 * 4
    assert (alone["flop"], alone["kv_bytes"]) == (ragged["flop"], ragged["kv_bytes"])


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_no_layout_changes_what_comes_out(layout: str, precision: str) -> None:
    measures = measured("selective", layout, precision=precision)
    assert measures["tokens_differing"] == 0
    assert measures["logits_difference"] <= (1e-5 if precision == "float32" else 1e-13)


@pytest.mark.parametrize("layout", ["alone", "ragged", "paged"])
def test_the_ledger_is_the_cost_models(layout: str) -> None:
    assert measured("selective", layout)["ledger_mismatches"] == 0


def test_padding_is_work_that_no_cost_model_asked_for() -> None:
    assert measured("selective", "padded")["ledger_mismatches"] == 1  # FLOP of the linear layers


def test_replications_are_other_weights_and_tokens() -> None:
    first, second = (measured("selective", "ragged", replication) for replication in (0, 1))
    assert first["logits_difference"] != second["logits_difference"]
    assert first == measured("selective", "ragged", 0)


BASE = """\
kind: selective_batching
name: step
model: mini
requests: [{new: 3}, {past: 4}]
systems: {a: {layout: ragged}}
"""


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model=mni", "model: unknown model 'mni'; did you mean 'mini'? There are: mini, mini-13m"),
        ("model.heads=3", "model: heads (3) must be a multiple of kv_heads (2)"),
        ("systems.a.layout=raged", "systems.a.layout: unknown value 'raged'; did you mean 'ragged'?"),
        ("requests=[]", "requests: must have at least 1 entry; got []"),
        ("requests=[{new: 3000}]", "a request of 3000 tokens is longer than the model's 2048 positions"),
        ("requests=[{new: 0}]", "requests.0.new: must be a whole number of at least 1; got 0"),
        ("precision=float16", "precision: unknown value 'float16'"),
        ("search={low: 1, high: 2}", "search: unknown key"),
        ("sweep={seed: [1]}", "sweep.seed: cannot vary from point to point"),
    ],
)
def test_what_is_refused(tmp_path: Path, override: str, message: str) -> None:
    (tmp_path / "step.yaml").write_text(BASE)
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / "step.yaml", [override])
    (problem,) = caught.value.problems
    assert problem.startswith(message)


def test_a_size_of_the_model_can_be_swept(tmp_path: Path) -> None:
    (tmp_path / "step.yaml").write_text(BASE + "sweep: {model.layers: [1, 2]}\n")
    assert load(tmp_path / "step.yaml").sweep == {"model.layers": (1, 2)}
    assert MINI.layers == 2
