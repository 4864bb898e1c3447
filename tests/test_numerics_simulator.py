"""The schedules of the numerics half against the simulator's engines, at one second an iteration."""

from typing import Any

import numpy as np
import pytest

from simserve.numerics import Schedule, generate_continuous, generate_sequential, generate_static, random_prompts
from simserve.records import Records
from tests.support import serve
from tests.test_numerics_forward import model
from tests.test_numerics_generation import TINY, random_shapes

SECOND = {"kind": "linear", "step_s": 1.0}


def simulated(shapes: list[tuple[float, int, int]], **system: Any) -> Records:
    return serve(shapes, memory="unlimited", cost=SECOND, **system)


def assert_same(schedule: Schedule, records: Records) -> None:
    """Iterations start at the same times with the same tokens; requests come in, emit and end in the same ones."""
    iterations = schedule.iterations
    assert [iteration.number for iteration in iterations] == records.iterations.start_s.tolist()
    prefill = [sum(cell.new_tokens for cell in i.cells if cell.phase == "P") for i in iterations]
    assert prefill == records.iterations.prefill_tokens.tolist()
    for column, emitted in ((records.requests.first_token_iteration, 0), (records.requests.finish_iteration, -1)):
        assert [tokens_out(schedule, request.id)[emitted] for request in schedule.requests] == column.tolist()


def tokens_out(schedule: Schedule, request_id: int) -> list[int]:
    """Return the iterations, counted from 0, out of which a token of the request came."""
    return [
        index
        for index, iteration in enumerate(schedule.iterations)
        for cell in iteration.cells
        if cell.request_id == request_id and cell.emits
    ]


@pytest.mark.parametrize("seed", range(30))
def test_the_engines_run_the_same_schedules(seed: int) -> None:
    shapes = sorted(random_shapes(seed))  # the simulator numbers requests in order of arrival
    rng = np.random.default_rng((seed, 2))
    seats = int(rng.integers(1, 5))
    budget = seats + int(rng.integers(0, 5))
    llama, prompts = model(TINY), random_prompts(TINY, shapes, seed)
    continuous = {"engine": "continuous", "max_batch_size": seats}
    assert_same(generate_continuous(llama, prompts, seats).schedule, simulated(shapes, **continuous))
    chunked = {**continuous, "prefill": {"kind": "chunked", "budget_tokens": budget}}
    assert_same(generate_continuous(llama, prompts, seats, budget_tokens=budget).schedule, simulated(shapes, **chunked))
    static = {"engine": "request_level", "max_batch_size": seats}
    assert_same(generate_static(llama, prompts, seats).schedule, simulated(shapes, **static))
    alone = {"engine": "continuous", "max_batch_size": 1}
    assert_same(generate_sequential(llama, prompts).schedule, simulated(shapes, **alone))
