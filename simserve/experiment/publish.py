"""From a validated scenario to a finished result folder."""

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from pathlib import Path

from simserve import report
from simserve.experiment.study import Progress, Tables, run_study
from simserve.scenario.study import Study, TrafficStudy


def publish(
    scenario: Study,
    out: Path,
    executor: Executor,
    progress: Progress = lambda done, total: None,
    *,
    overrides: Sequence[str] = (),
    quick: bool = False,
) -> Tables:
    """Run the scenario and write `out/<name>/`; return the tables that were written.

    The folder of an earlier run is replaced when all is done, and left alone otherwise.

    Raises:
        OutputError: the folder cannot be written; nothing was run.
    """
    report.check_writable(out, scenario.name)
    started_at, started_s = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    tables = run_study(scenario, executor, progress)
    with report.result_folder(out, scenario.name) as folder:
        for name, table in tables.items():
            report.write_csv(table, folder / f"{name}.csv")
        title = scenario.title or scenario.name
        report.draw(folder, title, scenario.drawn, getattr(scenario, "slo", None), search=scenario.searched is not None)
        summarised = scenario.SUMMARISED or scenario.HEADLINES
        report.write_page(folder, title, scenario.source, _footer(scenario, quick), summarised)
        report.write_manifest(
            folder,
            scenario=scenario.model_dump(mode="json"),
            overrides=list(overrides),
            quick=quick,
            wall_s=time.perf_counter() - started_s,
            started_at=started_at,
            machine_dependent=scenario.MACHINE_DEPENDENT,
        )
    return tables


def _footer(scenario: Study, quick: bool) -> str:
    sizes = [f"seed {scenario.seed}", f"{scenario.replications} replications"]
    if isinstance(scenario, TrafficStudy):
        sizes[1] += f" of {scenario.workload.num_requests} requests"
    size = ", ".join(sizes)
    return f"Quick form: {size}; for a first look only" if quick else size[0].upper() + size[1:]
