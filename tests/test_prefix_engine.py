"""Prefix caches in the engine: against the plain reference engine on random requests, and by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.content import Content, num_tokens, own_output, own_prompt
from simserve.records import Records
from simserve.workload import Workload
from tests.support import (
    assert_identical,
    assert_same_as_reference,
    assert_same_gaps_as_reference,
    serve,
    serve_plainly,
    workload,
)
from tests.test_engine import PLAIN, STEP, linear_costs, placements, ties

Said = tuple[float, Content, int]
"""A request: arrival, what its prompt says, output tokens."""


def requests(rows: list[Said]) -> Workload:
    columns = [(at, num_tokens(text), output) for at, text, output in rows]
    return replace(workload(columns), content=tuple(text for _, text, _ in rows))


# Random requests through both engines.


@st.composite
def texts(draw: st.DrawFn, before: list[Said]) -> Content:
    """What a prompt says: nothing that others say, passages that they quote as well, or the next turn of another."""
    own = ((own_prompt(len(before)), draw(st.integers(1, 9))),)
    kind = draw(st.sampled_from(("new", "passages", "passages", "the same", "next turn")))
    if kind == "passages" or (kind != "new" and not before):
        passages = st.tuples(st.integers(0, 2), st.sampled_from((1, 2, 4, 5, 8, 16)))
        return (*draw(st.lists(passages, min_size=1, max_size=3)), *draw(st.sampled_from(((), own))))
    if kind == "new":
        return own
    which = draw(st.integers(0, len(before) - 1))
    _, text, output = before[which]
    return text if kind == "the same" or num_tokens(text) > 60 else (*text, (own_output(which), output), *own)


@st.composite
def conversations(draw: st.DrawFn, gaps_s: st.SearchStrategy[float], most: int = 24) -> list[Said]:
    rows: list[Said] = []
    now_s = 0.0
    for _ in range(draw(st.integers(1, most))):
        now_s += draw(gaps_s)
        rows.append((now_s, draw(texts(rows)), draw(st.integers(1, 8) | st.integers(1, 40))))
    return rows


prefix_orders = st.sampled_from(
    (
        *("fcfs", "fcfs", {"kind": "fcfs", "skip_ahead": 2}, "sjf", "lpm", "lpm", "dfs", "dfs"),
        {"kind": "lpm", "defer_tokens": None},
        {"kind": "lpm", "defer_tokens": 4, "most_matched": 3},
        {"kind": "lpm", "defer_tokens": 2},
    )
)


@st.composite
def sharing_systems(draw: st.DrawFn, costs: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """A system with a cache of blocks, and `kv_tokens` with it: from too small for some of the requests to ample."""
    seats = draw(st.integers(1, 8))
    memory = {
        "kind": "paged",
        "block_tokens": draw(st.sampled_from((1, 2, 3, 4, 16))),
        "watermark": draw(st.sampled_from((0.0, 0.0, 0.01, 0.05, 0.3))),
    }
    return {
        "engine": "continuous",
        "max_batch_size": seats,
        "order": draw(prefix_orders),
        "memory": memory,
        "prefix": "blocks",
        "prefill": draw(placements(seats)),
        "cost": draw(costs),
        "kv_tokens": draw(st.integers(40, 120) | st.integers(20, 400)),
    }


def check(rows: list[Said], system: dict[str, Any]) -> Records:
    given = requests(rows)
    fast = serve(given, **system)
    jobs, *facts = serve_plainly(given, **system)
    assert_same_as_reference(fast, jobs, *facts)
    assert_same_gaps_as_reference(fast, jobs)
    assert_identical(fast, serve(given, **system, fast_forward=False))
    return fast


timed = linear_costs().filter(lambda cost: cost["step_s"] or cost["prefill_token_s"])
"""Prompts take time as well: `lpm` looks into the cache once at a time, and steps in no time are one to it."""


@settings(PLAIN, max_examples=500)
@given(conversations(ties), sharing_systems(timed))
def test_same_as_the_reference(rows: list[Said], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=200)
@given(conversations(st.just(0.0) | st.floats(0, 0.05)), sharing_systems(st.just({"kind": "roofline"})))
def test_same_as_the_reference_on_the_roofline(rows: list[Said], system: dict[str, Any]) -> None:
    check(rows, system)


@settings(PLAIN, max_examples=200)
@given(conversations(ties), sharing_systems(timed))
def test_same_as_the_reference_with_a_tree_of_tokens(rows: list[Said], system: dict[str, Any]) -> None:
    """In ample memory: which runs of tokens go first when it runs out is another matter, see test_prefix_cache.py."""
    memory = {"kind": "paged", "block_tokens": 1, "watermark": 0.0}
    check(rows, {**system, "memory": memory, "prefix": "radix", "kv_tokens": 100_000})


@settings(PLAIN, max_examples=200)
@given(conversations(ties), sharing_systems(linear_costs()))
def test_a_tree_of_tokens_under_pressure(rows: list[Said], system: dict[str, Any]) -> None:
    """Everyone ends or is rejected, and iterations at once or one by one are the same; the invariants watch the rest."""
    system["memory"] |= {"block_tokens": 1}
    given = requests(rows)
    fast = serve(given, **system | {"prefix": "radix"})
    assert np.all(fast.requests.finished | fast.requests.rejected)
    assert_identical(fast, serve(given, **system | {"prefix": "radix", "fast_forward": False}))
