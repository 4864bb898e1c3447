"""KV memory: what each policy reserves, by hand, and what it does when there is no room."""

import math

import pytest
from pydantic import ValidationError

from simserve.memory import Memory, Reservation, Unlimited
from simserve.memory.reservation import ReservationMemory
from simserve.request import Request


def request(prompt_tokens: int, output_tokens: int, max_tokens: int = 0) -> Request:
    return Request(0, 0.0, prompt_tokens, output_tokens, max_tokens or prompt_tokens + output_tokens)


def admits(kv: Memory, newcomer: Request) -> bool:
    return kv.try_admit(newcomer, newcomer.prompt_tokens)


def memory(capacity_tokens: int, reserve: str = "oracle", max_tokens: int | None = None) -> ReservationMemory:
    return Reservation(reserve=reserve, max_tokens=max_tokens).manager(capacity_tokens)


@pytest.mark.parametrize(
    ("reserve", "prompt", "output", "own_limit", "tokens"),
    [
        ("max", 100, 50, 400, 8192),
        ("oracle", 100, 50, 400, 150),
        ("request", 100, 50, 400, 400),
        ("pow2", 100, 50, 400, 100 + 64),
        ("pow2", 100, 64, 400, 100 + 64),  # a power of two stays as it is
        ("pow2", 100, 65, 400, 100 + 128),
        ("pow2", 100, 1, 400, 100 + 1),
        ("pow2", 100, 2, 400, 100 + 2),
        ("pow2", 100, 3, 400, 100 + 4),
    ],
)
def test_reserved(reserve: str, prompt: int, output: int, own_limit: int, tokens: int) -> None:
    kv = memory(10_000, reserve, 8192)
    newcomer = request(prompt, output, own_limit)
    assert admits(kv, newcomer)
    assert kv.reserved_tokens == tokens
    kv.free(newcomer)
    assert kv.reserved_tokens == 0


def test_fills_to_the_last_token_and_no_further() -> None:
    # 10 tokens: 4 + 6 fit exactly; one more does not, and changes nothing.
    kv = memory(10)
    assert admits(kv, request(2, 2))
    assert admits(kv, request(3, 3))
    assert kv.reserved_tokens == 10
    assert not admits(kv, request(1, 1))
    assert kv.reserved_tokens == 10
    kv.free(request(2, 2))
    assert admits(kv, request(1, 1))
    assert kv.reserved_tokens == 8


def test_why_never() -> None:
    kv = memory(10, "oracle", max_tokens=8)
    assert kv.why_never(request(4, 4)) is None
    assert kv.why_never(request(4, 5)) == "9 tokens, longer than the limit of 8"
    assert memory(10).why_never(request(5, 5)) is None
    assert memory(10).why_never(request(5, 6)) == "reserves 11 tokens, more than the whole KV memory of 10"
    # What counts against the capacity is the reservation, not the request: 5 + 8, or 12 for everybody.
    assert memory(12, "pow2").why_never(request(5, 5)) == "reserves 13 tokens, more than the whole KV memory of 12"
    assert memory(11, "max", 12).why_never(request(1, 1)) == "reserves 12 tokens, more than the whole KV memory of 11"
    assert memory(12, "request").why_never(request(5, 5, 13)) is not None
    # And the limit counts the tokens of the request, not the reservation.
    assert memory(100, "pow2", max_tokens=10).why_never(request(5, 5)) is None


def test_why_never_asks_about_an_empty_memory() -> None:
    kv = memory(10)
    assert admits(kv, request(5, 5))
    assert kv.why_never(request(5, 5)) is None
    assert not admits(kv, request(5, 5))


def test_freeing_too_much_is_a_fault() -> None:
    kv = memory(10)
    assert admits(kv, request(2, 2))
    with pytest.raises(AssertionError, match="-1"):
        kv.free(request(2, 3))


def test_a_reservation_has_room_to_grow() -> None:
    kv = memory(10)
    assert admits(kv, request(5, 5))
    assert list(kv.grow(4)) == [10] * 4


def test_max_needs_a_limit() -> None:
    with pytest.raises(ValidationError, match="max_tokens"):
        Reservation(reserve="max")


def test_unlimited() -> None:
    kv = Unlimited().manager(1)
    huge = request(10**9, 10**9)
    assert kv.why_never(huge) is None
    assert admits(kv, huge)
    assert len(kv.grow(7)) == 7
    kv.free(huge)
    assert math.isnan(kv.reserved_tokens)  # holds what is written
