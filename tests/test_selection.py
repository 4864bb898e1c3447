"""Model selection: the weights by hand, Exp3 and Exp4 as learners, votes."""

import math
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from simserve import query_simulation
from simserve.query_metrics import diagnostics, regrets
from simserve.scenario.prediction import PredictionScenario
from simserve.scheduling import Choice, Selection, SelectionSpec
from tests.predictions import line, poisson, scenario

MODELS = ("a", "b", "c")


def policy(part: Any, models: tuple[str, ...] = MODELS, seed: int = 1) -> Selection:
    made: Selection = TypeAdapter(SelectionSpec).validate_python(part).policy(list(models), np.random.default_rng(seed))
    return made


def test_exp3_by_hand() -> None:
    # s_0 <- s_0 exp(-0.5 x 1 / (1/2)) = e^-1 beside s_1 = 1: shares e^-1 / (1 + e^-1) = 0.2689 and 0.7311.
    made = policy({"kind": "exp3", "learning_rate": 0.5}, ("a", "b"))
    assert list(made.weights) == [0.5, 0.5]
    made.learn(Choice((0,), 0.5), {0: 1.0})
    assert list(made.weights) == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)])
    made.learn(Choice((1,), 0.7311), {1: 0.0})
    assert list(made.weights) == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)])


def test_exp3_charges_by_the_chance_at_the_time_of_the_choice() -> None:
    # Chosen at 1/2, charged after model 0 has fallen to 0.2689: exp(-0.5 / 0.5) once more, e^-2 in all.
    made = policy({"kind": "exp3", "learning_rate": 0.5}, ("a", "b"))
    early = Choice((0,), 0.5)
    made.learn(Choice((0,), 0.5), {0: 1.0})
    made.learn(early, {0: 1.0})
    assert made.weights[0] == pytest.approx(math.exp(-2) / (1 + math.exp(-2)))
    for _ in range(50):
        choice = made.choose()
        assert choice.chance == made.weights[choice.models[0]]


def test_exp3_plays_by_weight() -> None:
    made = policy({"kind": "exp3", "learning_rate": 0.5})
    made.learn(Choice((0,), 0.5), {0: 1.0})
    made.learn(Choice((1,), 1.0), {1: 1.0})
    # e^-1, e^-0.5, 1.
    shares = np.exp([-1, -0.5, 0]) / np.exp([-1, -0.5, 0]).sum()
    played = np.bincount([made.choose().models[0] for _ in range(20_000)], minlength=3) / 20_000
    assert played == pytest.approx(shares, abs=4 * math.sqrt(0.25 / 20_000))


def test_exp3_without_an_answer_learns_nothing() -> None:
    made = policy("exp3")
    made.learn(made.choose(), {})
    assert list(made.weights) == [1 / 3] * 3


def test_exp4_by_hand() -> None:
    # All asked, each charged without dividing: e^-0.5, 1, e^-0.25.
    made = policy({"kind": "exp4", "learning_rate": 0.5})
    choice = made.choose()
    assert list(choice.models) == [0, 1, 2]
    made.learn(choice, {0: 1.0, 1: 0.0, 2: 0.5})
    raw = np.exp([-0.5, 0, -0.25])
    assert list(made.weights) == pytest.approx(raw / raw.sum())


def test_exp4_charges_only_who_has_voted() -> None:
    made = policy({"kind": "exp4", "learning_rate": 0.5})
    made.learn(made.choose(), {2: 1.0})
    assert made.weights[0] == made.weights[1] > made.weights[2]


@pytest.mark.parametrize("kind", ["exp3", "exp4"])
def test_weights_do_not_vanish_for_ever(kind: str) -> None:
    """After ten thousand losses of 1 model 0 is as good as gone, and still there when the others have lost as much."""
    made = policy({"kind": kind, "learning_rate": 10}, ("a", "b"))
    for _ in range(10_000):
        made.learn(Choice((0, 1)), {0: 1.0, 1: 0.0})
    assert made.weights[1] == 1.0
    for _ in range(10_000):
        made.learn(Choice((0, 1)), {0: 0.0, 1: 1.0})
    assert list(made.weights) == pytest.approx([0.5, 0.5])


def test_single_and_majority() -> None:
    single = policy({"kind": "single", "model": "b"})
    assert list(single.choose().models) == [1]
    single.learn(single.choose(), {1: 1.0})
    assert list(single.weights) == [0, 1, 0]
    majority = policy({"kind": "majority", "weights": {"c": 2}})
    assert list(majority.choose().models) == [0, 1, 2]
    assert list(majority.weights) == [0.25, 0.25, 0.5]
    assert list(policy("majority").weights) == [1 / 3] * 3


@pytest.mark.parametrize(
    "part",
    [
        "exp5",
        "single",
        {"kind": "exp3", "learning_rate": 0},
        {"kind": "exp4", "learning_rate": 1e308},
        {"kind": "majority", "weights": {"a": 0}},
        {"kind": "majority", "weights": {"a": 1e308}},
    ],
)
def test_what_is_no_selection(part: Any) -> None:
    with pytest.raises(ValidationError):
        policy(part)


# As learners, in whole runs.


def learning(selection: Any, num_requests: int = 8000, drift: bool = False, seed: int = 1) -> PredictionScenario:
    good = {"drift": {"at": 0.25, "accuracy": 0.5}} if drift else {}
    models = {
        "good": {"profile": line(0.001), "accuracy": 0.9, **good},
        "fair": {"profile": line(0.001), "accuracy": 0.75},
        "poor": {"profile": line(0.001), "accuracy": 0.5},
    }
    system = {"engine": "ensemble", "models": models, "selection": selection}
    return scenario(system, num_requests, poisson(400), slo={"latency_s": 0.02}, seed=seed)


def test_regret_of_exp3_grows_slower_than_linearly() -> None:
    """Over seeds; the slope of log regret over log queries, 1 for a policy that does not learn."""
    at = np.array([500, 1000, 2000, 4000, 8000])
    for selection, lowest, highest in (("exp3", 0.0, 0.9), ({"kind": "exp3", "learning_rate": 1e-9}, 0.95, 1.05)):
        whole = learning(selection)
        found = [regrets(query_simulation.run(whole, "a", replication).ballots)[at - 1] for replication in range(8)]  # type: ignore[arg-type]
        slope = np.polyfit(np.log(at), np.log(np.mean(found, axis=0)), 1)[0]
        assert lowest < slope < highest, (selection, slope)


def test_exp3_switches_after_the_drift() -> None:
    whole = learning("exp3", drift=True)
    for replication in range(4):
        ballots = query_simulation.run(whole, "a", replication).ballots
        assert ballots is not None
        assert ballots.best_model[[1999, 2000]].tolist() == [0, 1]
        asked = ballots.first_asked == ballots.best_model
        assert asked[1000:2000].mean() > 0.6
        assert asked[2000:2200].mean() < 0.5  # it does not know yet
        assert asked[-800:].mean() > 0.8


def test_exp4_is_hardly_below_its_best_member() -> None:
    for drift in (False, True):
        whole = learning("exp4", drift=drift)
        found = [diagnostics(query_simulation.run(whole, "a", r), None, 0) for r in range(4)]
        assert np.mean([run["accuracy_shortfall_late"] for run in found]) <= 0.01


def test_a_static_choice_does_not_switch() -> None:
    found = diagnostics(query_simulation.run(learning({"kind": "single", "model": "good"}, drift=True), "a"), None, 0)
    assert found["best_model_share_late"] == 0
    assert found["accuracy_late"] == pytest.approx(0.5, abs=0.08)
