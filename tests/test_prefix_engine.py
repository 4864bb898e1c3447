"""Prefix caches in the engine: against the plain reference engine on random requests, and by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.content import Content, num_tokens, own_output, own_prompt
from simserve.memory.prefix import BlockPrefixCache, Handover, Match
from simserve.memory.shared import SharedMemory
from simserve.records import Records
from simserve.request import Request
from simserve.workload import Streams, Workload, WorkloadSpec
from tests import reference_engine as reference
from tests.support import (
    assert_identical,
    assert_same_as_reference,
    assert_same_gaps_as_reference,
    chat,
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


@settings(PLAIN, max_examples=200)
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


# Books that are kept twice: what shared memory and its cache count, and a count of every table and every block.


class Audited(SharedMemory):
    """Shared memory that is counted anew whenever somebody has come or gone."""

    def try_admit(self, request: Request, tokens: int) -> bool:
        admitted = super().try_admit(request, tokens)
        self.audit()
        return admitted

    def free(self, request: Request) -> None:
        super().free(request)
        self.audit()

    def audit(self) -> None:
        cache, block = self._cache, self._block_tokens
        assert isinstance(cache, BlockPrefixCache)
        tokens = self._admitted | {i: offset + self._steps for i, offset in self._decoding.items()}
        assert set(cache._held) == set(tokens)
        tables = {i: -(-n // block) for i, n in tokens.items()}
        assert all(cache.held_pages(i) <= tables[i] for i in tables)
        private = sum(tables[i] - cache.held_pages(i) for i in tables)
        blocks = [(key, i, run) for key, runs in cache._passages.items() for run in runs for i in run_places(run)]
        assert len({(key, i) for key, i, _ in blocks}) == len(blocks) == cache.cached_pages  # none is cached twice
        read = [run for _, _, run in blocks if run.holders]
        assert len(blocks) - len(read) == cache.evictable_pages
        # Blank, idle, read and private blocks are all there are; and what is read stands in as many tables as it says.
        assert private + len(read) == self.reserved_tokens // block
        assert self._blank_tokens // block == self.capacity_tokens // block - private - len(blocks)
        assert sum(len(run.holders) for run in read) * block == self._held_tokens
        assert sum(cache.held_pages(i) for i in tables) * block == self._held_tokens


def run_places(run: Any) -> range:
    return range(run.first, run.stop)


@settings(PLAIN, max_examples=150)
@given(conversations(ties), sharing_systems(timed))
def test_the_books_agree_with_a_count_of_every_block(rows: list[Said], system: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simserve.simulation.SharedMemory", Audited)
        serve(requests(rows), **system)


# By hand. A second a step, blocks of 16, ample memory where none is given.

BOTH = pytest.mark.parametrize("fast_forward", [True, False])


def orca(rows: list[Said], kv_tokens: int = 10_000, block_tokens: int = 16, **system: Any) -> Records:
    memory = {"kind": "paged", "block_tokens": block_tokens, "watermark": 0.0}
    usual = {"engine": "continuous", "max_batch_size": 8, "cost": STEP, "memory": memory, "prefix": "blocks"}
    return serve(requests(rows), kv_tokens, **usual | system)


def cached(records: Records) -> list[int]:
    return records.requests.cached_tokens.tolist()


RADIX: dict[str, Any] = {"block_tokens": 1, "prefix": "radix"}


def test_the_same_words_behind_another_beginning_are_not_found() -> None:
    # Passage 9 stands in blocks of its own, but its KV depends on what went before: 1 or 2.
    rows: list[Said] = [
        (0.0, ((1, 16), (9, 16)), 1),
        (10.0, ((2, 16), (9, 16)), 1),
        (20.0, ((1, 16), (9, 16), (3, 1)), 1),
    ]
    for records in (orca(rows), orca(rows, **RADIX)):
        assert cached(records) == [0, 0, 32]
        assert records.iterations.prefill_tokens.tolist() == [32, 32, 1]


@BOTH
def test_what_is_cached_takes_no_chunks(fast_forward: bool) -> None:
    # A budget of 256: the first 512 tokens take two iterations, and so do the 512 that are new in a prompt of 1,024. Its
    # pieces have 512 and 768 tokens before them, whose KV is read, and attended to: pairs by the roofline.
    rows: list[Said] = [(0.0, ((1, 512),), 1), (10.0, ((1, 512), (2, 512)), 1)]
    system = {"prefill": {"kind": "chunked", "budget_tokens": 256}, "fast_forward": fast_forward}
    records = orca(rows, **system)
    assert cached(records) == [0, 512]
    assert records.iterations.prefill_tokens.tolist() == [256, 256, 256, 256]
    assert records.iterations.end_s.tolist() == [1, 2, 11, 12]
    reading = orca(rows, **system, cost=STEP | {"context_token_s": 1.0})
    assert np.diff(reading.iterations.end_s).tolist() == [257, 1 + 512, 1 + 768]  # the second waits for the first
    roofline = orca(rows, **system, cost={"kind": "roofline"}).iterations
    pieces = [(256, 0, False), (256, 256, True), (256, 512, False), (256, 768, True)]
    alone_s = [reference.roofline([reference.Piece(new, past, True, emits)]) for new, past, emits in pieces]
    assert (roofline.end_s - roofline.start_s).tolist() == pytest.approx(alone_s, rel=1e-9)


def test_who_is_admitted_together_shares_blocks_but_not_a_tree() -> None:
    # vLLM finds a block from the moment it is scheduled, SGLang when it has been computed. Three requests at once, with
    # 32 tokens in common and 8 of their own each: 32 + 3 x 8 = 56 are computed, or all 120. The fourth comes later.
    rows: list[Said] = [(0.0, ((1, 32), (own_prompt(i), 8)), 2) for i in range(3)]
    rows.append((1.0, ((1, 32), (own_prompt(3), 8)), 1))
    blocks, radix = orca(rows), orca(rows, **RADIX)
    assert cached(blocks) == [0, 32, 32, 32]
    assert cached(radix) == [0, 0, 0, 32]
    assert blocks.iterations.prefill_tokens.tolist() == [56, 8]
    assert radix.iterations.prefill_tokens.tolist() == [120, 8]
    # Held: 2 common blocks and one of each. Stored: the common 32 once, 8 and then 9 of three, and 8 of the fourth.
    assert blocks.iterations.kv_reserved_tokens.tolist() == [5 * 16, 6 * 16]
    assert blocks.iterations.kv_stored_tokens.tolist() == [32 + 3 * 8, 32 + 3 * 9 + 8]
    # Computed three times, the 32 are held three times until it turns out that they are the same.
    assert radix.iterations.kv_reserved_tokens.tolist() == [120, 32 + 3 * 9 + 8]
    assert radix.iterations.kv_stored_tokens.tolist() == [32 + 3 * 8, 32 + 3 * 9 + 8]


def test_shared_blocks_are_held_once() -> None:
    # Room for 5 blocks. Each of three takes 3, of which 2 are common: all run at once. By themselves only one does.
    rows: list[Said] = [(0.0, ((1, 32), (own_prompt(i), 8)), 1) for i in range(3)]
    assert orca(rows, 5 * 16).iterations.running.tolist() == [3]
    assert orca(rows, 5 * 16, prefix=None).iterations.running.tolist() == [1, 1, 1]


def test_a_prompt_that_is_cached_to_the_end_computes_its_last_block_or_token() -> None:
    rows: list[Said] = [(10.0 * i, ((1, 64),), 1) for i in range(3)]
    assert cached(orca(rows)) == [0, 48, 48]
    assert orca(rows).iterations.prefill_tokens.tolist() == [64, 16, 16]
    assert cached(orca(rows, **RADIX)) == [0, 63, 63]
    assert orca(rows, **RADIX).iterations.prefill_tokens.tolist() == [64, 1, 1]


@BOTH
def test_a_preempted_request_finds_its_own_blocks(fast_forward: bool) -> None:
    # As in test_preemption.py: two of 2 prompt and 4 output tokens in memory for 8, blocks of one token. r1 leaves 4
    # tokens behind, the last of which r0 wipes for its fifth. r1 comes back with 5 and finds 3.
    #
    #   iteration   r0          r1          read   idle
    #   2           decode      decode      4 + 4
    #   3           decode      preempted   5      3
    #   4                       prompt 2    5      3    r0's first 3: its last two are wiped for what r1 lacks
    rows: list[Said] = [(0.0, ((own_prompt(i), 2),), 4) for i in range(2)]
    records = orca(rows, 8, block_tokens=1, fast_forward=fast_forward)
    assert records.preemptions.tokens.tolist() == [4]
    assert records.iterations.prefill_tokens.tolist() == [4, 0, 0, 0, 2]
    assert records.iterations.kv_reserved_tokens.tolist() == [4, 6, 8, 5, 5]
    assert cached(records) == [0, 3]
    assert records.finish_s.tolist() == [4, 5]


def test_the_next_turn_finds_prompt_and_output() -> None:
    # 30 prompt and 19 output tokens: 48 have KV, which are 3 blocks; the last token's KV is never written.
    first: Content = ((own_prompt(0), 30),)
    rows: list[Said] = [(0.0, first, 19), (100.0, (*first, (own_output(0), 19), (own_prompt(1), 5)), 1)]
    assert cached(orca(rows)) == [0, 48]
    assert orca(rows).iterations.prefill_tokens[[0, -1]].tolist() == [30, 6]
    assert cached(orca(rows, **RADIX)) == [0, 48]


def test_what_is_generated_is_found_once_its_request_has_left() -> None:
    # Asked again before the answer is complete, only the prompt is found: 2 blocks, and then 4.
    first: Content = ((own_prompt(0), 32),)
    again: Content = (*first, (own_output(0), 33), (own_prompt(1), 5))
    assert cached(orca([(0.0, first, 33), (32.0, again, 1)])) == [0, 32]
    assert cached(orca([(0.0, first, 33), (33.0, again, 1)])) == [0, 64]


@BOTH
def test_the_least_recently_used_is_wiped_tail_first(fast_forward: bool) -> None:
    # 6 blocks. r0 and r1 leave 2 each, so 2 are blank; r2 takes 3, and the last block of r0 is wiped. r3, as r0 with a
    # token more, finds the first; r4, as r1, finds both.
    rows: list[Said] = [
        (0.0, ((0, 32),), 1),
        (10.0, ((1, 32),), 1),
        (20.0, ((2, 48),), 1),
        (30.0, ((1, 32), (3, 1)), 1),
        (40.0, ((0, 32), (4, 1)), 1),
    ]
    # r3 takes a block for its one token, and r0's first block, the oldest left, goes for it.
    assert cached(orca(rows, 6 * 16, fast_forward=fast_forward)) == [0, 0, 0, 32, 0]
    assert cached(orca(rows, 7 * 16, fast_forward=fast_forward)) == [0, 0, 0, 32, 16]


@BOTH
@pytest.mark.parametrize(("order", "admitted_s"), [("lpm", 14), ("fcfs", 3)])
def test_a_wipe_may_bring_another_to_the_head(order: str, admitted_s: float, fast_forward: bool) -> None:
    # 20 blocks of one token. r0 leaves 2 and r1 8 behind; r2 has t - 2 at second t, and 20 at most. At 3 come r3, of 2
    # tokens, and r4, of 19, the first 2 as r0. Longest prefix first: r4, for whom there is no room, goes before r3, for
    # whom there is. At 12 r2's next token needs r0's last, at 13 its first. From 14 on r4 finds nothing: r3 came first.
    rows: list[Said] = [
        (0.0, ((0, 2),), 1),
        (1.0, ((own_prompt(1), 8),), 1),
        (2.0, ((own_prompt(2), 1),), 18),
        (3.0, ((own_prompt(3), 2),), 1),
        (3.0, ((0, 2), (own_prompt(4), 17)), 1),
    ]
    records = orca(rows, 20, block_tokens=1, order=order, fast_forward=fast_forward)
    assert records.admitted_s.tolist() == [0, 1, 2, admitted_s, 20]


# Whole workloads.


def tree(order: str, seed: int) -> tuple[int, int]:
    """Serve the leaves of a shuffled tree one by one, with room for the longest prompt; return tokens computed, and least.

    Outputs are one token, whose KV is never written.
    """
    edges = {"kind": "uniform", "low": 5, "high": 60}
    prefixes = {"kind": "tree", "depth": 3, "fan_out": 4, "edge_tokens": edges}
    spec = chat(64, 1.0, 7, 1) | {"prefixes": prefixes, "arrivals": "burst"}
    drawn = WorkloadSpec.model_validate(spec).draw(Streams(seed))
    passages = {segment for text in drawn.content or () for segment in text}
    assert len(passages) == 4 + 16 + 64 + 64
    memory = {"kind": "paged", "block_tokens": 1, "watermark": 0.0}
    system = {"engine": "continuous", "max_batch_size": 1, "memory": memory, "order": order, "cost": STEP}
    records = serve(drawn, int(drawn.prompt_tokens.max()), **system, prefix="radix")
    assert records.requests.finished.all()
    return int(records.iterations.prefill_tokens.sum()), sum(tokens for _, tokens in passages)


@pytest.mark.parametrize("seed", range(1, 6))
def test_depth_first_computes_every_edge_of_a_tree_once(seed: int) -> None:
    """Zheng et al., NeurIPS 2024, theorem 3.1: optimal where the cache holds the longest request."""
    depth_first, least = tree("dfs", seed)
    assert depth_first == least
    assert tree("fcfs", seed)[0] > 1.5 * least


# Faults in the cache do not go unnoticed.

CROWD: list[Said] = [(float(i // 4), ((i % 3, 20), (own_prompt(i), 6)), 12) for i in range(24)]


def crowd() -> Records:
    return orca(CROWD, 16 * 12, order="lpm")


def test_the_crowd_shares_runs_short_and_wipes(monkeypatch: pytest.MonkeyPatch) -> None:
    wiped: list[int] = []
    evict = BlockPrefixCache.evict
    monkeypatch.setattr(BlockPrefixCache, "evict", lambda cache, pages: wiped.append(evict(cache, pages)) or wiped[-1])
    records = crowd()
    assert sum(wiped) > 10
    assert len(records.preemptions) > 2
    assert sum(cached(records)) > 100


def never_releases(cache: BlockPrefixCache, holder: int) -> None:
    del cache._held[holder]


def forgets_blocks(cache: BlockPrefixCache, pages: int) -> int:
    """Wipe what somebody reads instead of what nobody does."""
    cache.cached_pages -= pages
    return pages


def insert_that(kept: int, spare: int) -> Any:
    insert = BlockPrefixCache.insert

    def miscounted(cache: BlockPrefixCache, holder: int, content: Content, tokens: int) -> Handover:
        was = insert(cache, holder, content, tokens)
        return Handover(was.kept + kept, was.spare + spare) if was.kept else was

    return miscounted


def finds_too_much(cache: BlockPrefixCache, content: Content, prompt_tokens: int) -> Match:
    tokens = (prompt_tokens - 1) // 16 * 16
    return Match(tokens, 0)


@pytest.mark.parametrize(
    ("name", "faulty"),
    [
        ("release", never_releases),
        ("evict", forgets_blocks),
        ("evict", lambda cache, pages: 0),
        ("insert", insert_that(kept=1, spare=0)),
        ("insert", insert_that(kept=0, spare=1)),
        ("insert", insert_that(kept=-1, spare=0)),
        ("match", finds_too_much),
    ],
)
def test_a_faulty_cache_is_found_out(name: str, faulty: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockPrefixCache, name, faulty)
    with pytest.raises(AssertionError):
        crowd()
