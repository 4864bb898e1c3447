"""Generation under three schedules: the charts of the lecture cell by cell, and the same tokens whatever the schedule."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from simserve.batch import Batch
from simserve.numerics import (
    MINI,
    Generated,
    Greedy,
    Llama,
    Prompt,
    Sampled,
    Schedule,
    chart,
    chart_rows,
    generate_continuous,
    generate_sequential,
    generate_static,
    random_prompts,
)
from simserve.request import Request
from tests.test_numerics_forward import SMALL, model, plain_logits

Shape = tuple[float, int, int]
"""Arrival, prompt tokens, output tokens."""

TINY = SMALL.model_copy(update={"layers": 1})
LECTURE = [(0, 5, 6), (0, 8, 3), (1, 3, 9), (2, 12, 2), (3, 4, 5), (6, 7, 3)]


def random_shapes(seed: int) -> list[Shape]:
    """Return up to six requests that arrive within nine seconds."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    arrivals, prompts, outputs = rng.integers(0, 10, n), rng.integers(1, 9, n), rng.integers(1, 7, n)
    return list(zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), strict=True))


def batch_sizes(schedule: Schedule) -> list[int]:
    return [sum(cell.phase != "-" for cell in iteration.cells) for iteration in schedule.iterations]


# The charts of the lecture, section 4.1.


def test_the_continuous_chart() -> None:
    schedule = generate_continuous(model(MINI), random_prompts(MINI, LECTURE, 0), 3).schedule
    assert len(schedule.iterations) == 10
    assert chart(schedule).splitlines() == [
        "    0123456789",
        "r0  PDDDDD",
        "r1  PDD",
        "r2   PDDDDDDDD",
        "r3    ·PD",
        "r4     ··PDDDD",
        "r5        PDD",
    ]


def test_the_static_chart() -> None:
    schedule = generate_static(model(MINI), random_prompts(MINI, LECTURE, 0), 3).schedule
    assert len(schedule.iterations) == 18
    assert chart(schedule).splitlines() == [
        "    012345678901234567",
        "r0  PDDDDD",
        "r1  PDD---",
        "r2   ·····PDDDDDDDD",
        "r3    ····PD-------",
        "r4     ···PDDDD----",
        "r5        ·········PDD",
    ]


def test_prompts_in_chunks() -> None:
    # Four tokens an iteration. r0 takes 4 and then 1 of its 5; r1's 8 go 3 + 3 + 2 beside a decode of r0; and so on.
    schedule = generate_continuous(model(MINI), random_prompts(MINI, LECTURE[:3], 0), 3, budget_tokens=4).schedule
    assert chart_rows(schedule) == {0: "PPDDDDD", 1: "·PPPDD", 2: " ··PPDDDDDDDD"}
    pieces = [
        [(cell.request_id, cell.new_tokens, cell.past_tokens, cell.emits) for cell in i.cells]
        for i in schedule.iterations
    ]
    assert pieces[:5] == [
        [(0, 4, 0, False)],
        [(0, 1, 4, True), (1, 3, 0, False)],
        [(0, 1, 5, True), (1, 3, 3, False)],
        [(0, 1, 6, True), (1, 2, 6, True), (2, 1, 0, False)],
        [(0, 1, 7, True), (1, 1, 8, True), (2, 2, 1, True)],
    ]


def test_a_budget_of_the_seats_leaves_every_prompt_one_token() -> None:
    # Three tokens an iteration on three seats: while r0 and r1 decode, r2 goes on by one.
    shapes = [(0, 1, 4), (0, 1, 4), (0, 4, 1)]
    schedule = generate_continuous(model(TINY), random_prompts(TINY, shapes, 0), 3, budget_tokens=3).schedule
    assert chart_rows(schedule) == {0: "PDDD", 1: "PDDD", 2: "PPPP"}


