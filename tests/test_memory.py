"""KV memory: what each policy reserves, by hand, and what it does when there is no room."""

import math

import pytest
from pydantic import ValidationError

from simserve.memory import Memory, Paged, Reservation, Swap, Unlimited
from simserve.memory.paged import PagedMemory
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


# Paged.


def paged(blocks: int, block_tokens: int = 4, watermark: float = 0.0) -> PagedMemory:
    return Paged(block_tokens=block_tokens, watermark=watermark).manager(blocks * block_tokens)


def numbered(number: int) -> Request:
    return Request(number, 0.0, 1, 1, 2)


def decode(kv: PagedMemory, number: int, tokens: int) -> None:
    assert kv.try_admit(numbered(number), tokens)
    kv.join(numbered(number))


def test_blocks_are_whole_and_only_whole_ones_are_there() -> None:
    kv = Paged(block_tokens=4, watermark=0.0).manager(15)  # 3 blocks and 3 tokens that are none
    assert kv.try_admit(numbered(0), 1)
    assert kv.reserved_tokens == 4
    assert kv.try_admit(numbered(1), 5)
    assert kv.reserved_tokens == 12
    assert not kv.try_admit(numbered(2), 1)
    assert kv.reserved_tokens == 12


def test_a_block_more_at_each_boundary() -> None:
    # Of 3 and 4 tokens: the second begins a block with the first step, the first with the second step, and again 4 later.
    kv = paged(100)
    decode(kv, 0, 3)
    decode(kv, 1, 4)
    assert kv.reserved_tokens == 8
    assert list(kv.grow(7)) == [12, 16, 16, 16, 20, 24, 24]
    # One that joins with 6 begins a block with the third step from then on; the others at the second and third.
    decode(kv, 2, 6)
    assert kv.reserved_tokens == 32
    assert [kv.grow(1)[0] for _ in range(4)] == [32, 36, 44, 44]
    # 14, 15 and 10 tokens are 4, 4 and 3 blocks.
    kv.free(numbered(0))
    assert kv.reserved_tokens == 28
    kv.free(numbered(2))
    assert kv.reserved_tokens == 16
    kv.free(numbered(1))
    assert kv.reserved_tokens == 0
    assert list(kv.grow(20)) == [0] * 20


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 100])
def test_it_says_at_which_step_memory_runs_out(steps: int) -> None:
    # 4 blocks: two of 3 tokens take 2, and 2 more with the second step. The sixth would take 2 that are not there.
    kv = paged(4)
    decode(kv, 0, 3)
    decode(kv, 1, 3)
    held = [8, 16, 16, 16, 16]
    taken = 0
    while taken < 5:
        assert kv.can_grow()
        ahead = list(kv.grow(steps))
        assert ahead == held[taken : taken + steps]
        taken += len(ahead)
    assert not kv.can_grow()
    assert list(kv.grow(steps)) == []
    kv.free(numbered(1))
    assert kv.reserved_tokens == 8
    assert list(kv.grow(1)) == [12]


def test_admission_leaves_room_for_the_next_tokens_and_the_watermark() -> None:
    # 10 blocks, of which 0.2 stay free. One of 4 tokens takes 1 and will take another with its next token.
    kv = paged(10, watermark=0.2)
    decode(kv, 0, 4)
    assert not kv.try_admit(numbered(1), 4 * 7)
    assert kv.try_admit(numbered(1), 4 * 6)
    # Those who run may use up what an admission may not.
    assert list(kv.grow(16)) == [32] * 4 + [36] * 4 + [40] * 4
    # 0.07 x 100 is 7.000000000000001, and yet 7 blocks.
    assert paged(100, watermark=0.07).try_admit(numbered(0), 4 * 93)
    assert not paged(100, watermark=0.07).try_admit(numbered(0), 4 * 94)


def test_who_can_never_be_served() -> None:
    # 8 of 10 blocks of 4: 32 tokens, and one more whose KV is never written.
    kv = paged(10, watermark=0.2)
    assert kv.why_never(request(1, 32)) is None
    assert kv.why_never(request(1, 33)) == "grows to 9 blocks of 4 tokens, more than the 8 below the watermark"


def test_an_unfinished_prompt_holds_all_of_its_blocks() -> None:
    kv = paged(10)
    assert kv.try_admit(numbered(0), 9)
    assert list(kv.grow(8)) == [12] * 8
    kv.free(numbered(0))
    assert kv.reserved_tokens == 0


def test_host_memory() -> None:
    # 10 tokens of 100 bytes; a second each way for every token.
    host = Swap(host_bytes=1_099.0, link_bytes_per_s=100.0).host_memory(100)
    assert host.try_store(0, 6, 5.0)
    assert not host.try_store(1, 5, 5.0)
    assert host.try_store(2, 4, 5.0)
    assert host.stall_s(6) == 6.0
    assert not host.is_away(0, 5.0)
    assert host.take_back(0) == 6
    assert host.take_back(0) == 0
    assert host.try_store(1, 5, 5.0)


def test_overlapped_transfers() -> None:
    host = Swap(host_bytes=1_000.0, link_bytes_per_s=100.0, overlapped=True).host_memory(100)
    assert host.next_ready_s(0.0) == math.inf
    assert host.try_store(0, 6, 5.0)  # out at 11, back at 17
    assert host.try_store(1, 3, 6.0)  # back at 12
    assert host.stall_s(6) == 0.0
    assert [host.is_away(0, at_s) for at_s in (5.0, 16.9, 17.0)] == [True, True, False]
    assert [host.next_ready_s(at_s) for at_s in (6.0, 12.0, 17.0)] == [12.0, 17.0, math.inf]
