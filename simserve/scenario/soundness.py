"""Whether a scenario that is valid by itself holds together as a study: its sweep, its search and its claims."""

from collections.abc import Iterator, Mapping
from typing import Any

from simserve import diagnostics, metrics
from simserve.scenario.claims import Claim
from simserve.scenario.errors import ScenarioError, among
from simserve.scenario.messages import shown
from simserve.scenario.points import at_point, conflicts_of, distinct, grid, matters_to
from simserve.scenario.schema import Scenario


def study_problems(scenario: Scenario) -> list[str]:
    """Return everything that would go wrong in a run of this scenario, a line each."""
    if conflicts := conflicts_of(scenario):
        return [*conflicts, *_claim_problems(scenario)]  # they would come back at every point
    study = [*_search_problems(scenario), *_claim_problems(scenario), *_figure_problems(scenario)]
    return [*(_sweep_problems(scenario) or _grid_problems(scenario)), *study]


def _sweep_problems(scenario: Scenario) -> list[str]:
    """Return what is wrong with the swept paths and values, each tried alone."""
    problems = [
        f"sweep.{path}: {line.removeprefix(f'{path}: ')}"
        for path, values in scenario.sweep.items()
        for value in values
        for line in _faults_at(scenario, {path: value})
    ]
    paths = list(scenario.sweep)
    problems += [
        f"sweep.{inner}: is overwritten by {outer}, which comes after it: give {outer} first"
        for i, inner in enumerate(paths)
        for outer in paths[i + 1 :]
        if inner.startswith(f"{outer}.")
    ]
    return list(dict.fromkeys(problems))


def _grid_problems(scenario: Scenario) -> list[str]:
    """Return what is wrong with values of several paths that are each right alone."""
    points = [point for system in scenario.systems for point in grid(scenario, system) if len(point) > 1]
    faults = (f"sweep: at {shown(point)}: {line}" for point in points for line in _faults_at(scenario, point))
    return list(dict.fromkeys(faults))


def _faults_at(scenario: Scenario, point: Mapping[str, Any]) -> list[str]:
    try:
        at_point(scenario, point)
    except ScenarioError as fault:
        return fault.problems
    return []


def _search_problems(scenario: Scenario) -> list[str]:
    """Return what is wrong with the searched parameter, tried at both ends and then between them."""
    search = scenario.search
    if search is None:
        return []
    if search.parameter in scenario.sweep:
        return [f"search.parameter: {search.parameter} is swept as well; search it or sweep it"]
    between = search.low + (search.high - search.low) * 0.618034  # no whole number: some parameters take no other
    for values in ((search.low, search.high), (between,)):
        if lines := [line for value in values for line in _faults_at(scenario, {search.parameter: value})]:
            return list(dict.fromkeys(f"search.parameter: {line}" for line in lines))
    return []


def _claim_problems(scenario: Scenario) -> list[str]:
    """Return what is wrong with what claims say of systems, points, metrics and each other."""
    problems = []
    first: dict[str, int] = {}
    for i, claim in enumerate(scenario.claims):
        if first.setdefault(claim.id, i) != i:
            problems.append(f"claims.{i}.id: {claim.id!r} is given twice; claims.{first[claim.id]} has it")
        for field, name in (("system", claim.system), ("same_as", claim.same_as)):
            if name is not None and name not in scenario.systems:
                ending = among(name, scenario.systems, "The scenario has")
                problems.append(f"claims.{i}.{field}: unknown system {name!r}{ending}")
        problems += [f"claims.{i}.at.{line}" for line in _point_problems(scenario, claim.system, claim.at)]
        problems += [f"claims.{i}.{line}" for line in _metric_problems(scenario, claim)]
    return problems


def _metric_problems(scenario: Scenario, claim: Claim) -> Iterator[str]:
    known = _claimable(scenario)
    for field, name in (("metric", claim.metric), ("over", claim.over)):
        if name and name not in known:
            yield f"{field}: unknown metric {name!r}{among(name, known, 'There are')}"
    other = claim.same_as
    if other in scenario.systems and grid(scenario, other) != grid(scenario, claim.system):
        yield f"same_as: {other!r} does not run at the points of {claim.system!r}: a path into one is swept"


def _claimable(scenario: Scenario) -> tuple[str, ...]:
    """Return the metrics that a claim can be about."""
    if scenario.search is None:
        return (*metrics.COLUMNS, *diagnostics.COLUMNS)
    return ("goodput_per_s",) if scenario.search.demand_per_s is None else ("goodput_per_s", "gpus_for_demand")


def _figure_problems(scenario: Scenario) -> list[str]:
    return [
        f"figure.metrics.{i}: unknown metric {name!r}{among(name, metrics.COLUMNS, 'There are')}"
        for i, name in enumerate(scenario.figure.metrics)
        if name not in metrics.COLUMNS
    ]


def _point_problems(scenario: Scenario, system: str, at: Mapping[str, Any]) -> Iterator[str]:
    swept = {path: values for path, values in scenario.sweep.items() if matters_to(system, path)}
    for path, value in at.items():
        if path not in swept:
            yield f"{path}: is not swept for system {system!r}{among(path, swept, 'Swept')}"
        elif value not in swept[path]:
            values = ", ".join(map(shown, distinct(swept[path])))
            yield f"{path}: must be one of the swept values {values}; got {shown(value)}"