def test_time_jumps_to_the_next_arrival() -> None:
    prompts = random_prompts(TINY, [(2, 3, 2), (7.5, 3, 1)], 0)
    for generate in (
        generate_sequential,
        lambda *given: generate_static(*given, 4),
        lambda *given: generate_continuous(*given, 4),
    ):
        schedule = generate(model(TINY), prompts).schedule
        assert [iteration.number for iteration in schedule.iterations] == [2, 3, 8]
        assert chart(schedule).splitlines() == ["    012345678", "r0    PD", "r1          P"]


def test_nothing_to_do() -> None:
    assert generate_continuous(model(TINY), [], 2).tokens == {}
    assert chart(generate_sequential(model(TINY), []).schedule) == "  "


# The tokens.


def test_greedy_tokens_are_those_of_the_plain_llama() -> None:
    llama = model()
    for request, tokens in (prompts := random_prompts(SMALL, [(0, 4, 5), (1, 7, 6)], 3)):
        known = list(tokens)
        for _ in range(request.output_tokens):
            known.append(int(plain_logits(llama, known)[-1].argmax()))
        assert generate_continuous(llama, prompts, 2).tokens[request.id] == tuple(known[request.prompt_tokens :])


@pytest.mark.parametrize(
    "seeds", [range(first, first + 50) for first in range(0, 200, 50)], ids=lambda seeds: f"from {seeds[0]}"
)
def test_schedules_change_when_tokens_are_computed_and_not_which(seeds: Sequence[int]) -> None:
    """200 random sets of requests: whole prompts and chunks, contiguous and paged, greedy and drawn."""
    llama = model(TINY)
    for seed in seeds:
        rng = np.random.default_rng((seed, 1))
        prompts = random_prompts(TINY, random_shapes(seed), seed)
        sampler = Sampled(seed, temperature=0.7) if seed % 2 else Greedy()
        seats = int(rng.integers(1, 5))
        budget = seats + int(rng.integers(0, 5))
        alone = generate_sequential(llama, prompts, sampler=sampler)
        assert [len(output) for output in alone.tokens.values()] == [
            request.output_tokens for request in alone.schedule.requests
        ]
        for other in (
            generate_static(llama, prompts, seats, sampler=sampler, block_tokens=3),
            generate_continuous(llama, prompts, seats, sampler=sampler),
            generate_continuous(llama, prompts, seats, sampler=sampler, budget_tokens=budget, block_tokens=2),
        ):
            assert other.tokens == alone.tokens
            assert max(batch_sizes(other.schedule)) <= seats


def test_tokens_differ_between_requests() -> None:
    """Or the tests above would show little."""
    tokens = generate_continuous(model(MINI), random_prompts(MINI, LECTURE, 0), 3).tokens
    assert len({output[0] for output in tokens.values()}) == len(tokens)


