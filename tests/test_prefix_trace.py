"""The block cache on Mooncake's synthetic trace: all of its reuse with an endless cache, an LRU stack with a finite one.

The trace stays where it is (see `TRACE`): without it these tests skip. Stack distances: Mattson et al., IBM Systems
Journal 1970: an LRU cache of any size holds what a smaller one holds, so one pass gives the hits of all sizes.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simserve.content import Content
from simserve.diagnostics import prefix_hit_share
from simserve.memory.prefix import BlockPrefixCache, RadixPrefixCache
from simserve.records import Records
from simserve.workload import Streams, WorkloadSpec
from tests.prefix_support import ReadingRoom
from tests.support import serve

DATA = Path(os.environ.get("SIMSERVE_DATA", Path(__file__).parents[2] / "shared/data"))
TRACE = DATA / "traces/mooncake_synthetic.jsonl"
BLOCK_TOKENS = 512
REQUESTS, BLOCKS, REUSED = 3993, 121_877, 77_953

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"{TRACE} is not there; SIMSERVE_DATA names its folder")


@pytest.fixture(scope="module")
def prompts() -> tuple[Content, ...]:
    prefixes = {"kind": "trace", "path": str(TRACE)}
    spec = WorkloadSpec.model_validate({"num_requests": REQUESTS, "prefixes": prefixes})
    content = spec.prefixes.trace().content
    assert len(content) == REQUESTS
    return content


def in_whole_blocks(prompts: tuple[Content, ...]) -> Iterator[tuple[Content, int]]:
    """Yield prompts with their last block filled up, and one token more, so that all of its blocks can hit."""
    for text in prompts:
        yield (*((block, BLOCK_TOKENS) for block, _ in text), (-1, 1)), len(text) * BLOCK_TOKENS + 1


def hits(prompts: tuple[Content, ...], total_blocks: int) -> int:
    """Serve the prompts one after another; return how many blocks hit."""
    room = ReadingRoom(BlockPrefixCache(BLOCK_TOKENS), total_blocks)
    for holder, (text, tokens) in enumerate(in_whole_blocks(prompts)):
        assert room.admit(holder, text, tokens) is not None
        room.leave(holder, text, tokens)
    room.check()
    return room.cache.counters.hit_tokens // BLOCK_TOKENS


def stack_distances(prompts: tuple[Content, ...]) -> list[int]:
    """Return for each block that came before how many other blocks an LRU cache must hold for it to hit.

    A request uses its blocks from the last to the first. The distance is the number of blocks used since, looked up in
    a Fenwick tree over the times of use.
    """
    size = sum(map(len, prompts)) + 1
    counts = [0] * (size + 1)

    def add(time: int, change: int) -> None:
        while time <= size:
            counts[time] += change
            time += time & -time

    def until(time: int) -> int:
        total = 0
        while time:
            total += counts[time]
            time -= time & -time
        return total

    used: dict[int, int] = {}
    now, distances = 0, []
    for text in prompts:
        distances += [len(used) - until(used[block]) for block, _ in text if block in used]
        for block, _ in reversed(text):
            if block in used:
                add(used[block], -1)
            now += 1
            used[block] = now
            add(now, 1)
    return distances


def test_an_endless_cache_hits_64_percent_of_the_blocks(prompts: tuple[Content, ...]) -> None:
    assert sum(map(len, prompts)) == BLOCKS
    found = hits(prompts, 10 * BLOCKS)
    assert found == REUSED
    assert round(found / BLOCKS, 2) == 0.64


def test_finite_caches_hit_what_their_stack_distances_say(prompts: tuple[Content, ...]) -> None:
    distances = stack_distances(prompts)
    longest = max(map(len, prompts)) + 1
    curve = []
    for total_blocks in (longest, 1000, 4000, 16_000, 64_000):
        # One block more is taken while a request runs, for the token added to its prompt, and blank when it ends.
        expected = sum(distance < total_blocks - 1 for distance in distances)
        assert hits(prompts, total_blocks) == expected
        curve.append(expected)
    assert curve == sorted(set(curve)), "more memory, more hits"
    assert curve[-1] == REUSED == len(distances)


@pytest.mark.slow
def test_full_blocks_and_tokens_of_the_prompts_as_they_are(prompts: tuple[Content, ...]) -> None:
    """The last block of a prompt is full for few, and nobody hits his last token: 512-token blocks miss a little."""
    tokens = sum(number for text in prompts for _, number in text)
    shares = []
    for cache in (BlockPrefixCache(512), BlockPrefixCache(16), RadixPrefixCache()):
        room = ReadingRoom(cache, 10 * tokens)
        computed = sum(room.serve(holder, text) for holder, text in enumerate(prompts))
        shares.append(1 - computed / tokens)
        assert cache.counters.hit_rate == pytest.approx(shares[-1])
    assert shares == sorted(shares)
    assert 0.6 < shares[0] < shares[-1] < 0.7


def in_the_engine(kv_blocks: int, prefix: str | None = "blocks") -> Records:
    """Serve the trace as it arrives, every iteration in a tenth of a second, 64 at a time."""
    spec = WorkloadSpec.model_validate({"num_requests": REQUESTS, "prefixes": {"kind": "trace", "path": str(TRACE)}})
    memory = {"kind": "paged", "block_tokens": BLOCK_TOKENS, "watermark": 0.0}
    system = {"engine": "continuous", "max_batch_size": 64, "memory": memory, "prefix": prefix}
    cost = {"kind": "linear", "step_s": 0.1}
    return serve(spec.draw(Streams(1)), kv_blocks * BLOCK_TOKENS, **system, cost=cost)


def test_the_engine_with_an_endless_cache_hits_64_percent() -> None:
    """By tokens, and of full blocks: a prompt's last block is seldom full, and outputs are nobody's prompts here."""
    records = in_the_engine(10 * BLOCKS)
    assert records.requests.finished.all()
    cached = int(records.requests.cached_tokens.sum())
    assert cached % BLOCK_TOKENS == 0
    share = prefix_hit_share(records)
    assert share == cached / records.workload.prompt_tokens.sum()
    assert 0.635 < cached / BLOCK_TOKENS / BLOCKS <= REUSED / BLOCKS < 0.645  # 0.638 of all blocks, full or not


def test_the_engine_hits_more_with_more_memory() -> None:
    shares = [prefix_hit_share(in_the_engine(kv_blocks)) for kv_blocks in (500, 2000, 8000, 32_000, 128_000)]
    assert shares == sorted(set(shares))
    assert prefix_hit_share(in_the_engine(500, prefix=None)) == 0
