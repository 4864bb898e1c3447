"""Charts of iterations: generated, simulated, compared cell by cell, printed and drawn."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.experiment.gantt import differences, run
from simserve.experiment.task import Task
from simserve.report.gantt import chart_text, charts_of, gantt_figure
from simserve.scenario import ScenarioError, load
from simserve.scenario.gantt import GanttScenario

# Two seats. r0 holds one for 3 iterations, r1 for 2; r2 comes at 1 and waits for r1's seat until 2.
REQUESTS = [{"output_tokens": 3}, {"output_tokens": 2}, {"arrival": 1, "output_tokens": 1}]
CONTINUOUS = ["PDD", "PD", " .P"]
STATIC = ["PDD", "PD-", " ..P"]


def scenario(**changes: Any) -> GanttScenario:
    fields: dict[str, Any] = {
        "name": "chart",
        "requests": REQUESTS,
        "systems": {
            "continuous": {"schedule": "continuous", "max_batch_size": 2, "chart": CONTINUOUS},
            "static": {"schedule": "static", "max_batch_size": 2, "chart": STATIC},
            "sequential": {"schedule": "sequential"},
        },
    }
    return GanttScenario.model_validate(fields | changes)


def labelled(system: str, replication: int = 0) -> pd.DataFrame:
    table = run(scenario(), Task(system, {}, 0)).tables["schedule"]
    return table.assign(system=system, replication=replication)


@pytest.mark.parametrize(("system", "iterations", "idle"), [("continuous", 3, 0), ("static", 4, 1)])
def test_charts_by_hand(system: str, iterations: int, idle: int) -> None:
    measures = run(scenario(), Task(system, {}, 0)).measures
    assert measures["iterations"] == iterations
    assert measures["idle_seats"] == idle
    assert measures["chart_differences"] == measures["simulator_differences"] == measures["tokens_differing"] == 0


def test_a_wrong_chart_is_counted_cell_by_cell() -> None:
    assert differences(["PDD", " .P"], ["PDD", " .P"]) == 0
    assert differences(["PDD", " ·P  "], ["PDD", " .P"]) == 0  # either dot, and blanks at the end do not count
    assert differences(["PDD", " .P"], ["PD-", " .P"]) == 1
    assert differences(["PDD"], ["PDDD"]) == 1
    assert differences(["PDD", "PD"], ["PDD"]) == 2  # a row too many
    wrong = scenario().systems["continuous"].model_copy(update={"chart": ("PDD", "PDD", " .P")})
    shown = scenario(systems={"continuous": wrong})
    assert run(shown, Task("continuous", {}, 0)).measures["chart_differences"] == 1


requests = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=30)
@given(requests, st.sampled_from(("continuous", "static", "sequential")), st.integers(1, 4))
def test_generated_and_simulated_are_the_same_chart(
    rows: list[tuple[int, int, int]], schedule: str, seats: int
) -> None:
    shapes = [{"arrival": a, "prompt_tokens": p, "output_tokens": o} for a, p, o in sorted(rows)]
    system = {"schedule": schedule, "max_batch_size": 1 if schedule == "sequential" else seats}
    measures = run(scenario(requests=shapes, systems={"a": system}), Task("a", {}, 0)).measures
    assert measures["simulator_differences"] == 0
    assert measures["tokens_differing"] == 0


def test_the_table_has_every_cell() -> None:
    rows = labelled("static")[["request_id", "iteration", "phase", "new_tokens"]].values.tolist()
    assert rows == [
        [0, 0, "P", 4],
        [0, 1, "D", 1],
        [0, 2, "D", 1],
        [1, 0, "P", 4],
        [1, 1, "D", 1],
        [1, 2, "-", 0],
        [2, 1, ".", 0],
        [2, 2, ".", 0],
        [2, 3, "P", 4],
    ]


def test_charts_come_back_from_the_table() -> None:
    table = pd.concat([labelled("continuous"), labelled("static"), labelled("static", 1)])
    charts = dict(charts_of(table))
    assert charts == {
        "continuous": list(zip(("r0", "r1", "r2"), CONTINUOUS, strict=True)),
        "static": list(zip(("r0", "r1", "r2"), STATIC, strict=True)),
    }
    assert chart_text(charts["static"]) == "    0123\nr0  PDD\nr1  PD-\nr2   ..P"


def test_the_figure_has_a_cell_for_each_phase() -> None:
    figure = gantt_figure(pd.concat([labelled("continuous"), labelled("static")]), "Charts")
    continuous, static = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["continuous: 3 iterations", "static: 4 iterations"]
    assert sorted(text.get_text() for text in static.texts) == sorted("".join(STATIC).replace(" ", ""))
    assert [(t.get_position()[0], t.get_text()) for t in continuous.texts if t.get_position()[1] == 2] == [
        (1.5, "."),
        (2.5, "P"),
    ]


BASE = """\
kind: gantt
name: chart
requests: [{output_tokens: 2}, {arrival: 3, output_tokens: 1}]
systems: {a: {schedule: continuous, max_batch_size: 2}}
"""


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("requests.0.arrival=4", "requests must be in order of arrival"),
        ("requests.0.output_tokens=5000", "a request of 5004 tokens is longer than the model's 2048 positions"),
        ("systems.a.chart=[PD]", "systems.a.chart: has 1 rows for 2 requests"),
        ("systems.a.schedule=sequential", "systems.a: sequential serves one request at a time"),
        ("systems.a.schedule=contiguous", "systems.a.schedule: unknown value 'contiguous'; did you mean 'continuous'?"),
    ],
)
def test_what_is_refused(tmp_path: Path, override: str, message: str) -> None:
    (tmp_path / "chart.yaml").write_text(BASE)
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / "chart.yaml", [override])
    (problem,) = caught.value.problems
    assert problem.startswith(message)


def test_a_sweep_has_a_chart_for_each_point() -> None:
    path = "systems.a.max_batch_size"
    tables = [labelled("continuous"), labelled("static")]
    for seats, table in enumerate(tables, start=1):
        table.insert(0, path, seats)
        table["system"] = "a"
    both = pd.concat(tables)
    both = both[["system", path, "replication", "request_id", "iteration", "phase", "new_tokens"]]
    names = [name for name, _ in charts_of(both)]
    assert len(names) == len(set(names)) == 2


@pytest.mark.parametrize(
    ("figure", "gantt", "metrics"),
    [
        ("{lines: {iterations: 3}}", False, True),
        ("{gantt: false}", False, True),
        ("{metrics: [iterations]}", False, True),
        ("{gantt: true}", True, True),
    ],
)
def test_what_is_drawn(tmp_path: Path, figure: str, gantt: bool, metrics: bool) -> None:
    (tmp_path / "chart.yaml").write_text(BASE + f"figure: {figure}\n")
    drawn = load(tmp_path / "chart.yaml").drawn
    assert (drawn.gantt, bool(drawn.metrics)) == (gantt, metrics)
