"""What several tests share: runs of requests written out one by one, and comparison with the reference engine."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simserve.metrics import iteration_table, itl_max_s, run_metrics, token_gaps
from simserve.records import Records
from simserve.scenario.serving import ServingScenario
from simserve.simulation import simulate
from simserve.workload import Streams, Workload
from tests import reference_engine as reference
from tests import reference_prefix

KV_BYTES_PER_TOKEN = 131_072  # Llama-3-8B

Row = tuple[float, int, int] | tuple[float, int, int, int] | tuple[float, int, int, int, int, float]
"""A request: arrival, prompt, output; its own max_tokens where it is more than prompt + output; priority, deadline."""


def workload(rows: Sequence[Row]) -> Workload:
    usual = (None, 0, np.inf)
    full = [(*row, *usual[len(row) - 3 :]) for row in rows]
    arrival_s, prompt, output, own, priority, deadline_s = zip(*full, strict=True)
    limit = [p + o if m is None else m for p, o, m in zip(prompt, output, own, strict=True)]
    return Workload(
        np.array(arrival_s, dtype=np.float64),
        *(np.array(column, dtype=np.int64) for column in (prompt, output, limit, [0] * len(full))),
        priority=np.array(priority, dtype=np.int64),
        deadline_s=np.array(deadline_s, dtype=np.float64),
    )


def chat(num_requests: int, rate_per_s: float, prompt_tokens: Any, output_tokens: Any, **limits: int) -> dict[str, Any]:
    arrivals = {"kind": "poisson", "rate_per_s": rate_per_s}
    return {
        "num_requests": num_requests,
        "arrivals": arrivals,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        **limits,
    }


def scenario(system: dict[str, Any], kv_tokens: int | None = None, **fields: Any) -> ServingScenario:
    """Return a scenario with one system, `a`, on Llama-3-8B and an H100."""
    hardware = {} if kv_tokens is None else {"kv_bytes": float(kv_tokens * KV_BYTES_PER_TOKEN)}
    fields = {"workload": chat(1, 1.0, 1, 1), "hardware": hardware, **fields}
    return ServingScenario.model_validate({"name": "test", "model": "llama-3-8b", "systems": {"a": system}, **fields})


def serve(
    requests: Workload | Sequence[Row], kv_tokens: int | None = None, fast_forward: bool = True, **system: Any
) -> Records:
    """Run the requests through the system."""
    given = requests if isinstance(requests, Workload) else workload(requests)
    whole = scenario(system, kv_tokens)
    return simulate(given, whole.systems["a"], whole.model, whole.hardware, fast_forward=fast_forward)


class Table:
    """A prefill placement of a user's own: budgets[d] prompt tokens beside d decodes, the last beside more."""

    def __init__(self, budgets: Sequence[int | None], pauses_decodes: bool = False) -> None:
        self.budgets = budgets
        self.pauses_decodes = pauses_decodes

    def prompt_budget(self, decode_sequences: int) -> int | None:
        return self.budgets[min(decode_sequences, len(self.budgets) - 1)]


TABLE = "tests.support:Table"
"""`Table`, as the kind of a placement."""


def _predict(predictor: Any, output_tokens: Sequence[int], seed: int) -> list[float]:
    """Predict lengths as docs/scenarios.md says, plainly."""
    given = {"kind": predictor} if isinstance(predictor, str) else dict(predictor)
    kind = given.pop("kind")
    if kind == "constant":
        return [given["tokens"]] * len(output_tokens)
    if kind == "bucketed":
        edges = sorted(given["edges"])
        return [min((edge for edge in edges if edge >= n), default=2 * edges[-1]) for n in output_tokens]
    if kind == "lognormal_noise":
        errors = Streams(seed).generator("predictions").standard_normal(len(output_tokens))
        return [n * np.exp(given["sigma"] * error) for n, error in zip(output_tokens, errors, strict=True)]
    assert kind == "oracle"
    return list(output_tokens)


def _reference_placement(prefill: Any) -> reference.Placement:
    given = {"kind": prefill} if isinstance(prefill, str) else dict(prefill)
    kind = given.pop("kind")
    if kind == TABLE:
        table = Table(**given)
        return reference.Placement(table.pauses_decodes, table.prompt_budget)
    if kind == "chunked":
        return reference.chunked(given.get("budget_tokens", 512))
    return {"mixed": reference.Placement(), "first": reference.FIRST}[kind]


def _reference_memory(system: dict[str, Any], kv_tokens: int | None) -> reference.Memory:
    given = dict(system["memory"])
    kind = given.pop("kind")
    if kv_tokens is not None:
        given["capacity_tokens"] = kv_tokens
    if kind in ("unlimited", "paged"):
        given["reserve"] = kind
    if prefix := system.get("prefix"):
        return reference_prefix.SharedMemory(**given, found_when_scheduled=prefix == "blocks")
    return reference.Memory(**given)


