"""A scenario in small: the same systems and points, for a first look."""

from typing import Any

from simserve.scenario.study import Study, TrafficStudy

FEWER = 4
"""How many times fewer requests a quick run has."""


def quick_form(scenario: Study) -> Study:
    """Return the scenario with a quarter of the requests, at most two replications, a coarse search, and no claims.

    It has a name of its own, `<name>-quick`, so that its results do not replace the full ones. Claims are about the
    full size, so none is judged. A search keeps its requests: goodput depends on how long the load lasts.
    """
    update: dict[str, Any] = {
        "name": f"{scenario.name}-quick",
        "replications": min(scenario.replications, 2),
        "claims": (),
    }
    if isinstance(scenario, TrafficStudy):
        update |= _less_traffic(scenario)
    return scenario.model_copy(update=update)


def _less_traffic(scenario: TrafficStudy) -> dict[str, Any]:
    """Return what is smaller in a study that sends requests."""
    if scenario.search is not None:
        return {"search": scenario.search.model_copy(update={"rel_tol": max(scenario.search.rel_tol, 0.1)})}
    sizes = "workload.num_requests"
    sweep = {
        path: tuple(max(1, size // FEWER) for size in values) if path == sizes else values
        for path, values in scenario.sweep.items()
    }
    num_requests = max(1, scenario.workload.num_requests // FEWER)
    return {"sweep": sweep, "workload": scenario.workload.model_copy(update={"num_requests": num_requests})}
