"""A scenario in small: the same systems and points, for a first look."""

from simserve.scenario.schema import ServingScenario

FEWER = 4
"""How many times fewer requests a quick run has."""


def quick_form(scenario: ServingScenario) -> ServingScenario:
    """Return the scenario with a quarter of the requests, at most two replications, a coarse search, and no claims.

    Claims are about the full size, so a quick run judges none.
    """
    sizes = "workload.num_requests"
    sweep = {path: tuple(map(_fewer, values)) if path == sizes else values for path, values in scenario.sweep.items()}
    search = scenario.search and scenario.search.model_copy(update={"rel_tol": max(scenario.search.rel_tol, 0.1)})
    workload = scenario.workload.model_copy(update={"num_requests": _fewer(scenario.workload.num_requests)})
    return scenario.model_copy(
        update={
            "workload": workload,
            "sweep": sweep,
            "search": search,
            "replications": min(scenario.replications, 2),
            "claims": (),
        }
    )


def _fewer(num_requests: int) -> int:
    return max(1, num_requests // FEWER)
