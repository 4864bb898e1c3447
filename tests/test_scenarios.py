"""Every scenario that ships runs in its quick form, and says of itself what it must."""

from pathlib import Path

import pytest

from simserve.experiment import quick_form, run_study
from simserve.experiment.executors import InProcess
from simserve.scenario import load

SHIPPED = sorted(Path("scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_quick_run(path: Path) -> None:
    scenario = quick_form(load(path))
    assert scenario.name == path.stem
    assert scenario.title
    assert scenario.source
    tables = run_study(scenario, InProcess())
    runs = tables["runs"]
    assert set(runs["system"]) == set(scenario.systems)
    assert (runs["finished"] + runs["rejected"] == runs["requests"]).all()
    assert (runs["unfinished"] == 0).all()
    assert (runs["throughput_tok_per_s"] > 0).all()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_scenarios_share_their_seed_and_number_of_replications(path: Path) -> None:
    scenario = load(path)
    assert (scenario.seed, scenario.replications) == (1, 20)
    assert scenario.claims


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_claim_holds(path: Path) -> None:
    claims = run_study(load(path), InProcess())["claims"]
    assert claims[~claims["holds"]].to_dict("records") == []
