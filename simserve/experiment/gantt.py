"""One chart of the kind `gantt`: generated on the small model, and simulated with iterations of one second."""

from itertools import zip_longest

import numpy as np
import pandas as pd

from simserve import simulation
from simserve.catalog import MODEL_BY_NAME, Hardware
from simserve.cost import Linear
from simserve.experiment.task import RunResult, Task
from simserve.memory import Unlimited
from simserve.numerics import (
    Generated,
    Llama,
    Prompt,
    chart_rows,
    generate_continuous,
    generate_sequential,
    generate_static,
    random_prompts,
)
from simserve.records import Records
from simserve.scenario.gantt import SCHEDULE_COLUMNS, GanttScenario, Schedule
from simserve.scenario.serving import ContinuousSystem, RequestLevelSystem
from simserve.workload import Streams, Workload

WAITING = str.maketrans("·", ".")


def run(scenario: GanttScenario, task: Task) -> RunResult:
    """Generate under the system's schedule, and compare chart and tokens."""
    system = scenario.systems[task.system]
    streams = Streams(scenario.seed, task.replication)
    weights, words = (int(streams.generator(purpose).integers(2**32)) for purpose in ("weights", "tokens"))
    model = Llama.random(scenario.model, weights, np.dtype(scenario.precision).type)
    shapes = [(float(r.arrival), r.prompt_tokens, r.output_tokens) for r in scenario.requests]
    prompts = random_prompts(scenario.model, shapes, words)
    generated = generate(model, prompts, system)
    alone = generate_sequential(model, prompts)
    rows = [row.translate(WAITING) for row in chart_rows(generated.schedule).values()]
    measures = {
        "iterations": len(generated.schedule.iterations),
        "idle_seats": sum(row.count("-") for row in rows),
        "chart_differences": differences(rows, system.chart) if system.chart else np.nan,
        "simulator_differences": differences(rows, simulated_rows(prompts, system)),
        "tokens_differing": sum(
            a != b for request, ids in alone.tokens.items() for a, b in zip(ids, generated.tokens[request], strict=True)
        ),
    }
    tables = {"schedule": schedule_table(generated)} if task.replication == 0 else {}
    return RunResult(task, measures, tables=tables)


def generate(model: Llama, prompts: list[Prompt], system: Schedule) -> Generated:
    """Generate under a system's schedule."""
    if system.schedule == "sequential":
        return generate_sequential(model, prompts)
    way = generate_continuous if system.schedule == "continuous" else generate_static
    return way(model, prompts, system.max_batch_size)


def differences(rows: list[str], others: list[str] | tuple[str, ...]) -> int:
    """Return in how many cells two charts differ; blanks at the end of a row do not count."""
    pairs = ((a.translate(WAITING), b.translate(WAITING)) for a, b in zip_longest(rows, others, fillvalue=""))
    return sum(x != y for a, b in pairs for x, y in zip_longest(a, b, fillvalue=" "))


def simulated_rows(prompts: list[Prompt], system: Schedule) -> list[str]:
    """Return the chart of the simulator's engine for the same requests, every iteration taking a second."""
    requests = [prompt.request for prompt in prompts]
    arrival_s, prompt, output = np.array([(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in requests]).T
    lengths = prompt.astype(np.int64), output.astype(np.int64)
    workload = Workload(arrival_s, *lengths, sum(lengths), np.zeros(len(requests), dtype=np.int64))
    seats, second = system.max_batch_size, Linear(step_s=1.0)
    engine = (
        ContinuousSystem(max_batch_size=seats, cost=second, memory=Unlimited())
        if system.schedule == "continuous"
        else RequestLevelSystem(max_batch_size=seats, cost=second)
    )
    # The cost does not look at the model, nor at the hardware.
    records = simulation.simulate(workload, engine, MODEL_BY_NAME["llama-3-8b"], Hardware())
    return _rows(records, seats_stay=system.schedule != "continuous")


def _rows(records: Records, seats_stay: bool) -> list[str]:
    """Return a row for each request: waiting, prefill, decodes and, where seats stay taken, idling to the end."""
    admitted = records.requests.admitted_iteration
    times = np.stack((records.workload.arrival_s, records.admitted_s, records.first_token_s, records.finish_s))
    ends = times[3].copy()
    if seats_stay:
        ends = np.array([times[3][admitted == own].max() for own in admitted])
    rows = []
    for arrival, start, first, finish, end in np.vstack((times, ends)).T.astype(int).tolist():
        spans = (arrival, start - arrival, first - start, finish - first, end - finish)
        rows.append("".join(mark * span for mark, span in zip(" .PD-", spans, strict=True)))
    return rows


def schedule_table(generated: Generated) -> pd.DataFrame:
    """Return a row for each request and iteration from its arrival on, in the columns of schedule.csv."""
    tokens = {
        (cell.request_id, iteration.number): cell.new_tokens
        for iteration in generated.schedule.iterations
        for cell in iteration.cells
    }
    cells = [
        (request, iteration, phase, tokens.get((request, iteration), 0))
        for request, row in chart_rows(generated.schedule).items()
        for iteration, phase in enumerate(row.translate(WAITING))
        if phase != " "
    ]
    return pd.DataFrame(cells, columns=list(SCHEDULE_COLUMNS))
