"""Outputs of one prompt in blocks: by hand, and against counting the different beginnings of all texts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from simserve.experiment.block_sharing import Usage, draw_parents, generate, measures, run
from simserve.experiment.task import Task
from simserve.scenario.block_sharing import BlockSharingScenario


def use(prompt: int, parents: list[list[int]], block: int = 4) -> Usage:
    usage = Usage()
    generate(usage, prompt, np.array(parents), len(parents[0]), block)
    return usage


def test_three_outputs_by_hand() -> None:
    # Blocks of 4. A prompt of 6 is one full block and one of 2 tokens. In the first step two of three copy the second,
    # and the third writes to it: 1 + 3 in use, where there would be 3 x 2. In the third step each begins another.
    own = [[0, 1, 2]] * 3
    usage = use(6, own)
    assert (usage.steps, usage.copies) == (3, 2)
    assert usage.used == 4 + 4 + 7
    assert usage.without_sharing == 6 + 6 + 9
    found = measures(usage, 1)
    assert found["saved_share"] == pytest.approx(1 - 15 / 21)
    assert found["blocks_per_request"] == 5
    assert found["blocks_without_sharing"] == 7
    assert found["copies_per_request"] == 2


def test_a_full_last_block_is_not_copied() -> None:
    assert use(8, [[0, 1]] * 3).copies == 0


def test_beams_that_go_on_from_one_share_what_it_said() -> None:
    # A prompt of 4 in one block. Two write 3 tokens each into blocks of their own; then both go on from the second, and
    # one of them copies its block to write its fourth token: 3 in use all the time, and the first's block is free again.
    usage = use(4, [[0, 1]] * 3 + [[1, 1]])
    assert usage.copies == 1
    assert usage.used == 3 * 4
    assert usage.without_sharing == 4 * 4
    # Had the block been full, none would be copied, and both would begin another: 1 + 1 + 2 in use of 6.
    usage = use(4, [[0, 1]] * 4 + [[1, 1]])
    assert usage.copies == 0
    assert usage.used == 3 * 4 + 4


@settings(deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(1, 5), st.integers(1, 12))
def test_blocks_in_use_are_the_different_beginnings(data: st.DataObject, samples: int, block: int, prompt: int) -> None:
    """A block is one for all who say the same up to its end, and have since they said it together."""
    row = st.lists(st.integers(0, samples - 1), min_size=samples, max_size=samples)
    steps = data.draw(st.lists(row, min_size=1, max_size=12))
    texts = [[("prompt", i, 0) for i in range(prompt)]] * samples
    used = without = 0
    for number, parents in enumerate(steps):
        # A token is said in a step by one sample; what others say in the same step is another.
        texts = [[*texts[parent], ("output", number, sample)] for sample, parent in enumerate(parents)]
        length = len(texts[0])
        ends = [*range(block, length, block), length]
        used += len({tuple(text[:end]) for text in texts for end in ends})
        without += samples * len(ends)
    usage = use(prompt, steps, block)
    assert (usage.used, usage.without_sharing, usage.steps) == (used, without, len(steps))


def test_parents() -> None:
    rng = np.random.default_rng(1)
    assert draw_parents(3, 2, 0.0, rng).tolist() == [[0, 1]] * 3
    drawn = draw_parents(20_000, 4, 0.3, rng)
    # Who is resampled goes on from himself one time in four.
    away = np.mean(drawn != np.arange(4))
    assert away == pytest.approx(0.3 * 3 / 4, abs=4 * np.sqrt(0.225 * 0.775 / 80_000))
    assert np.bincount(drawn.ravel()).tolist() == pytest.approx([20_000] * 4, rel=0.05)


def study(**changes: object) -> BlockSharingScenario:
    fields = {"name": "test", "num_requests": 20, "prompt_tokens": 20, "output_tokens": 9, "systems": {"a": {}}}
    return BlockSharingScenario.model_validate(fields | changes)


def test_a_run() -> None:
    # 20 tokens are a full block and 4 in another, which two outputs have until 28 are written: 3 of 4 blocks are in use.
    found = run(study(), Task("a", {}, 0)).measures
    assert found == {
        "saved_share": 0.25,
        "blocks_per_request": 3.0,
        "blocks_without_sharing": 4.0,
        "copies_per_request": 1.0,
    }
    assert run(study(samples=1), Task("a", {}, 0)).measures["saved_share"] == 0


def test_outputs_of_one_token_have_nothing_to_share() -> None:
    found = run(study(output_tokens=1), Task("a", {}, 0)).measures
    assert np.isnan(found["saved_share"])
    assert found["copies_per_request"] == 0


def test_systems_see_the_same_requests() -> None:
    lengths = {"kind": "geometric", "mean": 30}
    systems = {"a": {}, "b": {"resampled_share": 0.5}}
    both = study(output_tokens=lengths, prompt_tokens=lengths, systems=systems, samples=4)
    a, b = (run(both, Task(name, {}, 1)).measures for name in "ab")
    assert a["blocks_without_sharing"] == b["blocks_without_sharing"]
    assert a["saved_share"] < b["saved_share"]


def test_shares_lie_between_none_and_all() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        study(systems={"a": {"resampled_share": 1.1}})
