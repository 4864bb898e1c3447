"""Orders that know of prefixes: by hand, and what they compute of a tree of prompts with a cache for one of them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from simserve.content import Content, common_tokens, num_tokens
from simserve.memory.prefix import BlockPrefixCache, PrefixCache, RadixPrefixCache
from simserve.request import Request
from simserve.scheduling import OrderSpec, WaitingQueue
from simserve.scheduling.prefix_order import DepthFirstQueue, LongestPrefixQueue
from simserve.scheduling.queue import FCFSQueue
from simserve.workload import Streams, WorkloadSpec
from tests.prefix_support import TEXTS, ReadingRoom, serve_in_order
from tests.support import chat

ORDER: TypeAdapter[Any] = TypeAdapter(OrderSpec)


def request(number: int, *content: tuple[int, int]) -> Request:
    tokens = num_tokens(content)
    return Request(number, float(number), tokens, 1, tokens + 1, content=content)


def cached(*texts: Content) -> RadixPrefixCache:
    cache = RadixPrefixCache()
    for text in texts:
        add(cache, text)
    return cache


def add(cache: PrefixCache, text: Content) -> None:
    holder = cache.counters.lookups + 1000
    cache.acquire(holder, text, num_tokens(text))
    cache.insert(holder, text, num_tokens(text))
    cache.release(holder)


def fill(queue: WaitingQueue, *requests: Request) -> None:
    for one in requests:
        queue.push(one)


def take(queue: WaitingQueue, now_s: float) -> int:
    head = queue.head(now_s)
    assert queue.head(now_s) is head
    assert queue.pop() is head
    return head.id


# lpm


def test_the_longest_cached_prefix_goes_first_and_ties_by_arrival() -> None:
    queue = LongestPrefixQueue(cached(((1, 100), (2, 100))))
    fill(
        queue,
        request(0, (9, 300)),
        request(1, (1, 100), (9, 5)),
        request(2, (8, 300)),
        request(3, (1, 100), (2, 60), (9, 5)),
        request(4, (1, 100), (7, 5)),
    )
    assert [take(queue, 0.0) for _ in range(5)] == [3, 1, 4, 0, 2]
    assert not queue


def test_the_order_follows_the_cache_from_step_to_step() -> None:
    cache = cached()
    queue = LongestPrefixQueue(cache)
    fill(queue, request(0, (1, 50)), request(1, (2, 50)), request(2, (3, 50)), request(3, (3, 60)))
    assert take(queue, 0.0) == 0
    add(cache, ((3, 40),))
    assert queue.head(0.0).id == 1  # this step goes on as it began
    assert queue.head(1.0).id == 2
    assert take(queue, 1.0) == 2
    cache.evict(1000)
    assert queue.head(1.0).id == 3
    assert queue.head(2.0).id == 1
    add(cache, ((3, 40),))
    fill(queue, request(4, (5, 9)))
    assert queue.head(2.0).id == 3  # a newcomer lets it look again


def test_a_step_that_changes_the_cache_does_not_pass_for_the_one_after() -> None:
    # The head is asked for again after the change, in the same step; the next step must look again all the same.
    cache = cached()
    queue = LongestPrefixQueue(cache)
    fill(queue, request(0, (1, 50)), request(1, (2, 50)))
    assert queue.head(0.0).id == 0
    add(cache, ((2, 40),))
    assert queue.head(0.0).id == 0
    assert queue.head(1.0).id == 1


def test_first_come_first_served_where_too_many_wait() -> None:
    queue = LongestPrefixQueue(cached(((1, 100),)), most_matched=2)
    fill(queue, request(0, (9, 10)), request(1, (8, 10)), request(2, (7, 10)), request(3, (1, 10)))
    assert [take(queue, 0.0) for _ in range(2)] == [0, 1]  # four and three wait
    assert [take(queue, 0.0) for _ in range(2)] == [3, 2]


def test_one_computes_the_prefix_that_others_wait_for() -> None:
    # 0 and 2 share 32 tokens, none cached: 2 is deferred. 1 and 3 share only 31. 4 and 5 find 33 in the cache; 6 and 7
    # find 32, which is next to nothing still: 7 is deferred.
    cache = cached(((6, 33),), ((7, 32),))
    waiting = [
        request(0, (1, 32), (10, 9)),
        request(1, (2, 31), (11, 9)),
        request(2, (1, 32), (12, 9)),
        request(3, (2, 31), (13, 9)),
        request(4, (6, 50)),
        request(5, (6, 50), (14, 1)),
        request(6, (7, 50)),
        request(7, (7, 50), (15, 1)),
    ]
    queue = LongestPrefixQueue(cache, defer_tokens=32)
    fill(queue, *waiting)
    assert [take(queue, 0.0) for _ in range(8)] == [4, 5, 6, 0, 1, 3, 7, 2]
    queue = LongestPrefixQueue(cache, defer_tokens=None)
    fill(queue, *waiting)
    assert [take(queue, 0.0) for _ in range(8)] == [4, 5, 6, 7, 0, 1, 2, 3]


def test_nobody_is_deferred_for_one_who_has_left() -> None:
    # 1 is deferred for 0. Once 0 has been taken, in the next step it is not, though the cache is as it was.
    queue = LongestPrefixQueue(cached(), defer_tokens=32)
    fill(queue, request(0, (1, 32), (10, 9)), request(1, (1, 32), (11, 9)), request(2, (2, 9)))
    assert take(queue, 0.0) == 0
    assert queue.head(0.0).id == 2
    assert queue.head(1.0).id == 1


def test_one_who_comes_back_is_taken_again() -> None:
    queue = LongestPrefixQueue(cached(), most_matched=1)
    fill(queue, request(0, (1, 5)), request(1, (2, 5)), request(2, (3, 5)))
    assert take(queue, 0.0) == 0
    fill(queue, request(0, (1, 5)))  # preempted
    assert [take(queue, 1.0) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("most_matched", [0, 2, 128])
@settings(deadline=None)
@given(
    st.lists(st.one_of(TEXTS, st.none(), st.tuples(st.just("cache"), TEXTS), st.just("evict")), max_size=30),
)
def test_lpm_agrees_with_a_plain_list(most_matched: int, steps: list[Any]) -> None:
    cache = RadixPrefixCache()
    queue, waiting = LongestPrefixQueue(cache, most_matched), list[Request]()
    for now, step in enumerate(steps):
        if step == "evict":
            cache.evict(3)
        elif step is not None and step[0] == "cache":
            add(cache, step[1])
        elif step is not None:
            queue.push(request(now, *step))
            waiting.append(request(now, *step))
        elif waiting:

            def gain(r: Request) -> int:
                return cache.match(r.content, r.prompt_tokens).tokens if len(waiting) <= most_matched else 0

            expected = min(waiting, key=lambda r: (-gain(r), r.id))
            assert take(queue, float(now)) == expected.id
            waiting.remove(expected)
        assert len(queue) == len(waiting)


# dfs


def test_a_branch_is_served_before_it_is_left() -> None:
    queue = DepthFirstQueue()
    fill(
        queue,
        request(0, (1, 10), (2, 10), (10, 1)),
        request(1, (5, 10), (11, 1)),
        request(2, (1, 10), (3, 10), (12, 1)),
        request(3, (1, 10), (2, 10), (13, 1)),
        request(4, (5, 9), (14, 1)),
    )
    assert [take(queue, 0.0) for _ in range(2)] == [0, 3]  # both below 1, 2
    queue.push(request(5, (1, 10), (2, 4), (15, 1)))
    assert [take(queue, 0.0) for _ in range(4)] == [5, 2, 1, 4]  # then what is left below 1, and the tree of 5
    assert not queue


@given(st.lists(TEXTS, min_size=1, max_size=12))
def test_dfs_goes_to_the_nearest(texts: Sequence[Content]) -> None:
    queue = DepthFirstQueue()
    requests = [request(i, *text) for i, text in enumerate(texts)]
    fill(queue, *requests)
    assert queue.head(0.0).id == 0
    served = [take(queue, 0.0) for _ in requests]
    assert sorted(served) == list(range(len(texts)))
    for place, (one, then) in enumerate(pairwise(served)):
        shared = max(common_tokens(texts[one], texts[other]) for other in served[place + 1 :])
        assert common_tokens(texts[one], texts[then]) == shared
        if not shared:
            assert then == min(served[place + 1 :])


@pytest.mark.parametrize("queue", [DepthFirstQueue(), LongestPrefixQueue(cached())], ids=["dfs", "lpm"])
def test_neither_changes_by_itself_nor_skips(queue: WaitingQueue) -> None:
    assert queue.newcomers_may_pass
    assert queue.skip_ahead == 0
    assert queue.head_changes_s() == float("inf")
    with pytest.raises(AssertionError, match="request 3 was skipped"):
        queue.put_back(request(3, (1, 1)))


def test_specs() -> None:
    queue = ORDER.validate_python("lpm").prefix_queue(cached(((1, 9),)))
    fill(queue, request(0, (2, 9)), request(1, (1, 9)))
    assert take(queue, 0.0) == 1
    assert isinstance(ORDER.validate_python("dfs").queue(None, None), DepthFirstQueue)
    assert ORDER.validate_python({"kind": "lpm", "defer_tokens": None}).defer_tokens is None
    with pytest.raises(ValidationError):
        ORDER.validate_python({"kind": "lpm", "defer_tokens": 0})


# A tree of prompts, and a cache as large as the longest of them (Zheng et al., NeurIPS 2024, theorem 3.1)

DEPTH, FAN_OUT = 3, 4
LEAVES = FAN_OUT**DEPTH
NEW_TOKENS = 7


def tree(seed: int) -> tuple[list[Request], int]:
    """Return the requests in shuffled order, and the tokens of all edges and all new texts: the least to compute."""
    edges = {"kind": "uniform", "low": 5, "high": 60}
    prefixes = {"kind": "tree", "depth": DEPTH, "fan_out": FAN_OUT, "edge_tokens": edges}
    spec = WorkloadSpec.model_validate(chat(LEAVES, 1.0, NEW_TOKENS, 1) | {"prefixes": prefixes})
    requests = list(spec.draw(Streams(seed)))
    tokens = dict(segment for one in requests for segment in one.content)
    assert len(tokens) == sum(FAN_OUT**level for level in (1, 2, 3)) + LEAVES
    return requests, sum(tokens.values())


def computed(order: str, requests: list[Request], make: type[RadixPrefixCache] | None = RadixPrefixCache) -> int:
    cache: PrefixCache = BlockPrefixCache(1) if make is None else make()
    queues = {"fcfs": FCFSQueue(), "dfs": DepthFirstQueue(), "lpm": LongestPrefixQueue(cache, defer_tokens=None)}
    longest = max(one.prompt_tokens for one in requests)
    return serve_in_order(ReadingRoom(cache, longest), queues[order], requests)


@pytest.mark.parametrize("make", [RadixPrefixCache, None], ids=["radix", "blocks of 1"])
@pytest.mark.parametrize("seed", range(1, 6))
def test_depth_first_and_longest_prefix_first_compute_every_edge_once(
    seed: int, make: type[RadixPrefixCache] | None
) -> None:
    requests, least = tree(seed)
    assert computed("dfs", requests, make) == least
    assert computed("fcfs", requests, make) > 1.5 * least
    assert computed("lpm", requests, make) == least  # among those who share most, any is next in some depth-first order
