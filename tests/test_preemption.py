"""Paged memory under pressure: against the plain reference engine on random requests, and by hand."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import KV_BYTES_PER_TOKEN, Row
from tests.test_engine import PLAIN, any_order, check, linear_costs, placements, requests, ties


@st.composite
def preemptions(draw: st.DrawFn, token_s: float = 1.0) -> Any:
    """Recompute, or swap to a host with room for some of the requests below."""
    if draw(st.booleans()):
        return "recompute"
    return {
        "kind": "swap",
        "host_bytes": float(KV_BYTES_PER_TOKEN * draw(st.sampled_from((1, 20, 60, 1000)))),
        "link_bytes_per_s": KV_BYTES_PER_TOKEN / (token_s * draw(st.sampled_from((0.5, 1.0, 2.0)))),
        "overlapped": draw(st.booleans()),
    }


@st.composite
def paged_systems(
    draw: st.DrawFn, costs: st.SearchStrategy[dict[str, Any]], order: st.SearchStrategy[Any] = any_order
) -> dict[str, Any]:
    """A system, and `kv_tokens` with it: capacities from far too small to ample for requests of 2 to 110 tokens."""
    seats = draw(st.integers(1, 8))
    return {
        "engine": "continuous",
        "max_batch_size": seats,
        "order": draw(order),
        "memory": {
            "kind": "paged",
            "block_tokens": draw(st.sampled_from((1, 2, 3, 4, 16))),
            "watermark": draw(st.sampled_from((0.0, 0.0, 0.01, 0.05, 0.3))),
        },
        "preemption": draw(preemptions()),
        "prefill": draw(placements(seats)),
        "cost": draw(costs),
        "kv_tokens": draw(st.integers(16, 150)),
    }


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Row], dict[str, Any]]:
    """More requests at once than memory holds when they have grown, and a system with room for any one of them."""
    outputs = st.integers(1, 40)
    many = draw(st.lists(st.tuples(st.sampled_from((0.0, 0.0, 0.0, 3.0)), st.integers(1, 20), outputs), min_size=4))
    arrivals = np.cumsum([gap for gap, *_ in many]).tolist()
    rows: list[Row] = [(at, prompt, output) for at, (_, prompt, output) in zip(arrivals, many, strict=True)]
    system = draw(paged_systems(linear_costs()))
    block = system["memory"]["block_tokens"]
    room = draw(st.integers(0, 60)) + max(prompt + output for _, prompt, output in rows) + block
    seats = draw(st.integers(3, 8))
    system |= {"max_batch_size": seats, "prefill": draw(placements(seats)), "kv_tokens": room}
    system["memory"] |= {"watermark": draw(st.sampled_from((0.0, 0.0, 0.02)))}
    return rows, system


@settings(PLAIN, max_examples=400)
@given(crowds())
def test_crowds_are_served_as_by_the_reference(crowd: tuple[list[Row], dict[str, Any]]) -> None:
    check(*crowd)


@settings(PLAIN, max_examples=400)
@given(requests(ties), paged_systems(linear_costs()))
def test_same_as_the_reference(rows: list[Row], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=200)
@given(requests(st.just(0.0) | st.floats(0, 0.05)), paged_systems(st.just({"kind": "roofline"})))
def test_same_as_the_reference_on_the_roofline(rows: list[Row], system: dict[str, Any]) -> None:
    check(rows, system)
