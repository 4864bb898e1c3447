"""Block tables: forks, copies on write, and any sequence of operations against texts written out in full."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.memory import BlockTables


def test_a_fork_takes_no_block_and_a_write_copies_the_last() -> None:
    # Figure 8 of the paper: a prompt of 7 tokens in blocks of 4, two samples.
    tables = BlockTables(num_blocks=8, block_tokens=4)
    assert tables.start(0, 7)
    tables.fork(0, 1)
    assert tables.used_blocks == 2
    assert tables.saved_blocks == 2
    assert tables.append(0)  # writes into the shared second block: takes a copy
    assert tables.copies == 1
    assert tables.table(0)[0] == tables.table(1)[0]
    assert tables.table(0)[1] != tables.table(1)[1]
    assert tables.append(1)  # now alone on its second block: writes in place
    assert (tables.copies, tables.used_blocks) == (1, 3)
    assert (tables.tokens(0), tables.tokens(1)) == (8, 8)


def test_full_blocks_are_shared_without_copies() -> None:
    tables = BlockTables(8, 4)
    assert tables.start(0, 8)
    tables.fork(0, 1)
    assert tables.append(0)
    assert tables.append(1)
    assert (tables.copies, tables.used_blocks, tables.saved_blocks) == (0, 4, 2)


def test_a_shared_block_is_free_when_its_last_reader_is() -> None:
    tables = BlockTables(4, 4)
    assert tables.start(0, 8)
    tables.fork(0, 1)
    tables.free(0)
    assert tables.used_blocks == 2
    tables.free(1)
    assert tables.free_blocks == 4


def test_without_room_nothing_changes() -> None:
    tables = BlockTables(2, 4)
    assert not tables.start(0, 9)
    assert tables.free_blocks == 2
    assert tables.start(0, 7)
    tables.fork(0, 1)
    before = (tables.table(0), tables.table(1), tables.tokens(0), tables.references)
    assert not tables.append(0)  # no block for the copy
    assert (tables.table(0), tables.table(1), tables.tokens(0), tables.references) == before
    tables.free(1)
    assert tables.append(0)  # in place
    assert not tables.append(0)  # a third block
    assert tables.tokens(0) == 8


def test_a_sequence_begins_once() -> None:
    tables = BlockTables(4, 4)
    assert tables.start(0, 5)
    with pytest.raises(AssertionError, match="sequence 0 has a table of 2 blocks already"):
        tables.start(0, 1)
    with pytest.raises(AssertionError, match="sequence 0"):
        tables.fork(0, 0)


OPERATION = st.tuples(st.sampled_from(["start", "fork", "append", "append", "append", "free"]), st.integers(0, 10**6))


class Readers:
    """Sequences that write words into the places their tables name, and remember what they wrote."""

    def __init__(self, tables: BlockTables) -> None:
        self.tables = tables
        self.said: dict[int, list[int]] = {}
        self.stored: dict[tuple[int, int], int] = {}

    def place(self, sequence: int, position: int) -> tuple[int, int]:
        size = self.tables.block_tokens
        return self.tables.table(sequence)[position // size], position % size

    def write(self, sequence: int, word: int) -> None:
        self.stored[self.place(sequence, len(self.said[sequence]))] = word
        self.said[sequence].append(word)

    def start(self, sequence: int, tokens: int) -> None:
        fits = -(-tokens // self.tables.block_tokens) <= self.tables.free_blocks
        assert self.tables.start(sequence, tokens) == fits
        if fits:
            self.said[sequence] = []
            for i in range(tokens):
                self.write(sequence, 1000 * sequence + i)

    def fork(self, parent: int, child: int) -> None:
        self.tables.fork(parent, child)
        self.said[child] = self.said[parent].copy()

    def append(self, sequence: int, word: int) -> None:
        before = self.tables.table(sequence)
        if not self.tables.append(sequence):
            assert self.tables.free_blocks == 0
            return
        after = self.tables.table(sequence)
        if len(after) == len(before) and after[-1] != before[-1]:
            for i in range(self.tables.block_tokens):  # the copy
                self.stored[after[-1], i] = self.stored.get((before[-1], i), -1)
        self.write(sequence, word)

    def free(self, sequence: int) -> None:
        self.tables.free(sequence)
        del self.said[sequence]

    def check(self, num_blocks: int) -> None:
        for one, words in self.said.items():
            assert [self.stored[self.place(one, i)] for i in range(len(words))] == words
            assert self.tables.tokens(one) == len(words)
        entries = [block for one in self.said for block in self.tables.table(one)]
        assert self.tables.references == len(entries)
        assert self.tables.used_blocks == len(set(entries)) == num_blocks - self.tables.free_blocks


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 4), st.integers(0, 20), st.lists(OPERATION, max_size=60))
def test_everyone_reads_what_he_wrote(block_tokens: int, num_blocks: int, operations: list[tuple[str, int]]) -> None:
    readers = Readers(BlockTables(num_blocks, block_tokens))
    for number, (operation, choice) in enumerate(operations):
        running = sorted(readers.said)
        if operation == "start":
            readers.start(number, choice % 9 + 1)
        elif running:
            chosen = running[choice % len(running)]
            if operation == "free":
                readers.free(chosen)
            else:
                getattr(readers, operation)(chosen, number)
        readers.check(num_blocks)
    for one in sorted(readers.said):
        readers.free(one)
    readers.check(num_blocks)
    assert readers.tables.free_blocks == num_blocks


def average_saving(prompt: int, output: int, samples: int) -> float:
    """Return which share of the blocks sharing saves, over the life of parallel samples that grow in step."""
    tables = BlockTables(samples * -(-(prompt + output) // 16), 16)
    assert tables.start(0, prompt)
    for sample in range(1, samples):
        tables.fork(0, sample)
    saved = references = 0
    for _ in range(output):
        assert all(tables.append(sample) for sample in range(samples))
        saved += tables.saved_blocks
        references += tables.references
    return saved / references


@pytest.mark.parametrize("samples", [2, 4, 6])
def test_parallel_samples_share_the_full_blocks_of_the_prompt(samples: int) -> None:
    # 40 tokens are 2 full blocks and 8 tokens, then 40 more: 3 blocks each up to 48 (8 steps), 4 up to 64 (16), 5 (16).
    # All but one sample save the 2 full blocks; the half-filled one is copied by all but the last who writes.
    saved = 40 * 2 * (samples - 1)
    assert average_saving(40, 40, samples) == saved / (samples * (8 * 3 + 16 * 4 + 16 * 5))
    assert average_saving(15, 40, samples) == 0  # no full block to share