def test_drawn_tokens_depend_on_seed_and_temperature() -> None:
    llama, prompts = model(MINI), random_prompts(MINI, LECTURE, 0)
    greedy = generate_continuous(llama, prompts, 3).tokens
    drawn = [generate_continuous(llama, prompts, 3, sampler=Sampled(seed)).tokens for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert generate_continuous(llama, prompts, 3, sampler=Sampled(1, temperature=1e-4)).tokens == greedy


def test_drawn_tokens_follow_the_logits() -> None:
    # Softmax of (0, ln 3) is 1/4 and 3/4. Of 4000 draws, 1000 +- 4 standard deviations of 27 are the first.
    logits = np.array([0.0, np.log(3)])
    drawn = [Sampled(5).pick(logits, request_id, index) for request_id in range(40) for index in range(100)]
    assert drawn.count(0) == pytest.approx(1000, abs=4 * 27.4)


def test_a_prompt_depends_on_no_other_request() -> None:
    few, many = random_prompts(MINI, LECTURE[:2], 4), random_prompts(MINI, LECTURE, 4)
    assert many[:2] == few
    assert random_prompts(MINI, LECTURE, 5)[0].tokens != few[0].tokens


def test_nothing_depends_on_the_hash_seed() -> None:
    program = (
        "from simserve.numerics import *; p = random_prompts(MINI, [(0, 5, 6), (1, 3, 4)], 2);"
        "print(generate_continuous(Llama.random(MINI), p, 2, sampler=Sampled(1), block_tokens=2))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert b"tokens={0: (" in runs[0]


# The ledger.


def as_batch(generated: Generated, number: int) -> Batch:
    """Return an iteration as the simulator describes it."""
    requests = {request.id: request for request in generated.schedule.requests}
    cells = generated.schedule.iterations[number].cells
    pieces = [(requests[cell.request_id], cell.new_tokens, cell.past_tokens) for cell in cells if cell.phase == "P"]
    emitting = sum(cell.emits for cell in cells if cell.phase == "P")
    contexts = [cell.past_tokens for cell in cells if cell.phase == "D"]
    return Batch(pieces, emitting, len(contexts), sum(contexts))


@pytest.mark.parametrize("seed", range(10))
def test_every_iteration_does_the_work_of_its_batch(seed: int) -> None:
    prompts = random_prompts(SMALL, random_shapes(seed), seed)
    for generated in (
        generate_static(model(), prompts, 3),
        generate_continuous(model(), prompts, 3, block_tokens=4),
        generate_continuous(model(), prompts, 3, budget_tokens=3),
    ):
        works = [iteration.work for iteration in generated.schedule.iterations]
        assert works == [as_batch(generated, number).work() for number in range(len(works))]
        assert generated.ledger.work(SMALL.layers) == tuple(map(sum, zip(*works, strict=True)))


def test_batching_saves_weight_reads_and_nothing_else() -> None:
    llama, prompts = model(MINI), random_prompts(MINI, LECTURE, 0)
    alone, together = (
        generate(llama, prompts).ledger for generate in (generate_sequential, lambda *g: generate_continuous(*g, 3))
    )
    assert (alone.flop, alone.kv_bytes, alone.embedding_bytes) == (
        together.flop,
        together.kv_bytes,
        together.embedding_bytes,
    )
    assert alone.linear_bytes * 10 == together.linear_bytes * 28  # iterations


# Errors.


def prompt(**fields: object) -> Prompt:
    tokens = fields.pop("tokens", (1, 2, 3))
    return Prompt(Request(0, 0.0, 3, 2, 5)._replace(**fields), tokens)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([prompt(), prompt()], r"request ids must differ: \[0, 0\]"),
        ([prompt(tokens=())], "request 0 has no tokens"),
        ([prompt(tokens=(1, 2))], "request 0 has a prompt of 2 tokens, not 3"),
        ([prompt(tokens=(1, 2, 40))], "request 0 has token 40; the vocabulary has 0 to 39"),
        ([prompt(output_tokens=0)], "request 0 wants 0 output tokens; at least 1 comes out"),
        ([prompt(output_tokens=62)], "request 0 would have 65 tokens; the model has 64 positions"),
        ([prompt(arrival_s=float("nan"))], "request 0 arrives at nan s; time starts at 0"),
        ([prompt(arrival_s=-1.0)], "request 0 arrives at -1.0 s; time starts at 0"),
    ],
)
def test_impossible_prompts(prompts: list[Prompt], message: str) -> None:
    for generate in (
        generate_sequential,
        lambda *given: generate_static(*given, 2),
        lambda *given: generate_continuous(*given, 2),
    ):
        with pytest.raises(ValueError, match=message):
            generate(model(TINY), prompts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llama: generate_continuous(llama, [prompt()], 0), "max_batch_size must be at least 1, not 0"),
        (lambda llama: generate_static(llama, [prompt()], -1), "max_batch_size must be at least 1, not -1"),
        (
            lambda llama: generate_continuous(llama, [prompt()], 3, budget_tokens=2),
            r"budget_tokens \(2\) is below max_batch_size \(3\): decodes alone could exceed it",
        ),
        (lambda llama: generate_sequential(llama, [prompt()], block_tokens=0), "block_tokens must be at least 1"),
        (lambda llama: Sampled(1, temperature=0.0), r"temperature must be above 0 and finite, not 0.0; Greedy\(\) is"),
    ],
)
def test_impossible_settings(call: Callable[[Llama], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(model(TINY))
