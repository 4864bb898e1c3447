from simserve.experiment.quick import quick_form
from tests.scenarios import small


def test_a_quick_form_is_smaller_and_judges_nothing() -> None:
    scenario = small(
        replications=20,
        claims=[{"id": "c", "system": "orca", "metric": "finished", "value": 1}],
    )
    quick = quick_form(scenario)
    assert quick.name == "small-quick"
    assert quick.workload.num_requests == 15  # a quarter of 60
    assert quick.replications == 2
    assert quick.claims == ()
    assert quick.systems == scenario.systems


def test_a_search_is_coarser_and_keeps_its_requests() -> None:
    quick = quick_form(small(search={"low": 1, "high": 2, "rel_tol": 0.01}))
    assert quick.search is not None
    assert quick.search.rel_tol == 0.1
    assert quick.workload.num_requests == 60


def test_swept_sizes_shrink_as_well() -> None:
    quick = quick_form(small(sweep={"workload.num_requests": [600, 3000], "workload.arrivals.rate_per_s": [8, 600]}))
    assert quick.sweep == {"workload.num_requests": (150, 750), "workload.arrivals.rate_per_s": (8, 600)}


def test_a_small_scenario_stays_a_scenario() -> None:
    one = small(
        workload={
            "num_requests": 1,
            "arrivals": {"kind": "poisson", "rate_per_s": 1},
            "prompt_tokens": 5,
            "output_tokens": 5,
        }
    )
    assert quick_form(one).workload.num_requests == 1
