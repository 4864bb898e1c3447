"""Block tables with copy-on-write: several outputs of a prompt, beams that fork (Kwon et al., SOSP 2023, section 4.4).

A sequence is a table of blocks. A fork copies the table, not the blocks: both read the same ones. Only the last block
is ever written, and whoever writes to one that others read as well takes a copy first.
"""


class BlockTables:
    """Sequences of tokens in blocks that are counted by how many tables they stand in."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.copies = 0
        """Blocks that were copied because somebody wrote to a shared one."""
        self.references = 0
        """Entries of all tables: the blocks that there would be without sharing."""
        self._free = list(range(num_blocks - 1, -1, -1))
        self._readers = [0] * num_blocks
        self._tables: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks in no table."""
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        """Blocks in one table or more."""
        return len(self._readers) - len(self._free)

    @property
    def saved_blocks(self) -> int:
        """How many more blocks it would take if nothing were shared."""
        return self.references - self.used_blocks

    def table(self, sequence: int) -> tuple[int, ...]:
        """Return the blocks of a sequence, in the order of its tokens."""
        return tuple(self._tables[sequence])

    def tokens(self, sequence: int) -> int:
        """Return how many tokens a sequence has."""
        return self._tokens[sequence]

    def start(self, sequence: int, tokens: int) -> bool:
        """Begin a sequence with a prompt of `tokens` if there is room; otherwise change nothing."""
        self._must_be_new(sequence)
        need = -(-tokens // self.block_tokens)
        if need > len(self._free):
            return False
        self._tables[sequence] = [self._take() for _ in range(need)]
        self._tokens[sequence] = tokens
        return True

    def fork(self, parent: int, child: int) -> None:
        """Begin a sequence that has said what another has said so far. This takes no blocks."""
        self._must_be_new(child)
        table = self._tables[parent]
        for block in table:
            self._readers[block] += 1
        self.references += len(table)
        self._tables[child] = table.copy()
        self._tokens[child] = self._tokens[parent]

    def append(self, sequence: int) -> bool:
        """Write one more token if there is room; otherwise change nothing.

        It takes a block where the last one is full, or is shared and has to be copied.
        """
        table, tokens = self._tables[sequence], self._tokens[sequence]
        full = tokens % self.block_tokens == 0
        if full or self._readers[table[-1]] > 1:
            if not self._free:
                return False
            if not full:
                self._drop(table.pop())
                self.copies += 1
            table.append(self._take())
        self._tokens[sequence] = tokens + 1
        return True

    def free(self, sequence: int) -> None:
        """End a sequence; blocks that nobody else reads become free."""
        del self._tokens[sequence]
        for block in reversed(self._tables.pop(sequence)):
            self._drop(block)

    def _must_be_new(self, sequence: int) -> None:
        if sequence in self._tables:
            raise AssertionError(f"sequence {sequence} has a table of {len(self._tables[sequence])} blocks already")

    def _take(self) -> int:
        block = self._free.pop()
        self._readers[block] = 1
        self.references += 1
        return block

    def _drop(self, block: int) -> None:
        self._readers[block] -= 1
        self.references -= 1
        if not self._readers[block]:
            self._free.append(block)
