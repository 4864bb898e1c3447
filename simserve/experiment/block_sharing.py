"""One point of the kind `block_sharing`: requests one after the other, all samples of each side by side."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simserve.experiment.task import RunResult, Task
from simserve.memory import BlockTables
from simserve.scenario.block_sharing import BlockSharingScenario
from simserve.workload import Streams


@dataclass(slots=True)
class Usage:
    """Blocks in use, added up over steps."""

    steps: int = 0
    used: int = 0
    without_sharing: int = 0
    """Those there would be if every sample had its own."""
    copies: int = 0


def run(scenario: BlockSharingScenario, task: Task) -> RunResult:
    """Draw the requests, and generate all samples of each."""
    streams, size = Streams(scenario.seed, task.replication), scenario.num_requests
    prompts = scenario.prompt_tokens.sample(size, streams.generator("prompt lengths")).tolist()
    outputs = scenario.output_tokens.sample(size, streams.generator("output lengths")).tolist()
    share, rng = scenario.systems[task.system].resampled_share, streams.generator("resampling")
    usage = Usage()
    for prompt, output in zip(prompts, outputs, strict=True):
        parents = draw_parents(output - 1, scenario.samples, share, rng)
        generate(usage, prompt, parents, scenario.samples, scenario.block_tokens)
    return RunResult(task, measures(usage, size))


def measures(usage: Usage, num_requests: int) -> dict[str, float]:
    """Return what is measured: means over all steps, each request as often as it has steps."""
    steps = usage.steps or np.nan  # outputs of one token take none
    return {
        "saved_share": 1 - usage.used / (usage.without_sharing or np.nan),
        "blocks_per_request": usage.used / steps,
        "blocks_without_sharing": usage.without_sharing / steps,
        "copies_per_request": usage.copies / num_requests,
    }


def draw_parents(steps: int, samples: int, resampled_share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return whose text each sample goes on from, a row for each step."""
    themselves = np.broadcast_to(np.arange(samples), (steps, samples))
    if not resampled_share:
        return themselves
    others = rng.integers(samples, size=(steps, samples))
    return np.where(rng.random((steps, samples)) < resampled_share, others, themselves)


def generate(usage: Usage, prompt_tokens: int, parents: NDArray[np.int64], samples: int, block_tokens: int) -> None:
    """Let all samples of a request write a token in each step, and count its blocks after it.

    A request that asks for n tokens writes the KV of n - 1: that of the last is never needed.
    """
    longest = -(-(prompt_tokens + len(parents)) // block_tokens)
    tables = BlockTables(samples * longest, block_tokens)
    tables.start(0, prompt_tokens)
    for sample in range(1, samples):
        tables.fork(0, sample)
    line = list(range(samples))
    """The sequence of each sample."""
    for step in parents.tolist():
        line = _go_on(tables, line, step)
        if not all(tables.append(sequence) for sequence in line):
            raise AssertionError(f"{samples} samples of {longest} blocks do not fit into {samples * longest}")
        usage.steps += 1
        usage.used += tables.used_blocks
        usage.without_sharing += tables.references
    usage.copies += tables.copies


def _go_on(tables: BlockTables, line: list[int], parents: list[int]) -> list[int]:
    """Let each sample go on from its parent's text; a text that nobody goes on from is dropped."""
    going_on: list[int] = []
    number = max(line) + 1
    heirs: set[int] = set()
    for parent in parents:
        if parent in heirs:  # another goes on from it already
            tables.fork(line[parent], number)
            going_on.append(number)
            number += 1
        else:
            heirs.add(parent)
            going_on.append(line[parent])
    for sample, sequence in enumerate(line):
        if sample not in heirs:
            tables.free(sequence)
    return going_on
