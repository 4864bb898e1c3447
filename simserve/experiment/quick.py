"""A scenario in small: the same systems and points, for a first look."""

from simserve.scenario.schema import ServingScenario

FEWER = 4
"""How many times fewer requests a quick run has."""


def quick_form(scenario: ServingScenario) -> ServingScenario:
    """Return the scenario with a quarter of the requests, at most two replications, a coarse search, and no claims.

    It has a name of its own, `<name>-quick`, so that its results do not replace the full ones. Claims are about the
    full size, so none is judged. A search keeps its requests: goodput depends on how long the load lasts.
    """
    search = scenario.search and scenario.search.model_copy(update={"rel_tol": max(scenario.search.rel_tol, 0.1)})
    fewer = 1 if search else FEWER
    sizes = "workload.num_requests"
    sweep = {
        path: tuple(max(1, size // fewer) for size in values) if path == sizes else values
        for path, values in scenario.sweep.items()
    }
    num_requests = max(1, scenario.workload.num_requests // fewer)
    return scenario.model_copy(
        update={
            "name": f"{scenario.name}-quick",
            "workload": scenario.workload.model_copy(update={"num_requests": num_requests}),
            "sweep": sweep,
            "search": search,
            "replications": min(scenario.replications, 2),
            "claims": (),
        }
    )
