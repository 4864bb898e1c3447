"""Looking past a head of the queue that does not fit."""

import numpy as np
import pytest

from simserve.diagnostics import overtaken_requests
from simserve.metrics import iteration_table
from simserve.records import Records
from tests.support import serve

# Memory of 12 tokens, one iteration a second, reserving prompt + output. At 0 a request of 8 comes in and runs for 4
# iterations; then one of 10, which has to wait, and three of 3, of which one fits beside the first at a time.
REQUESTS = [(0.0, 4, 4), (1.0, 8, 2), (1.0, 1, 2), (1.0, 2, 1), (2.5, 1, 2)]


def run(skip_ahead: int, fast_forward: bool = True) -> Records:
    return serve(
        REQUESTS,
        12,
        fast_forward,
        engine="continuous",
        memory={"kind": "reservation"},
        cost={"kind": "linear", "step_s": 1.0},
        order={"kind": "fcfs", "skip_ahead": skip_ahead},
    )


@pytest.mark.parametrize(
    ("skip_ahead", "admitted_s"),
    [
        (0, [0, 4, 6, 6, 6]),  # all wait behind the request of 10, which runs from 4 to 6 and leaves 2
        # At 1 request 2 fits (8 + 3 of 12); at 3, when it has left, request 3; at 4, when all have left, the one of 10.
        (1, [0, 4, 1, 3, 6]),
        (2, [0, 4, 1, 3, 6]),  # at 3, request 3 takes the room that request 4 would have fitted into
    ],
)
def test_who_is_admitted_when(skip_ahead: int, admitted_s: list[float]) -> None:
    assert run(skip_ahead).admitted_s.tolist() == admitted_s


def test_who_is_passed_is_counted() -> None:
    assert overtaken_requests(run(0)) == 0
    assert overtaken_requests(run(1)) == 1


def test_a_newcomer_is_seen_in_the_middle_of_a_stretch() -> None:
    # The head needs 10 of 12; a request of 3 that comes at 40.5 fits beside the first, which decodes till 100.
    rows = [(0.0, 1, 100), (1.0, 100, 2), (40.5, 1, 2)]
    system = {
        "engine": "continuous",
        "memory": {"kind": "reservation"},
        "cost": {"kind": "linear", "step_s": 1.0},
        "order": {"kind": "fcfs", "skip_ahead": 1},
    }
    fast, slow = (serve(rows, 104, fast_forward, **system) for fast_forward in (True, False))
    assert fast.admitted_s.tolist() == [0, 100, 41]
    np.testing.assert_array_equal(iteration_table(fast), iteration_table(slow))


def test_chat_is_the_same_step_by_step() -> None:
    rng = np.random.default_rng(1)
    rows = [
        (float(at), int(prompt), int(output))
        for at, prompt, output in zip(
            np.cumsum(rng.exponential(0.05, 200)), rng.integers(1, 900, 200), rng.integers(1, 300, 200), strict=True
        )
    ]
    system = {"engine": "continuous", "memory": {"kind": "reservation"}, "order": {"kind": "fcfs", "skip_ahead": 3}}
    fast, slow = (serve(rows, 6000, fast_forward, **system) for fast_forward in (True, False))
    assert overtaken_requests(fast) > 0
    np.testing.assert_array_equal(fast.finish_s, slow.finish_s)
    np.testing.assert_array_equal(iteration_table(fast), iteration_table(slow))
