"""Whether a scenario that is valid by itself holds together as a study: its sweep, its search and its claims."""

from collections.abc import Iterator, Mapping
from typing import Any

from simserve.scenario.claims import Claim, Operand
from simserve.scenario.errors import ScenarioError, among
from simserve.scenario.messages import shown
from simserve.scenario.paths import EVERY
from simserve.scenario.points import at_point, conflicts_of, distinct, grid, matters_to
from simserve.scenario.study import Study, TrafficStudy


def study_problems(scenario: Study) -> list[str]:
    """Return everything that would go wrong in a run of this scenario, a line each."""
    if conflicts := conflicts_of(scenario):
        return [*conflicts, *_claim_problems(scenario)]  # they would come back at every point
    study = [*_search_problems(scenario), *_claim_problems(scenario), *_figure_problems(scenario)]
    return [*(_sweep_problems(scenario) or _grid_problems(scenario)), *study]


def _sweep_problems(scenario: Study) -> list[str]:
    """Return what is wrong with the swept paths and values, each tried alone."""
    problems = [
        f"sweep.{path}: {line.removeprefix(f'{path}: ')}"
        for path, values in scenario.sweep.items()
        for value in values
        for line in _faults_at(scenario, {path: value})
    ]
    paths = list(scenario.sweep)
    problems += [
        f"sweep.{inner}: is overwritten by {outer}, which comes after it"
        for i, inner in enumerate(paths)
        for outer in paths[i + 1 :]
        if _overwrites(outer, inner)
    ]
    return list(dict.fromkeys(problems))


def _overwrites(later: str, earlier: str) -> bool:
    """Whether setting one path undoes what setting the other did before."""
    pairs = zip(later.split("."), earlier.split("."), strict=False)
    return later.count(".") <= earlier.count(".") and all(a == b or EVERY in (a, b) for a, b in pairs)


def _grid_problems(scenario: Study) -> list[str]:
    """Return what is wrong with values of several paths that are each right alone."""
    points = [point for system in scenario.systems for point in grid(scenario, system) if len(point) > 1]
    faults = (f"sweep: at {shown(point)}: {line}" for point in points for line in _faults_at(scenario, point))
    return list(dict.fromkeys(faults))


def _faults_at(scenario: Study, point: Mapping[str, Any]) -> list[str]:
    try:
        at_point(scenario, point)
    except ScenarioError as fault:
        return fault.problems
    return []


def _search_problems(scenario: Study) -> list[str]:
    """Return what is wrong with the searched parameter, tried at both ends and then between them."""
    search = scenario.searched
    if search is None:
        return []
    if search.parameter in scenario.sweep:
        return [f"search.parameter: {search.parameter} is swept as well; search it or sweep it"]
    between = search.low + (search.high - search.low) * 0.618034  # no whole number: some parameters take no other
    for values in ((search.low, search.high), (between,)):
        if lines := [line for value in values for line in _faults_at(scenario, {search.parameter: value})]:
            return list(dict.fromkeys(f"search.parameter: {line}" for line in lines))
    return []


def _claim_problems(scenario: Study) -> list[str]:
    """Return what is wrong with what claims say of systems, points, metrics and each other."""
    problems = []
    first: dict[str, int] = {}
    for i, claim in enumerate(scenario.claims):
        if first.setdefault(claim.id, i) != i:
            problems.append(f"claims.{i}.id: {claim.id!r} is given twice; claims.{first[claim.id]} has it")
        for field, operand in (("", Operand(system=claim.system, at=claim.at, metric=claim.metric)), *_operands(claim)):
            place = f"claims.{i}.{field}" if field else f"claims.{i}"
            problems += [f"{place}.{line}" for line in _operand_problems(scenario, claim, operand)]
        problems += [f"claims.{i}.{line}" for line in _same_points_problems(scenario, claim)]
        problems += [f"claims.{i}.{line}" for line in _trend_problems(scenario, claim)]
    return problems


def _operands(claim: Claim) -> Iterator[tuple[str, Operand]]:
    """Yield what a claim says of other runs, by its field."""
    for field in ("over", "baseline", "same_as", "above", "below"):
        if (operand := getattr(claim, field)) is not None:
            yield field, operand
    if claim.when is not None:
        yield "when", Operand(metric=claim.when.metric)


