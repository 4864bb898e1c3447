"""The simulation clock, and the arrivals that are compared with it."""

import math
import random
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import simpy

from simserve.engine import Arrivals, Clock
from simserve.request import Request


def test_absolute_times_to_the_last_digit() -> None:
    rng = random.Random(1)
    times_s = sorted(10 ** rng.uniform(-6, 3) for _ in range(40))
    clock = Clock()
    read: list[float] = []

    def watch() -> Generator[simpy.Event, Any, None]:
        for time_s in times_s:
            yield clock.at(time_s)
            read.append(clock.now)

    clock.process(watch())
    clock.run()
    assert read == times_s
    # Delays would not do: now + (time - now) misses some of these times.
    assert any(now + (then - now) != then for now, then in pairwise(times_s))


def test_events_fire_in_order_of_time_and_at_equal_times_in_order_of_making() -> None:
    clock = Clock()
    order: list[str] = []

    def wait(name: str, event: simpy.Event) -> Generator[simpy.Event, Any, None]:
        yield event
        order.append(name)

    for name, time_s in (("second", 1.5), ("third", 1.5), ("last", 2.0), ("first", 1.0)):
        clock.process(wait(name, clock.at(time_s)))
    clock.run()
    assert order == ["first", "second", "third", "last"]
    assert clock.now == 2.0


def arrivals(*times_s: float) -> Arrivals:
    return Arrivals(Request(i, time_s, 1, 1, 2) for i, time_s in enumerate(times_s))


def taken(coming: Arrivals, now_s: float) -> list[int]:
    return [request.id for request in coming.take(now_s)]


def test_an_arrival_at_this_very_instant_has_arrived() -> None:
    coming = arrivals(0.0, 0.0, 1.0, 1.5, 1.5, 9.0)
    assert coming.next_s == 0.0
    assert taken(coming, 0.0) == [0, 1]
    assert coming.next_s == 1.0
    assert taken(coming, math.nextafter(1.0, 0.0)) == []
    assert taken(coming, 1.0) == [2]
    assert taken(coming, 1.0) == []  # nobody twice
    assert taken(coming, 5.0) == [3, 4]
    assert coming.next_s == 9.0
    assert taken(coming, 100.0) == [5]
    assert coming.next_s == math.inf
    assert taken(coming, math.inf) == []


def test_nobody_comes() -> None:
    assert arrivals().next_s == math.inf
    assert taken(arrivals(), 1e9) == []
