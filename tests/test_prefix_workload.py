"""Workloads whose prompts share prefixes: what they say agrees with how long they are, kind by kind."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from simserve.content import common_tokens, num_tokens, own_output, own_prompt
from simserve.workload import Streams, Workload, WorkloadSpec
from tests.support import chat

UNIFORM = {"kind": "uniform", "low": 1, "high": 50}
KINDS: dict[str, dict[str, Any]] = {
    "shared": {"groups": 5, "prefix_tokens": UNIFORM},
    "sessions": {"turns": UNIFORM, "think_s": {"kind": "exponential", "mean_s": 3}},
    "opened": {"kind": "sessions", "turns": UNIFORM, "think_s": 2, "opening": {"groups": 3, "prefix_tokens": UNIFORM}},
    "tree": {"depth": 3, "fan_out": 3, "edge_tokens": UNIFORM},
}


def draw(prefixes: dict[str, Any] | None, replication: int = 0, **fields: Any) -> Workload:
    given = chat(200, 4.0, UNIFORM, UNIFORM) | fields
    return WorkloadSpec.model_validate(given | {"prefixes": prefixes}).draw(Streams(1, replication))


def kind(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": name} | KINDS[name] | fields


@pytest.mark.parametrize("name", KINDS)
def test_texts_are_as_long_as_prompts_and_end_with_something_new(name: str) -> None:
    workload, plain = draw(kind(name)), draw(None)
    assert workload.content is not None
    assert [num_tokens(text) for text in workload.content] == workload.prompt_tokens.tolist()
    new = [text[-1] for text in workload.content]
    assert [number for number, _ in new] == [own_prompt(i) for i in range(200)]
    # What is new, and what is answered, is drawn as without prefixes: common random numbers.
    assert [tokens for _, tokens in new] == plain.prompt_tokens.tolist()
    assert np.array_equal(workload.output_tokens, plain.output_tokens)
    assert np.array_equal(workload.max_tokens, workload.prompt_tokens + workload.output_tokens)
    assert np.all(np.diff(workload.arrival_s) >= 0)
    assert all(request.text() == text for request, text in zip(workload, workload.content, strict=True))


def test_without_prefixes_nothing_is_shared() -> None:
    workload = draw(None)
    assert workload.content is None
    texts = [request.text() for request in workload]
    assert [num_tokens(text) for text in texts] == workload.prompt_tokens.tolist()
    assert len({text[0][0] for text in texts}) == len(texts)


@pytest.mark.parametrize("name", KINDS)
def test_fewer_requests_are_the_first_of_more(name: str) -> None:
    few, many = draw(kind(name), num_requests=60), draw(kind(name), num_requests=300)
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "client"):
        assert np.array_equal(getattr(few, column), getattr(many, column)[:60]), column
    assert few.content is not None
    assert many.content is not None
    assert few.content == many.content[:60]


@pytest.mark.parametrize("name", KINDS)
def test_limits(name: str) -> None:
    workload = draw(kind(name), max_total_tokens=70, max_output_tokens=30)
    free = draw(kind(name)).output_tokens
    room = 70 - workload.prompt_tokens
    assert np.array_equal(workload.output_tokens, np.clip(room, 1, np.minimum(free, 30)))
    assert workload.content is not None
    assert [num_tokens(text) for text in workload.content] == workload.prompt_tokens.tolist()


# Shared


def test_popularity_of_groups() -> None:
    """Zipf with exponent 1 over 4 groups: 12, 6, 4 and 3 of 25; a chi-squared test over 10,000 requests."""
    workload = draw(kind("shared", groups=4), num_requests=10_000)
    assert workload.content is not None
    group = Counter(text[0][0] for text in workload.content)
    expected = np.array([12, 6, 4, 3]) / 25 * 10_000
    assert stats.chisquare([group[i] for i in range(4)], expected).pvalue > 0.001
    even = draw(kind("shared", groups=4, zipf=0), num_requests=10_000)
    assert even.content is not None
    counts = Counter(text[0][0] for text in even.content)
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


def test_a_group_has_one_system_prompt() -> None:
    workload = draw(kind("shared", groups=5, prefix_tokens={"kind": "listed", "values": [10, 20, 30, 40, 50]}))
    assert workload.content is not None
    assert {text[0] for text in workload.content} == {(i, 10 * i + 10) for i in range(5)}


# Sessions


def test_a_turn_says_all_that_was_said_before() -> None:
    workload = draw(kind("sessions", turns=3), num_requests=90)
    assert workload.content is not None
    turns = Counter()
    for i, text in enumerate(workload.content):
        before, outputs = text[:-1:2], text[1:-1:2]
        turns[len(before)] += 1
        earlier = [-number // 2 - 1 for number, _ in before]
        assert earlier == sorted(earlier)
        assert all(j < i for j in earlier)
        assert before == tuple(workload.content[j][-1] for j in earlier)
        assert outputs == tuple((own_output(j), int(workload.output_tokens[j])) for j in earlier)
    assert turns[0] >= turns[1] >= turns[2] > 0
    assert set(turns) == {0, 1, 2}


def test_turns_arrive_a_think_time_apart() -> None:
    # First turns at 0, 10, 20, ...; three turns each, 4 s apart: 0 4 8, 10 14 18, ...
    at_s = [10.0 * i for i in range(9)]
    workload = draw(kind("sessions", turns=3, think_s=4), num_requests=9, arrivals={"kind": "listed", "at_s": at_s})
    assert workload.arrival_s.tolist() == [0, 4, 8, 10, 14, 18, 20, 24, 28]
    assert workload.content is not None
    assert [len(text) for text in workload.content] == [1, 3, 5] * 3


def test_turns_at_the_same_instant_keep_their_order() -> None:
    at_s = [float(i // 3) for i in range(60)]  # three conversations at a time, and no thinking
    workload = draw(kind("sessions", turns=7, think_s=0), num_requests=60, arrivals={"kind": "listed", "at_s": at_s})
    assert workload.content is not None
    assert [len(text) for text in workload.content] == [1, 3, 5, 7, 9, 11, 13] * 8 + [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("think", "mean_s", "deviation_s"),
    [
        ({"kind": "exponential", "mean_s": 3.0}, 3.0, 3.0),
        ({"kind": "lognormal", "mean_s": 3.0, "sigma": 0.5}, 3.0, 3.0 * np.sqrt(np.exp(0.25) - 1)),
        (3.0, 3.0, 0.0),
    ],
)
def test_moments_of_think_times(think: Any, mean_s: float, deviation_s: float) -> None:
    times_s = WorkloadSpec.model_validate(
        chat(1, 1.0, 1, 1) | {"prefixes": kind("sessions", think_s=think)}
    ).prefixes.think_s.sample_s(100_000, np.random.default_rng(1))
    assert abs(times_s.mean() - mean_s) <= 4 * deviation_s / np.sqrt(100_000)
    assert times_s.std() == pytest.approx(deviation_s, rel=0.03)


def test_a_conversation_has_one_client_and_one_opening() -> None:
    clients = {"a": {"share": 1}, "b": {"share": 1, "prompt_tokens": 99}}
    workload = draw(kind("opened"), clients=clients, num_requests=300)
    assert workload.content is not None
    client_of: dict[int, int] = {}
    for i, text in enumerate(workload.content):
        assert text[0][0] in range(3)  # a system prompt
        first_turn = text[1][0]
        assert client_of.setdefault(first_turn, int(workload.client[i])) == workload.client[i]
        assert text[-1][1] == 99 or workload.client[i] == 0
    assert set(client_of.values()) == {0, 1}
    assert len({text[0] for text in workload.content}) == 3


# Tree


def test_each_leaf_comes_once_in_each_round() -> None:
    workload = draw(kind("tree", depth=2, fan_out=3), num_requests=20)
    assert workload.content is not None
    paths = [tuple(number for number, _ in text[:-1]) for text in workload.content]
    leaves = [(i, 3 + 3 * i + j) for i in range(3) for j in range(3)]
    assert sorted(paths[:9]) == sorted(paths[9:18]) == leaves
    assert paths[:9] != leaves
    assert paths[:9] != paths[9:18]
    lengths = {segment for text in workload.content for segment in text[:-1]}
    assert len(lengths) == 12  # every edge has one length
    one, other = (workload.content[paths.index(leaf)] for leaf in ((0, 3), (0, 4)))
    assert common_tokens(one, other) == one[0][1]


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        (kind("tree", depth=7, fan_out=10), "10,000,000 leaves"),
        (kind("tree", depth=2, fan_out=2, edge_tokens={"kind": "listed", "values": [5] * 5}), "too few for 6 edges"),
        (kind("shared", prefix_tokens={"kind": "listed", "values": [5] * 4}), "too few for 5 groups"),
        (kind("shared", zipf=-1), "zipf"),
        (kind("sessions", think_s=-1), "think_s"),
        (kind("sessions", think_s=True), "think_s"),
        ({"kind": "trace", "path": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"kind": "none"}, "none"),
    ],
)
def test_impossible_prefixes(prefixes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        draw(prefixes)


@pytest.mark.parametrize("field", ["arrivals", "prompt_tokens", "output_tokens"])
def test_without_a_trace_all_is_drawn(field: str) -> None:
    with pytest.raises(ValidationError, match=f"{field} must be given"):
        draw(kind("tree"), **{field: None})


# Trace

ROWS = """\
{"timestamp": 1000, "input_length": 10, "output_length": 3, "hash_ids": [0, 1, 2]}
{"timestamp": 1500, "input_length": 8, "output_length": 1, "hash_ids": [0, 1]}

