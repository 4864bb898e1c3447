"""The command line: what the user typed in, tables and progress out. Everything it does can be called from Python."""

import json
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated

import typer

from simserve import __version__, console, experiment
from simserve.experiment import ExecutorError
from simserve.plugin import PartError
from simserve.report import OutputError
from simserve.scenario import ScenarioError, Study, find, json_schema, load


class BadInputError(Exception):
    """What the user gave cannot be used; the message says why, one line for each fault."""


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Scenarios = Annotated[
    list[str], typer.Argument(metavar="PATH_OR_NAME...", help="Scenario files, or names in scenarios/.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override a value: --set workload.num_requests=100. May be repeated."
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Results go to DIR/<name>/.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"simserve {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Simulate LLM inference serving: batching, scheduling and KV memory under load."""


@app.command()
def run(
    scenarios: Scenarios,
    overrides: Overrides = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes to compute in; all cores by default.")] = None,
    out: Out = Path("results"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A quarter of the requests, two replications, no claims.")
    ] = False,
    executor: Annotated[str, typer.Option(metavar="local|dask://HOST:PORT", help="Where to compute.")] = "local",
) -> None:
    """Run scenarios; write tables, figures and a report for each, and print the outcome."""
    for scenario in _load_all(scenarios, overrides or ()):
        chosen = experiment.quick_form(scenario) if quick else scenario
        try:
            with experiment.open_executor(executor, workers) as pool, console.progress(chosen.name) as progress:
                tables = experiment.publish(chosen, out, pool, progress, overrides=overrides or (), quick=quick)
        except KeyboardInterrupt:
            typer.echo(f"interrupted; {out / chosen.name}/ is as it was", err=True)
            raise typer.Exit(130) from None
        console.show_results(chosen, tables, out / chosen.name)


def _load_all(names: Sequence[str], overrides: Sequence[str]) -> list[Study]:
    """Load every scenario; where some are faulty, say what is wrong with all of them, and stop."""
    loaded, problems = [], []
    for name in names:
        try:
            loaded.append(load(find(name), overrides))
        except ScenarioError as fault:
            problems.append(str(fault))
    names_taken = [scenario.name for scenario in loaded]
    problems += [
        f"{name}: given twice, and results are kept by name"
        for name in dict.fromkeys(names_taken)
        if names_taken.count(name) > 1
    ]
    if problems:
        raise BadInputError("\n".join(problems))
    return loaded


@app.command()
def validate(scenarios: Scenarios, overrides: Overrides = None) -> None:
    """Check scenarios and say what is wrong with them, all at once."""
    _load_all(scenarios, overrides or ())
    for name in scenarios:
        typer.echo(f"{name}: valid")


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(metavar="[scenarios|models|gpus|presets]", help="What to list; everything by default.")
    ] = "",
) -> None:
    """List the scenarios, models, GPUs and presets that can be named."""
    shelves = {
        "scenarios": console.scenario_shelf,
        "models": console.model_shelf,
        "gpus": console.gpu_shelf,
        "presets": console.preset_shelf,
    }
    if what and what not in shelves:
        raise typer.BadParameter(f"cannot list {what!r}; give one of: {', '.join(shelves)}")
    for name in [what] if what else shelves:
        console.show_table(shelves[name]())


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenarios, with which an editor completes and checks them."""
    typer.echo(json.dumps(json_schema(), indent=2))


@app.command()
def claims(out: Out = Path("results")) -> None:
    """Print the ledger of claims of all results: one line each, and a count. Exit status 1 if any does not hold."""
    raise typer.Exit(console.show_ledger(out))


def main() -> None:
    """Run the command line; faults of the user's input end in a message and exit status 2, never in a traceback."""
    try:
        app()
    except (BadInputError, ExecutorError, OutputError, PartError, ScenarioError) as fault:
        typer.echo(str(fault), err=True)
        raise SystemExit(2) from None
    except OSError as fault:
        typer.echo(f"cannot read or write: {fault}", err=True)
        raise SystemExit(1) from None
    except MemoryError as fault:
        typer.echo(f"not enough memory: {fault or 'try less of it'}", err=True)
        raise SystemExit(1) from None
    except BrokenProcessPool:
        typer.echo("a worker process was killed, perhaps for want of memory; try fewer with --workers 1", err=True)
        raise SystemExit(1) from None
