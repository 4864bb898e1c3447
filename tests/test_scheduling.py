"""The order of the waiting queue."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from simserve.request import Request
from simserve.scheduling import FCFS, OrderSpec


def request(number: int) -> Request:
    return Request(number, float(number), 1, 1, 2)


def test_first_come_first_served() -> None:
    queue = FCFS().queue()
    assert len(queue) == 0
    for number in (0, 1, 2):
        queue.push(request(number))
    assert queue.head() == request(0)
    assert len(queue) == 3  # looking takes nobody out
    assert queue.pop() == request(0)
    queue.push(request(3))
    assert [queue.pop().id for _ in range(3)] == [1, 2, 3]
    assert not queue


def test_each_run_has_a_queue_of_its_own() -> None:
    order = FCFS()
    order.queue().push(request(0))
    assert len(order.queue()) == 0


@settings(deadline=None)
@given(st.lists(st.booleans()))
def test_head_is_what_pop_takes(pushes: list[bool]) -> None:
    queue, line = FCFS().queue(), []
    for number, push in enumerate(pushes):
        if push or not line:
            queue.push(request(number))
            line.append(number)
        else:
            head = queue.head()
            assert queue.pop() is head
            assert head.id == line.pop(0)
        assert len(queue) == len(line)
        assert bool(queue) == bool(line)


def test_a_bare_name_will_do() -> None:
    assert TypeAdapter(OrderSpec).validate_python("fcfs") == FCFS()
