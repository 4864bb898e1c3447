"""What several tests share: runs of requests written out one by one, and comparison with the reference engine."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from simserve.metrics import iteration_table
from simserve.records import Records
from simserve.scenario.schema import ServingScenario
from simserve.simulation import simulate
from simserve.workload import Workload
from tests import reference_engine as reference

KV_BYTES_PER_TOKEN = 131_072  # Llama-3-8B

Row = tuple[float, int, int] | tuple[float, int, int, int]
"""A request: arrival, prompt, output, and its own max_tokens where it is more than prompt + output."""


def workload(rows: Sequence[Row]) -> Workload:
    full = [(*row, row[1] + row[2]) if len(row) == 3 else row for row in rows]
    arrival_s, *lengths = (np.array(column) for column in zip(*full, strict=True))
    return Workload(arrival_s.astype(np.float64), *lengths, np.zeros(len(full), dtype=np.int64))


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


def serve_plainly(
    requests: Workload | Sequence[Row], kv_tokens: int | None = None, **system: Any
) -> tuple[list[reference.Job], list[reference.Iteration]]:
    """Run the requests through the same system of the reference engine."""
    requests = requests if isinstance(requests, Workload) else workload(requests)
    jobs = [reference.Job(r.arrival_s, r.prompt_tokens, r.output_tokens, r.max_tokens) for r in requests]
    memory = dict(system["memory"])
    kind = memory.pop("kind")
    if kv_tokens is not None:
        memory["capacity_tokens"] = kv_tokens
    if kind == "unlimited":
        memory["reserve"] = "unlimited"
    rates = dict(system.get("cost", {"kind": "roofline"}))
    cost = reference.roofline if rates.pop("kind") == "roofline" else reference.linear(**rates)
    iterations = reference.simulate(jobs, system["engine"], system["max_batch_size"], reference.Memory(**memory), cost)
    return jobs, iterations


def assert_same_as_reference(
    records: Records, jobs: list[reference.Job], iterations: list[reference.Iteration]
) -> None:
    """Same fate and times of every request, same facts of every iteration; times to 1e-9 of their size."""
    assert set(records.rejections) == {i for i, job in enumerate(jobs) if job.status == "rejected"}
    assert records.requests.rejected.tolist() == [job.status == "rejected" for job in jobs]
    assert records.requests.finished.tolist() == [job.status == "finished" for job in jobs]
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


def assert_identical(one: Records, other: Records) -> None:
    """Every column of requests and iterations the same to the last bit."""
    for name in one.requests.__slots__:
        assert getattr(one.requests, name).tobytes() == getattr(other.requests, name).tobytes(), name
    ours, theirs = iteration_table(one), iteration_table(other)
    assert ours.dtypes.equals(theirs.dtypes)
    for name in ours:
        assert ours[name].to_numpy().tobytes() == theirs[name].to_numpy().tobytes(), name
    assert one.rejections == other.rejections