def _reference_host(preemption: Any) -> reference.Host:
    if preemption in ("recompute", {"kind": "recompute"}):
        return reference.Host()
    token_s = KV_BYTES_PER_TOKEN / preemption["link_bytes_per_s"]
    tokens = int(preemption["host_bytes"] // KV_BYTES_PER_TOKEN)
    return reference.Host(tokens, token_s, preemption.get("overlapped", False))


def _reference_order(order: Any, memory: reference.Memory) -> Any:
    given = {"kind": order} if isinstance(order, str) else dict(order)
    if given["kind"] == "lpm":
        assert isinstance(memory, reference_prefix.SharedMemory)
        return reference_prefix.LongestPrefix(memory, given.get("most_matched", 128), given.get("defer_tokens", 32))
    if given["kind"] == "dfs":
        return reference_prefix.DepthFirst()
    aging = {name: value for name, value in (given.get("aging") or {}).items() if value is not None}
    return reference.Order(given["kind"], given.get("skip_ahead", 0), **aging)


def serve_plainly(
    requests: Workload | Sequence[Row], kv_tokens: int | None = None, seed: int = 1, **system: Any
) -> tuple[list[reference.Job], list[reference.Iteration], list[reference.Preemption]]:
    """Run the requests through the same system of the reference engine; `seed` is of the predictions."""
    given = list(requests if isinstance(requests, Workload) else workload(requests))
    order = system.get("order", "fcfs")
    predictor = "oracle" if isinstance(order, str) else order.get("predictor", "oracle")
    predicted = _predict(predictor, [r.output_tokens for r in given], seed)
    jobs = [
        reference.Job(
            *(r.arrival_s, r.prompt_tokens, r.output_tokens, r.max_tokens, r.priority, r.deadline_s, tokens),
            text=tuple((passage, i) for passage, length in r.text(r.output_tokens) for i in range(length)),
        )
        for r, tokens in zip(given, predicted, strict=True)
    ]
    memory = _reference_memory(system, kv_tokens)
    rates = dict(system.get("cost", {"kind": "roofline"}))
    cost = reference.roofline if rates.pop("kind") == "roofline" else reference.linear(**rates)
    plain = reference.System(
        system["engine"],
        system["max_batch_size"],
        memory,
        cost,
        _reference_order(order, memory),
        _reference_placement(system.get("prefill", "mixed")),
        _reference_host(system.get("preemption", "recompute")),
    )
    return jobs, *reference.simulate(jobs, plain)


def assert_same_as_reference(
    records: Records,
    jobs: list[reference.Job],
    iterations: list[reference.Iteration],
    preemptions: list[reference.Preemption],
) -> None:
    """Same fate and times of every request, same facts of every iteration; times to 1e-9 of their size."""
    assert set(records.rejections) == {i for i, job in enumerate(jobs) if job.status == "rejected"}
    assert records.requests.rejected.tolist() == [job.status == "rejected" for job in jobs]
    assert records.requests.finished.tolist() == [job.status == "finished" for job in jobs]
    assert records.requests.cached_tokens.tolist() == [job.cached_tokens for job in jobs]
    expected = {
        "admitted_s": [np.nan if job.admitted_s is None else job.admitted_s for job in jobs],
        "first_token_s": [job.token_s[0] if job.token_s else np.nan for job in jobs],
        "finish_s": [job.token_s[-1] if job.token_s else np.nan for job in jobs],
    }
    for name, times_s in expected.items():
        np.testing.assert_allclose(getattr(records, name), times_s, rtol=1e-9, atol=0, err_msg=name)
    table = iteration_table(records)
    assert len(table) == len(iterations)
    for name in table.columns.drop("iteration"):
        wanted = [getattr(iteration, name) for iteration in iterations]
        rtol = 1e-9 if name.endswith("_s") else 0
        np.testing.assert_allclose(table[name].to_numpy(), wanted, rtol=rtol, atol=0, err_msg=name)
    ours = records.preemptions
    columns = (ours.request, ours.iteration, ours.swapped, ours.tokens)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == preemptions


def assert_same_gaps_as_reference(records: Records, jobs: list[reference.Job]) -> None:
    """Same times between tokens: pooled over requests, and the longest of each."""
    gaps = [[b - a for a, b in pairwise(job.token_s)] for job in jobs]
    pooled = np.array(sorted(gap for own in gaps for gap in own))
    values, counts = token_gaps(records)
    assert np.all(counts >= 0)
    np.testing.assert_allclose(np.sort(np.repeat(values, counts)), pooled, rtol=1e-9)
    longest = [max(own, default=np.nan) for own in gaps]
    np.testing.assert_allclose(itl_max_s(records), longest, rtol=1e-9)
    if len(pooled):
        found = run_metrics(records, None, 1)
        assert [found[f"itl_{name}_s"] for name in ("mean", "p50", "p90", "p99", "max")] == pytest.approx(
            [pooled.mean(), *np.percentile(pooled, [50, 90, 99]), pooled.max()], rel=1e-9
        )


def assert_identical(one: Records, other: Records, but: tuple[str, ...] = ()) -> None:
    """Every column of requests and iterations the same to the last bit, but for the columns named."""
    for part in ("requests", "preemptions", "readmissions", "resumptions"):
        ours, theirs = getattr(one, part), getattr(other, part)
        for name in set(ours.__slots__) - set(but):
            assert getattr(ours, name).tobytes() == getattr(theirs, name).tobytes(), f"{part}.{name}"
    ours, theirs = iteration_table(one), iteration_table(other)
    assert ours.dtypes.equals(theirs.dtypes)
    for name in ours:
        assert ours[name].to_numpy().tobytes() == theirs[name].to_numpy().tobytes(), name
    assert one.rejections == other.rejections
