"""What the documentation shows works, and what can be written in a scenario is documented."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from simserve.experiment import publish, quick_form
from simserve.experiment.executors import InProcess
from simserve.scenario import Study, json_schema, load
from simserve.scenario.schema import KINDS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout in which `goodput` has been run."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "scenarios").symlink_to(ROOT / "scenarios")
    for name in ("goodput", "static_vs_continuous"):
        scenario = quick_form(load(ROOT / f"scenarios/{name}.yaml")).model_copy(update={"name": name})
        publish(scenario, folder / "results", InProcess())
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_examples_run(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)


SCENARIO_PAGES = ("scenarios", "prediction", "numerics")

WHOLE_SCENARIOS = [
    pytest.param(text, id=f"{page.name}: {text.partition('name: ')[2].split()[0]}")
    for page in PAGES
    for text in blocks(page, "yaml")
    if re.match(r"(kind: \w+\n)?name:", text)
]


@pytest.mark.parametrize("text", WHOLE_SCENARIOS)
def test_example_scenarios_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "example.yaml").write_text(text)
    for module in ("my_parts", "my_controllers"):
        for code in blocks(ROOT / "docs/extending.md", rf"python {module}\.py"):
            (tmp_path / f"{module}.py").write_text(code)
    publish(quick_form(load(tmp_path / "example.yaml")), tmp_path, InProcess())


def test_every_key_and_choice_of_a_scenario_is_documented() -> None:
    text = "".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in SCENARIO_PAGES)
    schema = json_schema()
    keys = set(re.findall(r'"(?:const|properties)": ', json.dumps(schema)))
    assert keys
    names: set[str] = set()

    def collect(node: object) -> None:
        if isinstance(node, dict):
            names.update(node.get("properties", {}))
            names.update(value for value in [node.get("const"), *node.get("enum", [])] if isinstance(value, str))
            for child in node.values():
                collect(child)
        elif isinstance(node, list):
            for child in node:
                collect(child)

    collect(schema)
    missing = {name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)}
    catalog = set(os.listdir(ROOT / "simserve/catalog/models")) | set(os.listdir(ROOT / "simserve/catalog/gpus"))
    assert missing - {entry.removesuffix(".yaml") for entry in catalog} == set()


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_every_column_is_documented(kind: type[Study]) -> None:
    pages = ("results", "prediction", "numerics")
    text = "".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in pages)
    latencies = re.compile(r"(ttft|tpot|itl|e2e)_(?=(mean|p50|p90|p99|max)_s)")
    measures = [name for columns in kind.MEASURES.values() for name in columns]
    assert [name for name in measures if not latencies.match(name) and f"`{name}`" not in text] == []
    for name in measures:
        if match := latencies.match(name):
            assert f"`{match[0]}`" in text
            assert f"`{name.removeprefix(match[0])}`" in text
    for table, columns in kind.TABLES.items():
        assert f"{table}.csv" in text
        assert [name for name in columns if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
