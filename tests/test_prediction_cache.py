"""CLOCK: by hand, against a naive model, and between first-in-first-out and least-recently-used."""

from collections import OrderedDict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.memory import ClockCache
from simserve.memory.prediction_cache import Clock
from simserve.workload.queries import Zipf


def ask(cache: ClockCache, key: int, query: int = 0) -> bool:
    """Ask once, with an answer at once; return whether the answer was there."""
    if cache.look_up(key) is not None:
        return True
    cache.insert(key, query)
    cache.answered(key, query)
    return False


def test_by_hand() -> None:
    # Three seats: 1, 2, 3, each with a flag. 4 comes: the hand takes the flags of 1, 2 and 3 and then the seat of 1.
    cache = Clock(capacity=3).cache()
    assert [ask(cache, key) for key in (1, 2, 3)] == [False] * 3
    assert len(cache) == 3
    assert not ask(cache, 4)
    assert cache.look_up(1) is None
    # The hand is at 2. 3 is asked for and gets its flag. 5 takes the seat of 2; 6 takes 3's flag and 4's, then 5's,
    # comes round to 3 again and takes its seat.
    assert ask(cache, 3)
    assert not ask(cache, 5)
    assert cache.look_up(2) is None
    assert not ask(cache, 6)
    assert [cache.look_up(key) is not None for key in (3, 4, 5, 6)] == [False, True, True, True]


def test_a_second_chance() -> None:
    # 1 and 2 have lost their flags to 3, which has 1's seat. 2 is asked for; 4 takes its flag, then 3's, then 2's seat.
    cache = ClockCache(2)
    for key in (1, 2, 3):
        ask(cache, key)
    assert ask(cache, 2)
    ask(cache, 4)
    assert cache.look_up(2) is None
    assert cache.look_up(3) is not None


def test_a_repeat_names_the_first() -> None:
    cache = ClockCache(2)
    cache.insert(7, 40)
    assert cache.look_up(7) == 40
    cache.insert(7, 41)  # it is there
    assert cache.look_up(7) == 40


def test_under_way_is_never_evicted() -> None:
    cache = ClockCache(2)
    cache.insert(1, 10)
    cache.insert(2, 20)
    cache.insert(3, 30)  # nobody gives way
    assert cache.look_up(3) is None
    cache.answered(1, 10)
    cache.insert(3, 30)
    assert [cache.look_up(key) for key in (1, 2, 3)] == [None, 20, 30]
    assert len(cache) == 2


def test_the_hand_passes_those_under_way() -> None:
    """2 is under way all the time, and the hand comes by again and again: it leaves seat and flag alone."""
    cache = ClockCache(2)
    cache.insert(1, 10)
    cache.insert(2, 20)
    cache.answered(1, 10)
    for key in (3, 4, 5):
        assert not ask(cache, key, 10 * key)
    assert cache.look_up(2) == 20
    cache.answered(2, 20)
    # 5 and 2 have their flags; the hand is at 2: it takes 2's and 5's, then 2's seat.
    assert not ask(cache, 6)
    assert [cache.look_up(key) for key in (2, 5)] == [None, 50]


def test_an_answer_is_that_of_its_query() -> None:
    """1 was asked by query 10 when no seat was free, and by 11 when one was: the answer to 10 is not that of 11."""
    cache = ClockCache(1)
    cache.insert(2, 20)
    cache.insert(1, 10)
    cache.answered(2, 20)
    cache.insert(1, 11)
    cache.answered(1, 10)
    cache.insert(3, 30)
    assert cache.look_up(1) == 11
    assert cache.look_up(3) is None
    cache.forget(1, 10)
    assert cache.look_up(1) == 11


def test_who_is_given_up_leaves_a_seat() -> None:
    cache = ClockCache(2)
    cache.insert(1, 10)
    cache.forget(1, 10)
    assert len(cache) == 0
    assert cache.look_up(1) is None
    cache.insert(1, 11)
    cache.insert(2, 20)
    assert [cache.look_up(key) for key in (1, 2)] == [11, 20]
    cache.insert(3, 30)  # both seats are taken by queries under way
    assert cache.look_up(3) is None
    cache.forget(2, 20)
    cache.insert(3, 30)
    assert [cache.look_up(key) for key in (1, 2, 3)] == [11, None, 30]


