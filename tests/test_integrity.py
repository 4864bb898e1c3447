"""Every check fires on records that were doctored to break it, and on nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simserve.integrity import IntegrityError, check_integrity
from simserve.memory import Reservation, Unlimited
from simserve.records import NOT_YET, Records
from simserve.request import Request
from tests.support import serve

# Two seats and iterations of 1 s; r2, at 1, waits for r0's seat, and r3 is too long for the 20 tokens.
#
#   iteration  0 1 2 3 4
#   r0         P D
#   r1         P D D D
#   r2           . P D D
ROWS = [(0.0, 2, 2), (0.0, 2, 4), (1.0, 2, 3), (1.0, 20, 3)]
EMPTY = Unlimited().manager(0)


@pytest.fixture
def records() -> Records:
    memory = {"kind": "reservation", "reserve": "oracle"}
    cost = {"kind": "linear", "step_s": 1.0}
    return serve(ROWS, kv_tokens=20, engine="continuous", max_batch_size=2, memory=memory, cost=cost)


def doctored(column: np.ndarray, changes: dict[int, Any]) -> np.ndarray:
    column = column.copy()
    for place, value in changes.items():
        column[place] = value
    return column


def requests(**changes: dict[int, Any]) -> Callable[[Records], Records]:
    def doctor(records: Records) -> Records:
        columns = {name: doctored(getattr(records.requests, name), change) for name, change in changes.items()}
        return replace(records, requests=replace(records.requests, **columns))

    return doctor


def iterations(**changes: dict[int, Any]) -> Callable[[Records], Records]:
    def doctor(records: Records) -> Records:
        columns = {name: doctored(getattr(records.iterations, name), change) for name, change in changes.items()}
        return replace(records, iterations=replace(records.iterations, **columns))

    return doctor


def test_the_untouched_records_pass(records: Records) -> None:
    assert records.requests.first_token_iteration.tolist() == [0, 0, 2, NOT_YET]
    assert records.requests.finish_iteration.tolist() == [1, 3, 4, NOT_YET]
    check_integrity(records, EMPTY, in_order=True)


@pytest.mark.parametrize(
    ("doctor", "message"),
    [
        # A request that is still on the way, and one that was turned away and served.
        (requests(finish_iteration={1: NOT_YET}), r"requests \[1\] neither finished nor were rejected"),
        (requests(rejected={3: False}), r"requests \[3\] neither finished nor were rejected"),
        (requests(rejected={2: True}), r"requests \[2\] .* or both"),
        # Iteration 2 begins before iteration 1 ends; 3 ends before it starts; 4 decodes in no time.
        (iterations(start_s={2: 1.9}), r"iterations \[1\] overlap"),
        (iterations(end_s={4: 3.5}), r"iterations \[4\] decode in no time"),
        (iterations(end_s={4: 4.0}), r"iterations \[4\] decode in no time"),
        # r2 comes at 1 and is admitted in iteration 0, at 0.
        (requests(admitted_iteration={2: 0}), r"requests \[2\] were admitted before they arrived"),
        # r2 wants 3 tokens and ends after 2, or after 4.
        (requests(finish_iteration={2: 3}), r"1 requests emitted other than their output: \[2\] for \[3\]"),
        (requests(first_token_iteration={2: 1}), r"1 requests emitted other than their output: \[4\] for \[3\]"),
        # r1 and r2 both want a token of iteration 3, which decodes one sequence.
        (iterations(decode_sequences={3: 1}), r"iterations \[3\] decode \[1\] sequences but \[2\] want a token"),
        # 21 tokens held where there are 20; 4 stored where 3 are held.
        (iterations(kv_reserved_tokens={2: 21}), r"21 tokens of KV memory are held of 20"),
        (iterations(kv_reserved_tokens={4: 3}), r"iterations \[4\] store more tokens of KV than they hold"),
        # Prompts of 6 tokens, of which 7 are computed.
        (iterations(prefill_tokens={3: 1}), r"7 prompt tokens were computed for prompts of 6 and 0 more"),
        # r1 came at 0 and is admitted in iteration 3, after r2.
        (requests(admitted_iteration={1: 3}), r"1 requests were admitted before one that had arrived earlier"),
    ],
)
def test_doctored_records(records: Records, doctor: Callable[[Records], Records], message: str) -> None:
    with pytest.raises(IntegrityError, match=message):
        check_integrity(doctor(records), Reservation().manager(20), in_order=True)


def test_preempted_and_not_computed_again() -> None:
    # r1 is preempted with 4 tokens of KV and 3 emitted, and computes 5 again; see test_preemption.py.
    paged = {"kind": "paged", "block_tokens": 1, "watermark": 0.0}
    records = serve([(0.0, 2, 4), (0.0, 2, 4)], 8, engine="continuous", memory=paged)
    assert records.iterations.prefill_tokens.tolist() == [4, 0, 0, 0, 5]
    check_integrity(records, EMPTY, in_order=True)
    with pytest.raises(IntegrityError, match="8 prompt tokens were computed for prompts of 4 and 5 more"):
        check_integrity(iterations(prefill_tokens={4: 4})(records), EMPTY, in_order=True)
    # Had it come back in iteration 2, it would have decoded in iteration 3 as well.
    early = replace(records, resumptions=replace(records.resumptions, iteration=np.array([2])))
    with pytest.raises(IntegrityError, match=r"1 requests emitted other than their output: \[5\] for \[4\]"):
        check_integrity(early, EMPTY, in_order=True)


def test_order_of_admission_is_only_asked_of_first_come_first_served(records: Records) -> None:
    check_integrity(requests(admitted_iteration={1: 3})(records), EMPTY, in_order=False)


def test_memory_still_held(records: Records) -> None:
    memory = Reservation().manager(20)
    check_integrity(records, memory, in_order=True)
    memory.try_admit(Request(0, 0.0, 3, 4, 7), 3)
    with pytest.raises(IntegrityError, match="7 tokens of KV memory are still held"):
        check_integrity(records, memory, in_order=True)


def test_a_finished_seat_of_a_static_batch_is_no_fault() -> None:
    """More sequences decode than want a token: that is what a static batch pays for."""
    records = serve([(0.0, 1, 2), (0.0, 1, 4)], engine="request_level", max_batch_size=2)
    assert records.iterations.decode_sequences.tolist() == [0, 2, 2, 2]
    check_integrity(records, EMPTY, in_order=True)


def test_message_says_whose_fault_it_is(records: Records) -> None:
    with pytest.raises(IntegrityError, match="fault of simserve"):
        check_integrity(requests(rejected={2: True})(records), EMPTY, in_order=True)


def test_every_run_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory that never gives anything back does not go unnoticed."""
    monkeypatch.setattr("simserve.memory.reservation.ReservationMemory.free", lambda self, request: None)
    with pytest.raises(IntegrityError, match="still held"):
        serve([(0.0, 3, 4)], engine="continuous")


def test_an_iteration_keeps_to_its_budget(records: Records) -> None:
    most = int((records.iterations.prefill_tokens + records.iterations.decode_sequences).max())
    check_integrity(records, EMPTY, in_order=True, budget_tokens=most)
    with pytest.raises(IntegrityError, match=f"computes {most} tokens of a budget of {most - 1}"):
        check_integrity(records, EMPTY, in_order=True, budget_tokens=most - 1)
