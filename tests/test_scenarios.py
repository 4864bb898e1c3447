"""Every scenario that ships runs in its quick form, and says of itself what it must."""

import re
import subprocess
from pathlib import Path

import pytest

from simserve.experiment import quick_form, run_study
from simserve.experiment.executors import InProcess
from simserve.scenario import load
from simserve.scenario.study import TrafficStudy

# Those the README names: a user may keep others beside them.
SHIPPED = [
    Path(f"scenarios/{name}.yaml")
    for name in re.findall(r"^\| `(\w+)` \|", Path("README.md").read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_quick_run(path: Path) -> None:
    scenario = quick_form(load(path))
    assert scenario.name == f"{path.stem}-quick"
    assert scenario.title
    assert scenario.source
    tables = run_study(scenario, InProcess())
    runs = tables["runs"]
    assert set(runs["system"]) == set(scenario.systems)
    if isinstance(scenario, TrafficStudy):
        assert (runs["finished"] + runs["rejected"] == runs["requests"]).all()
        assert (runs["unfinished"] == 0).all()
        assert (runs["throughput_tok_per_s"] > 0).all()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_scenarios_share_their_seed_and_number_of_replications(path: Path) -> None:
    scenario = load(path)
    listed = isinstance(scenario, TrafficStudy) and scenario.workload.arrivals.kind == "listed"
    nothing_is_drawn = listed or scenario.kind in ("latency_profile", "padding", "cpu_timing")
    assert (scenario.seed, scenario.replications) == (1, 1 if nothing_is_drawn else 20)
    assert scenario.claims


def test_the_readme_names_all_that_ship() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "scenarios"], capture_output=True, text=True, check=False
    ).stdout.split()
    assert [path for path in tracked if Path(path) not in SHIPPED] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_claim_holds(path: Path) -> None:
    claims = run_study(load(path), InProcess())["claims"]
    assert claims[~claims["holds"]].to_dict("records") == []