class Naive:
    """CLOCK as a list of seats, each `[key, query, flag, under way]` or None, searched from end to end."""

    def __init__(self, capacity: int) -> None:
        self.seats: list[list[int] | None] = []
        self.capacity, self.hand, self.free = capacity, 0, list[int]()

    def find(self, key: int) -> list[int] | None:
        return next((seat for seat in self.seats if seat is not None and seat[0] == key), None)

    def look_up(self, key: int) -> int | None:
        seat = self.find(key)
        if seat is None:
            return None
        seat[2] = 1
        return seat[1]

    def insert(self, key: int, query: int) -> None:
        if self.find(key) is not None:
            return
        new = [key, query, 1, 1]
        if self.free:
            self.seats[self.free.pop()] = new
        elif len(self.seats) < self.capacity:
            self.seats.append(new)
        elif not all(seat is not None and seat[3] for seat in self.seats):
            while (seat := self.seats[self.hand]) is not None and (seat[3] or seat[2]):
                if not seat[3]:
                    seat[2] = 0
                self.hand = (self.hand + 1) % self.capacity
            self.seats[self.hand] = new
            self.hand = (self.hand + 1) % self.capacity

    def answered(self, key: int, query: int) -> None:
        seat = self.find(key)
        if seat is not None and seat[1] == query:
            seat[3] = 0

    def forget(self, key: int, query: int) -> None:
        seat = self.find(key)
        if seat is not None and seat[1] == query:
            place = self.seats.index(seat)
            self.seats[place] = None
            self.free.append(place)


STEPS = st.lists(st.tuples(st.sampled_from("aaxxxf"), st.integers(0, 9), st.integers(0, 3)), max_size=120)


@settings(max_examples=500)
@given(st.integers(1, 6), STEPS)
def test_as_a_naive_model(capacity: int, steps: list[tuple[str, int, int]]) -> None:
    """Queries are asked, answered and given up as an inbox does it: only queries that are out, each of them once."""
    cache, naive = ClockCache(capacity), Naive(capacity)
    out: dict[int, list[int]] = {}
    for number, (step, key, which) in enumerate(steps):
        if step == "a":
            found = cache.look_up(key)
            assert found == naive.look_up(key)
            if found is None:
                cache.insert(key, number)
                naive.insert(key, number)
                out.setdefault(key, []).append(number)
        elif out.get(key):
            query = out[key].pop(which % len(out[key]))
            for one in (cache, naive):
                one.answered(key, query) if step == "x" else one.forget(key, query)
        assert len(cache) == sum(seat is not None for seat in naive.seats) <= capacity


def hit_share(order: str, keys: list[int], capacity: int) -> float:
    """First-in-first-out and least-recently-used, written out."""
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for key in keys:
        if key in kept:
            hits += 1
            if order == "lru":
                kept.move_to_end(key)
        else:
            if len(kept) == capacity:
                kept.popitem(last=False)
            kept[key] = None
    return hits / len(keys)


def clock_share(keys: list[int], capacity: int) -> float:
    cache = ClockCache(capacity)
    return sum([ask(cache, key) for key in keys]) / len(keys)


CASES = [
    (exponent, capacity, seed) for exponent in (0.8, 1.0, 1.2) for capacity in (10, 100, 500) for seed in (1, 2, 3)
]


@pytest.mark.parametrize(("exponent", "capacity", "seed"), CASES)
def test_between_first_in_first_out_and_least_recently_used(exponent: float, capacity: int, seed: int) -> None:
    """CLOCK gives a second chance where FIFO gives none, and forgets the order of use, which LRU keeps.

    That is how it is on independent draws by popularity; no law orders CLOCK and LRU request by request.
    """
    keys = Zipf(items=2000, exponent=exponent).sample(20_000, np.random.default_rng(seed)).tolist()
    fifo, clock, lru = hit_share("fifo", keys, capacity), clock_share(keys, capacity), hit_share("lru", keys, capacity)
    assert fifo < clock
    assert clock <= lru, (fifo, clock, lru)


def test_a_larger_cache_answers_more() -> None:
    keys = Zipf(items=2000, exponent=1.0).sample(20_000, np.random.default_rng(1)).tolist()
    shares = [clock_share(keys, capacity) for capacity in (1, 10, 100, 1000, 2000)]
    assert all(small < large for small, large in pairwise(shares))
    assert shares[-1] == 1 - len(set(keys)) / len(keys)  # nothing is ever evicted