{"timestamp": 1500, "input_length": 9, "output_length": 7, "hash_ids": [0, 3, 4]}
"""
CSV = """\
timestamp,input_length,output_length,hash_ids
1000,10,3,"[0, 1, 2]"
1500,8,1,"[0, 1]"
1500,9,7,"[0, 3, 4]"
"""
OF_TRACE = {"prompt_tokens": None, "output_tokens": None, "arrivals": None, "num_requests": 3}


def trace(folder: Path, text: str = ROWS, name: str = "trace.jsonl") -> dict[str, Any]:
    (folder / name).write_text(text)
    return {"kind": "trace", "path": str(folder / name), "block_tokens": 4}


@pytest.mark.parametrize(("text", "name"), [(ROWS, "trace.jsonl"), (CSV, "trace.csv")])
def test_a_trace_as_it_stands(tmp_path: Path, text: str, name: str) -> None:
    workload = draw(trace(tmp_path, text, name), **OF_TRACE)
    assert workload.arrival_s.tolist() == [0.0, 0.5, 0.5]  # from the first request on
    assert workload.prompt_tokens.tolist() == [10, 8, 9]
    assert workload.output_tokens.tolist() == [3, 1, 7]
    assert workload.content == (((0, 4), (1, 4), (2, 2)), ((0, 4), (1, 4)), ((0, 4), (3, 4), (4, 1)))
    assert [request.content for request in workload] == list(workload.content)


def test_a_trace_at_another_rate_and_with_other_outputs(tmp_path: Path) -> None:
    drawn = OF_TRACE | {"arrivals": {"kind": "listed", "at_s": [1, 2, 3]}, "output_tokens": 5, "max_total_tokens": 13}
    workload = draw(trace(tmp_path), **drawn)
    assert workload.arrival_s.tolist() == [1, 2, 3]
    assert workload.output_tokens.tolist() == [3, 5, 4]


def test_a_trace_is_read_from_the_folder_of_the_scenario(tmp_path: Path) -> None:
    prefixes = trace(tmp_path) | {"path": "trace.jsonl"}
    spec = WorkloadSpec.model_validate(OF_TRACE | {"prefixes": prefixes}, context={"folder": str(tmp_path)})
    assert len(spec.draw(Streams(1))) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no requests"),
        ("{", "cannot read"),
        ('{"timestamp": 0, "input_length": 5}', "request 0 has no output_length, hash_ids"),
        (ROWS.replace("[0, 1]", "[0]"), "request 1 has 1 hash_ids, but 8 tokens in blocks of 4"),
        (ROWS.replace("[0, 1]", "[0, -1]"), "request 1: hash_ids must be whole numbers of at least 0"),
        (ROWS.replace(": 1000", ": 1600"), "in order of timestamp"),
        (ROWS.replace('"output_length": 7', '"output_length": 0'), "request 2: output_length must be .* got 0"),
        (ROWS.replace('"input_length": 8', '"input_length": 8.5'), "request 1: input_length must be .* got 8.5"),
    ],
)
def test_unusable_traces(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        draw(trace(tmp_path, text), **OF_TRACE)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_tokens": 5}, "leave prompt_tokens out"),
        ({"clients": {"a": {"prompt_tokens": 5}}}, "leave prompt_tokens out"),
        ({"num_requests": 4}, "the trace has 3 requests, too few for num_requests 4"),
    ],
)
def test_what_does_not_go_with_a_trace(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        draw(trace(tmp_path), **(OF_TRACE | fields))
