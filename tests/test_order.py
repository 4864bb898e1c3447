import numpy as np
import pytest
from pydantic import TypeAdapter

from simserve.scheduling.order import EDF, FCFS, LJF, SJF, OrderSpec, Priority
from simserve.workload import Workload

ORDER = TypeAdapter(OrderSpec)
OUTPUTS = [40, 10, 30, 10]  # of four requests that arrive at 0, 1, 2, 3
LATE_AND_URGENT = {"priority": np.array([1, 1, 0, 1]), "deadline_s": np.array([9.0, 8.0, np.inf, 4.0])}


def order_of(order: object, **columns: np.ndarray) -> list[int]:
    ints = [np.array(column) for column in ([1] * 4, OUTPUTS, [50] * 4, [0] * 4)]
    workload = Workload(np.arange(4.0), *ints, **columns)
    queue = ORDER.validate_python(order).queue(workload, np.random.default_rng(1))
    for request in workload:
        queue.push(request)
    served = []
    while queue:
        served.append(queue.head(3.0).id)
        queue.pop()
    return served


@pytest.mark.parametrize(
    ("order", "served"),
    [
        ("fcfs", [0, 1, 2, 3]),
        ("sjf", [1, 3, 2, 0]),
        ("ljf", [0, 2, 1, 3]),
        ("priority", [2, 0, 1, 3]),
        ("edf", [3, 1, 0, 2]),
        ({"kind": "sjf", "predictor": {"kind": "constant", "tokens": 7}}, [0, 1, 2, 3]),
        ({"kind": "sjf", "predictor": {"kind": "bucketed", "edges": [20, 35]}}, [1, 3, 2, 0]),
        # 20 tokens a second: 40 + 0, 10 + 20, 30 + 40, 10 + 60
        ({"kind": "sjf", "aging": {"tokens_per_s": 20}}, [1, 0, 2, 3]),
        # at 3 s, requests 0 and 1 have waited 2 s or more
        ({"kind": "sjf", "aging": {"max_wait_s": 2}}, [0, 1, 3, 2]),
    ],
)
def test_orders(order: object, served: list[int]) -> None:
    assert order_of(order, **LATE_AND_URGENT) == served


def test_without_priorities_and_deadlines_arrival_decides() -> None:
    assert order_of("priority") == order_of("edf") == [0, 1, 2, 3]


def test_a_bare_name_will_do() -> None:
    kinds = {"fcfs": FCFS(), "sjf": SJF(), "ljf": LJF(), "priority": Priority(), "edf": EDF()}
    assert {name: ORDER.validate_python(name) for name in kinds} == kinds


def test_each_run_has_a_queue_of_its_own() -> None:
    order, nobody = FCFS(), Workload(np.empty(0), *[np.empty(0, dtype=np.int64)] * 4)
    one, other = (order.queue(nobody, np.random.default_rng(1)) for _ in range(2))
    assert one is not other


def test_aging_does_something() -> None:
    with pytest.raises(ValueError, match="give tokens_per_s above 0, max_wait_s, or both"):
        ORDER.validate_python({"kind": "sjf", "aging": {}})
