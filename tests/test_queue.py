"""The waiting queue: a line, and a heap of keys with a longest wait."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.request import Request
from simserve.scheduling.queue import FCFSQueue, KeyedQueue, WaitingQueue


def request(number: int, tokens: int = 1) -> Request:
    return Request(number, float(number), 1, tokens, tokens + 1)


def shortest(max_wait_s: float = math.inf) -> KeyedQueue:
    return KeyedQueue(lambda request: request.output_tokens, max_wait_s)


def take(queue: WaitingQueue, now_s: float = 0.0) -> int:
    head = queue.head(now_s)
    assert queue.pop() is head
    return head.id


def test_first_come_first_served() -> None:
    queue = FCFSQueue()
    assert len(queue) == 0
    for number in (0, 1, 2):
        queue.push(request(number))
    assert queue.head(0.0) == request(0)
    assert len(queue) == 3  # looking takes nobody out
    assert take(queue) == 0
    queue.push(request(3))
    assert [take(queue) for _ in range(3)] == [1, 2, 3]
    assert not queue


def test_the_lowest_key_goes_first_and_ties_by_arrival() -> None:
    queue = shortest()
    for number, tokens in enumerate((5, 3, 9, 3)):
        queue.push(request(number, tokens))
    assert [take(queue) for _ in range(4)] == [1, 3, 0, 2]
    assert not queue


def test_who_has_waited_longest_goes_first_once_overdue() -> None:
    queue = shortest(max_wait_s=10.0)
    for number, tokens in enumerate((9, 8, 1, 2)):  # arrive at 0, 1, 2, 3
        queue.push(request(number, tokens))
    assert queue.head(9.99).id == 2
    assert queue.head_changes_s() == 10.0  # then request 0 has waited 10 s
    assert queue.head(10.0).id == 0
    assert take(queue, 10.0) == 0
    assert queue.head(10.5).id == 2  # request 1 is overdue at 11
    assert queue.head_changes_s() == 11.0
    assert [take(queue, 11.5) for _ in range(3)] == [1, 2, 3]  # 1 overdue; then 2 by key; then 3
    assert queue.head_changes_s() == math.inf


def test_without_a_longest_wait_time_changes_nothing() -> None:
    queue = shortest()
    queue.push(request(0))
    assert queue.head_changes_s() == math.inf
    assert FCFSQueue().head_changes_s() == math.inf


@pytest.mark.parametrize("max_wait_s", [math.inf, 3.0])
@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(1, 5)), max_size=60))
def test_any_sequence_agrees_with_a_plain_list(max_wait_s: float, steps: list[int | None]) -> None:
    queue, waiting = shortest(max_wait_s), []
    for now, tokens in enumerate(steps):
        if tokens is not None:
            queue.push(request(now, tokens))
            waiting.append(request(now, tokens))
        elif waiting:
            overdue = [r for r in waiting if now >= r.arrival_s + max_wait_s]
            expected = overdue[0] if overdue else min(waiting, key=lambda r: (r.output_tokens, r.id))
            assert take(queue, float(now)) == expected.id
            waiting.remove(expected)
        assert len(queue) == len(waiting)
        assert bool(queue) == bool(waiting)


def test_a_line_that_skips_gives_back_in_order() -> None:
    queue = FCFSQueue(skip_ahead=2)
    for number in range(4):
        queue.push(request(number))
    passed = [queue.pop(), queue.pop()]
    assert take(queue) == 2
    for one in reversed(passed):
        queue.put_back(one)
    assert [take(queue) for _ in range(3)] == [0, 1, 3]


def test_newcomers_pass_a_line_no_longer_than_it_skips() -> None:
    queue = FCFSQueue(skip_ahead=1)
    queue.push(request(0))
    assert queue.newcomers_may_pass
    queue.push(request(1))
    assert not queue.newcomers_may_pass
    strict = FCFSQueue()
    strict.push(request(0))
    assert not strict.newcomers_may_pass
