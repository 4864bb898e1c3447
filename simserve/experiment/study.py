"""A scenario as a whole: every system, point and replication, gathered into the tables of the results."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import pandas as pd

from simserve.experiment.claims import judge
from simserve.experiment.runs import Result, SearchResult, run_task, search_task
from simserve.experiment.statistics import summarise
from simserve.experiment.task import RunResult, Task
from simserve.scenario import Study, grid
from simserve.scenario.study import TrafficStudy

Progress = Callable[[int, int], None]
"""Called with (tasks done, tasks in all) whenever one is done."""

Tables = dict[str, pd.DataFrame]
"""The tables of the results, by the name of their CSV file without its ending."""


def run_study(scenario: Study, executor: Executor, progress: Progress = lambda done, total: None) -> Tables:
    """Run all of a scenario and gather its tables; the executor changes how long it takes and nothing else."""
    tasks = [
        Task(system, point, replication)
        for system in scenario.systems
        for point in grid(scenario, system)
        for replication in range(scenario.replications)
    ]
    swept = list(scenario.sweep)
    if not isinstance(scenario, TrafficStudy) or scenario.search is None:
        runs = _compute(partial(run_task, scenario), tasks, executor, progress)
        return _run_tables(scenario, runs, swept) | _conclusions(scenario, runs, swept)
    searches = _compute(partial(search_task, scenario), tasks, executor, progress)
    runs = [run for search in searches for run in search.runs]
    tables = {
        "goodput": _goodput_table(searches, swept),
        **_run_tables(scenario, runs, [*swept, scenario.search.parameter]),
    }
    return tables | _conclusions(scenario, searches, swept)


def _compute(
    function: Callable[[Task], Result], tasks: Sequence[Task], executor: Executor, progress: Progress
) -> list[Result]:
    results: list[Result] = []
    for result in executor.map(function, tasks):
        results.append(result)
        progress(len(results), len(tasks))
    return results


def _where(task: Task, swept: Sequence[str]) -> dict[str, Any]:
    """Return the leading cells of a row: system, swept values (empty where they do not matter to it), replication."""
    return {
        "system": task.system,
        **{path: _cell(task.point[path]) if path in task.point else None for path in swept},
        "replication": task.replication,
    }


def _cell(value: Any) -> Any:
    """Return a swept value as it stands in a CSV: null and parts with parameters as JSON."""
    return json.dumps(value) if value is None or isinstance(value, Mapping | list | tuple) else value


def _measures(results: Sequence[Result], swept: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    return _frame([{**_where(r.task, swept), **{name: r.measures[name] for name in columns}} for r in results], swept)


def _frame(rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> pd.DataFrame:
    """Return a table whose swept columns hold the values as given: a whole number stays one beside an empty cell."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return pd.DataFrame({name: pd.Series(v, dtype=object) if name in swept else v for name, v in columns.items()})


def _run_tables(scenario: Study, runs: Sequence[RunResult], swept: Sequence[str]) -> Tables:
    """Return the tables with a row for each run, and the large tables of those runs that kept them."""
    tables = {name: _measures(runs, swept, columns) for name, columns in scenario.MEASURES.items()}
    tables["runs"].insert(len(swept) + 2, "seed", scenario.seed)
    for name in dict.fromkeys(name for run in runs for name in run.tables):
        parts = [_labelled(run.tables[name], _where(run.task, swept)) for run in runs if name in run.tables]
        tables[name] = pd.concat(parts, ignore_index=True)
    return tables


def _labelled(part: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(dict(where), index=part.index), part], axis=1)


def _goodput_table(searches: Sequence[SearchResult], swept: Sequence[str]) -> pd.DataFrame:
    rows = []
    for search in searches:
        bracket = search.bracket
        rows.append(
            {
                **_where(search.task, swept),
                "goodput_per_s": search.measures["goodput_per_s"],
                "low_per_s": bracket.low,
                "high_per_s": bracket.high,
                "status": bracket.status,
                "evaluations": bracket.evaluations,
            }
        )
    return _frame(rows, swept).astype({"low_per_s": float, "high_per_s": float})


def _conclusions(scenario: Study, results: Sequence[Result], swept: Sequence[str]) -> Tables:
    """Return the summary over replications, and the claims judged."""
    names = list(results[0].measures)
    conclusions = {"summary": summarise(_measures(results, swept, names), ["system", *swept], names)}
    if scenario.claims:
        conclusions["claims"] = judge(scenario.claims, results, scenario.MACHINE_DEPENDENT)
    return conclusions
