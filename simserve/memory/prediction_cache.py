"""The prediction cache: a query that has been answered, or is being answered, is not computed again.

Clipper (NSDI 2017, section 4.2): CLOCK replacement; a repeat of a query under way joins it, and what is under way is
never evicted.
"""

from typing import Literal

from simserve.spec import Count, Spec


class Clock(Spec):
    """CLOCK replacement: an entry that was asked for since the hand last passed gets a second chance."""

    kind: Literal["clock"] = "clock"
    capacity: Count
    """Predictions that fit."""

    def cache(self) -> "ClockCache":
        """Return an empty cache."""
        return ClockCache(self.capacity)


class ClockCache:
    """Seats in a circle and a hand that goes round: it takes the flag from who has one, and the seat from who has none.

    A newcomer sits down with a flag (the reference bit is set on insertion).
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seats: list[int] = []
        """The key in each seat, or the last that was, where it is vacant."""
        self._vacant: list[int] = []
        self._seat_of: dict[int, int] = {}
        self._answered_by: dict[int, int] = {}
        """For each key in the cache, the query whose answer it has."""
        self._flags: set[int] = set()
        self._under_way: set[int] = set()
        self._hand = 0

    def __len__(self) -> int:
        return len(self._answered_by)

    def look_up(self, key: int) -> int | None:
        """Return the query that answers, or will answer, this one; None if it must be computed."""
        found = self._answered_by.get(key)
        if found is not None:
            self._flags.add(key)
        return found

    def insert(self, key: int, query: int) -> None:
        """Enter a query that is now under way; without effect if all entries are under way, or it is there."""
        if key in self._answered_by or (seat := self._free_seat()) is None:
            return
        self._seats[seat] = key
        self._seat_of[key] = seat
        self._answered_by[key] = query
        self._flags.add(key)
        self._under_way.add(key)

    def _free_seat(self) -> int | None:
        """Return a seat that is free, or is made free; None if there is none to be had."""
        if self._vacant:
            return self._vacant.pop()
        if len(self._seats) < self._capacity:
            self._seats.append(0)
            return len(self._seats) - 1
        if len(self._under_way) >= self._capacity:
            return None
        while True:
            seat, resident = self._hand, self._seats[self._hand]
            self._hand = (seat + 1) % self._capacity
            if resident in self._under_way:
                continue
            if resident not in self._flags:
                del self._answered_by[resident], self._seat_of[resident]
                return seat
            self._flags.remove(resident)

    def answered(self, key: int, query: int) -> None:
        """Note that the query's answer is there; its entry, if it has one, can be evicted from now on."""
        if self._answered_by.get(key) == query:
            self._under_way.discard(key)

    def forget(self, key: int, query: int) -> None:
        """Drop the entry of a query that was given up, if it has one; its seat is free for the next."""
        if self._answered_by.get(key) == query:
            del self._answered_by[key]
            self._vacant.append(self._seat_of.pop(key))
            self._under_way.discard(key)
            self._flags.discard(key)