def _operand_problems(scenario: Study, claim: Claim, operand: Operand) -> Iterator[str]:
    if operand.system is not None and operand.system not in scenario.systems:
        ending = among(operand.system, scenario.systems, "The scenario has")
        yield f"system: unknown system {operand.system!r}{ending}"
    if operand.metric and operand.metric not in _claimable(scenario):
        yield f"metric: unknown metric {operand.metric!r}{among(operand.metric, _claimable(scenario), 'There are')}"
    yield from (f"at.{line}" for line in _point_problems(scenario, operand.system or claim.system, operand.at))


def _same_points_problems(scenario: Study, claim: Claim) -> Iterator[str]:
    """Yield the other runs that cannot be found from each run of the claim."""
    for field, operand in _operands(claim):
        other = operand.system or claim.system
        if other == claim.system and not operand.at and not operand.metric:
            yield f"{field}: names the claim's own run; give another system, at, or metric"
        if other == claim.system or {other, claim.system} - set(scenario.systems):
            continue
        own = {path for path in scenario.sweep if not matters_to(claim.system, path) and matters_to(other, path)}
        if missing := own - set(operand.at):
            yield f"{field}.at: say which {', '.join(sorted(missing))} of {other!r} is meant"


def _trend_problems(scenario: Study, claim: Claim) -> Iterator[str]:
    if claim.trend is None:
        return
    along = claim.trend.along
    swept = [path for path in scenario.sweep if matters_to(claim.system, path)]
    if along not in swept:
        yield f"trend.along: {along!r} is not swept for system {claim.system!r}{among(along, swept, 'Swept')}"
        return
    values = [v for v in scenario.sweep[along] if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(values) < len(scenario.sweep[along]):
        yield f"trend.along: the swept values of {along} must be numbers"
    elif sum(claim.trend.up_to is None or v <= claim.trend.up_to for v in values) < 3:
        yield "trend: needs at least three swept values"


def _claimable(scenario: Study) -> tuple[str, ...]:
    """Return the metrics that a claim can be about."""
    search = scenario.searched
    if search is None:
        return scenario.measures
    return ("goodput_per_s",) if search.demand_per_s is None else ("goodput_per_s", "gpus_for_demand")


def _figure_problems(scenario: Study) -> list[str]:
    figure, drawable = scenario.drawn, scenario.measures
    names = [(f"metrics.{i}", "metric", name, drawable) for i, name in enumerate(figure.metrics or ())]
    names += [(f"lines.{name}", "metric", name, drawable) for name in figure.lines]
    if figure.against is not None:
        names.append(("against", "metric", figure.against, drawable))
    names += [(f"distributions.{i}", "latency", name, figure.LATENCIES) for i, name in enumerate(figure.distributions)]
    needed = [(f"curves.{i}", curves.table) for i, curves in enumerate(figure.curves)]
    for i, curves in enumerate(figure.curves):
        names.append((f"curves.{i}.table", "table", curves.table, tuple(scenario.TABLES)))
        columns = scenario.TABLES.get(curves.table, ())
        given = {"x": curves.x, "y": curves.y} | ({"reference": curves.reference} if curves.reference else {})
        names += [(f"curves.{i}.{key}", "column", name, columns) for key, name in given.items() if columns]
    needed += [("distributions", "requests")] if figure.distributions else []
    problems = []
    if figure.gantt and "schedule" not in scenario.TABLES:
        problems.append(f"figure.gantt: a {scenario.kind} study has no charts of iterations")
    if figure.distributions and "requests" not in scenario.TABLES:
        problems.append(f"figure.distributions: a {scenario.kind} study has no requests.csv to draw them from")
    problems += [
        f"figure.{place}: unknown {what} {name!r}{among(name, known, 'There are')}"
        for place, what, name, known in names
        if name not in known
    ]
    return problems + [
        f"figure.{place}: drawn from {table}.csv, which output.{table}: false leaves out"
        for place, table in needed
        if table in scenario.TABLES and not _is_written(scenario, table)
    ]


def _is_written(scenario: Study, table: str) -> bool:
    """Whether a large table is written at all."""
    return not isinstance(scenario, TrafficStudy) or getattr(scenario.output, table) is not False


def _point_problems(scenario: Study, system: str, at: Mapping[str, Any]) -> Iterator[str]:
    swept = {path: values for path, values in scenario.sweep.items() if matters_to(system, path)}
    for path, value in at.items():
        if path not in swept:
            yield f"{path}: is not swept for system {system!r}{among(path, swept, 'Swept')}"
        elif value not in swept[path]:
            values = ", ".join(map(shown, distinct(swept[path])))
            yield f"{path}: must be one of the swept values {values}; got {shown(value)}"
