"""Speed, as ratios to bare SimPy timeouts measured in the same process: `make bench`.

A ratio travels between machines better than a time does. Each side is measured in turn, in several rounds, and the median
of the rounds counts, since other work on the machine comes and goes.
"""

import gc
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import simpy
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from simserve import report, simulation
from simserve.engine import Clock
from simserve.experiment import run_study
from simserve.experiment.executors import InProcess
from simserve.scenario import load
from simserve.scenario.serving import ServingScenario
from tests import bench_numerics

ROUNDS = 5
SATURATION = load(Path("scenarios/saturation.yaml"))


def chat(num_requests: int, rate_per_s: float, system: dict[str, Any], **workload: Any) -> ServingScenario:
    """Return the chat workload of the saturation scenario at a size and a rate, through one system."""
    raw = SATURATION.model_dump(exclude_unset=True, exclude={"sweep", "claims", "replications"})
    raw["workload"] |= {"num_requests": num_requests, "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s}}
    raw["workload"] |= workload
    raw["systems"] = {"system": system}
    return ServingScenario.model_validate(raw)


def orca(**memory: Any) -> dict[str, Any]:
    return {"engine": "continuous", "max_batch_size": 256, "memory": {"kind": "reservation", **memory}}


def paged(**system: Any) -> dict[str, Any]:
    return {"engine": "continuous", "max_batch_size": 256, "memory": {"kind": "paged", "watermark": 0.0}, **system}


def with_kv_tokens(scenario: ServingScenario, tokens: int) -> ServingScenario:
    """Return the scenario with that much KV memory."""
    hardware = scenario.hardware.model_copy(update={"kv_bytes": float(tokens * scenario.model.kv_bytes_per_token)})
    return scenario.model_copy(update={"hardware": hardware})


def share_of_speed(one: ServingScenario, other: ServingScenario) -> str:
    """Return the iterations per second of the engine loop in one scenario, as a share of those in the other."""
    return f"{1 / ratio(lambda: loop_s(one), lambda: loop_s(other)):.2f}"


def bare_timeouts_s(events: int = 100_000) -> float:
    """Return the seconds that SimPy takes for a timeout when one process does nothing but wait."""

    def wait(env: simpy.Environment) -> Generator[simpy.Event, Any, None]:
        for _ in range(events):
            yield env.timeout(0.01)

    env = simpy.Environment()
    env.process(wait(env))
    return seconds(env.run) / events


def seconds(call: Callable[[], object]) -> float:
    gc.collect()
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s


def loop_s(scenario: ServingScenario, fast_forward: bool = True) -> float:
    """Return the seconds of an iteration in the engine loop alone, without drawing, unfolding and checking."""
    spent: list[float] = []
    run = Clock.run
    Clock.run = lambda clock: spent.append(seconds(lambda: run(clock)))  # type: ignore[method-assign,assignment]
    try:
        records = simulation.run(scenario, "system", fast_forward=fast_forward)
    finally:
        Clock.run = run  # type: ignore[method-assign]
    return spent[0] / len(records.iterations)


def whole_s(scenario: ServingScenario) -> float:
    """Return the seconds of an iteration from drawing the workload to the CSVs written."""
    iterations = 0

    def everything() -> None:
        nonlocal iterations
        tables = run_study(scenario, InProcess())
        iterations = int(tables["runs"]["iterations"].sum())
        with tempfile.TemporaryDirectory() as folder:
            for name, table in tables.items():
                report.write_csv(table, Path(folder, f"{name}.csv"))

    return seconds(everything) / iterations


def ratio(one: Callable[[], float], other: Callable[[], float]) -> float:
    """Return how many times the first takes of the second: the median over rounds of the two in turn."""
    return statistics.median(one() / other() for _ in range(ROUNDS))


def pages(table: Table) -> None:
    """Add what blocks and preemptions cost against true-length reservation, with the same memory."""
    reserved, blocks = chat(50_000, 128, orca()), chat(50_000, 128, paged())
    table.add_row("iterations/s, paged over reservation, ample memory", share_of_speed(blocks, reserved), "0.7", "")
    swap = {"kind": "swap", "host_bytes": 256e9, "link_bytes_per_s": 55e9}
    for name, preemption in (("recompute", "recompute"), ("swap", swap)):
        short, held = (
            with_kv_tokens(chat(20_000, 128, system), 60_000) for system in (paged(preemption=preemption), orca())
        )
        what = f"iterations/s, paged over reservation, steady preemption by {name}"
        table.add_row(what, share_of_speed(short, held), "0.3", "")


def prefixes(table: Table) -> None:
    """Add what a prefix cache costs where nobody shares anything: all is entered, and wiped again, in vain."""
    for name, block_tokens in (("blocks", 16), ("radix", 1)):
        memory = {"kind": "paged", "watermark": 0.0, "block_tokens": block_tokens}
        alone, cached = (chat(50_000, 128, paged(memory=memory, prefix=prefix)) for prefix in (None, name))
        table.add_row(
            f"iterations/s, prefix {name} over paged, no sharing", share_of_speed(cached, alone), "0.25", "0.5"
        )


def predictions(table: Table) -> None:
    """Add what a batch and a query cost in prediction serving."""
    from tests import bench_prediction  # which takes its clockwork from here

    timeouts, rate = bench_prediction.batch_ratio(), bench_prediction.batches_per_s()
    table.add_row(
        "batches/s of one query, in bare timeouts", f"1/{timeouts:.1f} ({rate:,.0f}/s)", "1/3 or 200,000/s", ""
    )
    table.add_row("microseconds per query in batches of 1000", f"{1e6 * bench_prediction.query_s():.2f}", "2", "")


def main() -> None:
    """Print the table."""
    table = Table(
        "what", "measured", "required", "aim", title="Speed, in units of one bare SimPy timeout", title_justify="left"
    )

    def per_timeout(what: str, one: Callable[[], float], required: str, aim: str) -> None:
        table.add_row(what, f"1/{ratio(one, bare_timeouts_s):.1f}", required, aim)

    for name, system in (
        ("reserving 8192", orca(reserve="max", max_tokens=8192)),
        ("true length, 128 seats", orca() | {"max_batch_size": 128}),
        ("true length, 256 seats", orca()),
    ):
        saturated = chat(100_000, 128, system)
        per_timeout(f"iterations/s, engine loop, saturated chat, {name}", lambda s=saturated: loop_s(s), "1/6", "1/3")
        per_timeout(f"iterations/s, draw to CSV, saturated chat, {name}", lambda s=saturated: whole_s(s), "1/12", "1/6")

    fcfs, sjf = (chat(100_000, 10_000, orca() | {"order": order}) for order in ("fcfs", "sjf"))
    slower = ratio(lambda: loop_s(sjf), lambda: loop_s(fcfs))
    table.add_row("seconds with 100,000 waiting, sjf over fcfs", f"{slower:.2f}", "2", "")
    for name, prefill in (("first", "first"), ("chunked", {"kind": "chunked", "budget_tokens": 512})):
        placed = chat(50_000, 128, orca(reserve="max", max_tokens=8192) | {"prefill": prefill})
        per_timeout(
            f"iterations/s, engine loop, saturated chat, prefill {name}", lambda s=placed: loop_s(s), "1/6", "1/3"
        )

    pages(table)
    prefixes(table)

    idle = chat(20_000, 1, orca())
    faster = 1 / ratio(lambda: loop_s(idle), bare_timeouts_s)
    table.add_row("iterations/s with fast-forward at 1 req/s", f"{faster:.1f}", "1", "")

    constant = {"prompt_tokens": 16, "output_tokens": 20_000}
    few, many = (chat(n, 1e6, orca() | {"max_batch_size": n, "memory": "unlimited"}, **constant) for n in (8, 512))
    growth = ratio(lambda: loop_s(many, fast_forward=False), lambda: loop_s(few, fast_forward=False))
    table.add_row("seconds per iteration step by step, 512 running over 8", f"{growth:.2f}", "1.3", "")

    tenth, whole = (chat(n, 128, orca()) for n in (100_000, 1_000_000))
    once = seconds(lambda: simulation.run(whole, "system")) / seconds(lambda: simulation.run(tenth, "system"))
    table.add_row("seconds, 1,000,000 requests over 100,000", f"{once:.1f}", "10 (linear)", "")
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    table.add_row("peak memory with 1,000,000 requests", f"{peak_gb:.2f} GB", "1.5 GB", "")
    predictions(table)
    with threadpool_limits(1):
        speedup = bench_numerics.batching_speedup()
        table.add_row("64 decodes of the 13M model on one thread, one by one over one batch", f"{speedup:.1f}", "3", "")
        linear = bench_numerics.linear_layers_of_bare_products()
        table.add_row("linear layers of that batch, speed over bare matrix products", f"{linear:.2f}", "0.5", "")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
