"""Loading scenarios: what is accepted, and one clear line for everything that is not."""

import os
import pickle
from pathlib import Path

import pytest

from simserve.memory import Reservation, Unlimited
from simserve.scenario import ScenarioError, available, find, load
from simserve.workload.lengths import Constant, Empirical

BASE = """\
name: base
model: llama-3-8b
workload:
  num_requests: 10
  arrivals: {kind: poisson, rate_per_s: 4}
  prompt_tokens: 512
  output_tokens: {kind: lognormal, mean: 300, sigma: 0.8}
slo: {ttft_s: 1.0}
systems:
  static: {engine: request_level, max_batch_size: 8}
  orca: {engine: continuous, memory: {kind: reservation, reserve: max, max_tokens: 8192}}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE, encoding="utf-8")
    (tmp_path / "trace.csv").write_text("prompt,output\n10,2\n20,3\n", encoding="utf-8")
    (tmp_path / "bad.csv").write_text("prompt\n10\n-2\n", encoding="utf-8")
    return path


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(path, overrides)
    assert caught.value.where == str(path)
    return caught.value.problems


KINDS_OF_LENGTH = "Accepted: constant, empirical, geometric, listed, lognormal, uniform"
CLAIM = "id: a, metric: finished, value: 1"

BROKEN = [
    # unknown keys
    (
        "workload.output_tokens.sgma=1",
        "workload.output_tokens.sgma: unknown key; did you mean 'sigma'? Accepted: kind, max,",
    ),
    ("workloads.num_requests=5", "workloads: unknown key; did you mean 'workload'? Accepted: kind, name, title,"),
    ("zzz=5", "zzz: unknown key. Accepted: kind, name"),
    ("model.layer=3", "model.layer: unknown key; did you mean 'layers'? Accepted: name, source, layers"),
    ("systems.orca.memory.max_token=1", "systems.orca.memory.max_token: unknown key; did you mean 'max_tokens'?"),
    ("slo.ttft=1", "slo.ttft: unknown key; did you mean 'ttft_s'? Accepted: attainment, ttft_s, tpot_s"),
    # kinds and engines
    ("kind=servin", "kind: unknown kind 'servin'; did you mean 'serving'? Accepted: serving"),
    ("kind=5", "kind: unknown kind 5. Accepted: serving"),
    (
        "workload.output_tokens.kind=lognorml",
        f"workload.output_tokens.kind: unknown kind 'lognorml'; did you mean 'lognormal'? {KINDS_OF_LENGTH}",
    ),
    ("workload.output_tokens=normal", "workload.output_tokens: unknown kind 'normal'; did you mean 'lognormal'?"),
    ("workload.output_tokens={mean: 3}", f"workload.output_tokens.kind: is missing. {KINDS_OF_LENGTH}"),
    (
        "systems.static.order=fcsf",
        "systems.static.order: unknown kind 'fcsf'; did you mean 'fcfs'? Accepted: custom, dfs, edf",
    ),
    (
        "systems.orca.engine=continous",
        "systems.orca.engine: unknown engine 'continous'; did you mean 'continuous'? Accepted: continuous,",
    ),
    ("systems.orca={engin: continuous}", "systems.orca.engine: is missing; is 'engin' meant? Accepted: continuous,"),
    (
        "systems.orca.memory.reserve=maximum",
        "systems.orca.memory.reserve: unknown value 'maximum'; did you mean 'max'?",
    ),
    # numbers
    (
        "workload.arrivals.rate_per_s=-1",
        "workload.arrivals.rate_per_s: must be at least 1e-06 and at most 1e+09; got -1",
    ),
    (
        "workload.arrivals.rate_per_s=fast",
        "workload.arrivals.rate_per_s: must be a number at least 1e-06 and at most 1e+09; got 'fast'",
    ),
    ("workload.arrivals.rate_per_s=.nan", "workload.arrivals.rate_per_s: must be finite; got .nan"),
    ("workload.arrivals.rate_per_s=-.inf", "workload.arrivals.rate_per_s: must be finite; got -.inf"),
    (
        "workload.arrivals.rate_per_s=true",
        "workload.arrivals.rate_per_s: must be a number at least 1e-06 and at most 1e+09; got true",
    ),
    ("workload.arrivals=poisson", "workload.arrivals.rate_per_s: is missing"),
    ("workload.arrivals=4", "workload.arrivals: must be a name or a mapping with kind, one of"),
    ("workload.num_requests=0", "workload.num_requests: must be a whole number of at least 1; got 0"),
    ("workload.num_requests=1.5", "workload.num_requests: must be a whole number of at least 1; got 1.5"),
    ("workload.num_requests=.inf", "workload.num_requests: must be a whole number of at least 1; got .inf"),
    ("workload.num_requests=true", "workload.num_requests: must be a whole number of at least 1; got true"),
    ("workload.num_requests='5'", "workload.num_requests: must be a whole number of at least 1; got '5'"),
    (
        "workload.prompt_tokens=-5",
        "workload.prompt_tokens: must be a whole number of at least 1 and at most 10000000; got -5",
    ),
    ("workload.output_tokens.sigma=-1", "workload.output_tokens.sigma: must be at least 0 and at most 10; got -1"),
    (
        "workload.output_tokens.mean=[1]",
        "workload.output_tokens.mean: must be a number greater than 0 and at most 10000000; got [1]",
    ),
    ("systems.static.max_batch_size=0", "systems.static.max_batch_size: must be a whole number of at least 1; got 0"),
    ("hardware.memory_fraction=1.5", "hardware.memory_fraction: must be greater than 0 and at most 1; got 1.5"),
    ("seed=-1", "seed: must be a whole number of at least 0; got -1"),
    ("replications=0", "replications: must be a whole number of at least 1; got 0"),
    # other values
    ("name=a b", "name: must be letters, digits, '-' and '_'; got 'a b'"),
    ("name=5", "name: must be text; got 5"),
    ("title=", "title: must be text; got null"),
    ("workload=", "workload: must be a mapping; got null"),
    ("systems={}", "systems: must have at least 1 entry; got {}"),
    ("systems=[orca]", "systems: must be a mapping; got ['orca']"),
    ("systems={a b: {engine: continuous}}", "systems.a b: its name must be letters, digits, '-' and '_'; got 'a b'"),
    ("systems.static=5", "systems.static: must be a mapping with engine, one of continuous, request_level; got 5"),
    ("output.requests=all", "output.requests: must be true or false or 'first'; got 'all'"),
    ("figure.metrics=ttft_p50_s", "figure.metrics: must be a list; got 'ttft_p50_s'"),
    # values that do not go together
    ("slo={}", "slo: give at least one of ttft_s and tpot_s"),
    ("slo.ttft_s=0", "slo.ttft_s: must be greater than 0; got 0"),
    ("workload.prompt_tokens={kind: uniform, low: 9, high: 1}", "workload.prompt_tokens: low (9) is above high (1)"),
    ("systems.orca.memory={kind: reservation, reserve: max}", "systems.orca.memory: reserve: max needs max_tokens"),
    (
        "systems.orca.memory.reserve=request",
        "systems.orca.memory.reserve: 'request' reserves each request's own limit: give workload.max_output_tokens",
    ),
    ("systems.orca.cost=linear", "systems.orca.cost: an iteration that decodes must take time"),
    # catalog
    ("model=llama-3-8", "model: unknown model 'llama-3-8'; did you mean 'llama-3-8b'? The catalog has: llama-3-70b,"),
    ("model=zzz", "model: unknown model 'zzz'. The catalog has: llama-3-70b,"),
    ("model=5", "model: must be a mapping or one of llama-3-70b,"),
    (
        "hardware.gpu=h100",
        "hardware.gpu: unknown GPU 'h100'; did you mean 'h100-sxm'? The catalog has: a100-40g, a100-80g,",
    ),
    ("model=llama-3-70b", "llama-3-70b does not fit on h100-sxm: its weights take 141.11 GB, 69.11 GB more than"),
    # search
    ("search={low: 5, high: 1}", "search: low (5) must be below high (1)"),
    ("search={low: 5, high: 5}", "search: low (5) must be below high (5)"),
    ("search={low: 1, high: 5, rel_tol: 0}", "search.rel_tol: must be greater than 0 and less than 1; got 0"),
    ("search={low: 1, high: 5, metric: godput}", "search.metric: unknown value 'godput'; did you mean 'goodput'?"),
    (
        "search={low: 1, high: 5, parameter: workload.arrivals.rate}",
        "search.parameter: workload.arrivals.rate: unknown key; did you mean 'rate_per_s'?",
    ),
    ("search={low: 1, high: 5, parameter: seed}", "search.parameter: seed: cannot vary from point to point."),
    (
        "search={low: 0.1, high: 5, parameter: hardware.bandwidth_efficiency}",
        "search.parameter: hardware.bandwidth_efficiency: must be greater than 0 and at most 1; got 5",
    ),
    (
        "search={low: 1, high: 5, parameter: workload.num_requests}",
        "search.parameter: workload.num_requests: must be a whole number of at least 1; got 3.4",
    ),
    # sweep
    ("sweep.workload.arrivals.rate_per_s=[]", "sweep.workload.arrivals.rate_per_s: must have at least 1 entry; got []"),
    ("sweep.workload.arrivals.rate_per_s=5", "sweep.workload.arrivals.rate_per_s: must be a list; got 5"),
    (
        "sweep.workload.arrivals.rate_per_s=[1, -1]",
        "sweep.workload.arrivals.rate_per_s: must be at least 1e-06 and at most 1e+09; got -1",
    ),
    ("sweep.workload.arrivals.rate=[1, 2]", "sweep.workload.arrivals.rate: unknown key; did you mean 'rate_per_s'?"),
    (
        "sweep.workload.arivals.rate_per_s=[1, 2]",
        "sweep.workload.arivals.rate_per_s: workload.arivals: unknown key; did you mean 'arrivals'?",
    ),
    (
        "sweep.seed=[1, 2]",
        "sweep.seed: cannot vary from point to point. What can: model, hardware, workload, slo, systems",
    ),
    (
        "sweep.systems.orka.max_batch_size=[1]",
        "sweep.systems.orka.max_batch_size: systems.orka: there is no such system; did you mean 'orca'?",
    ),
    ("sweep.model=[llama-3-8b, llama-3-70b]", "sweep.model: llama-3-70b does not fit on h100-sxm"),
    ("sweep.hardware.gpu=[h200, h300]", "sweep.hardware.gpu: unknown GPU 'h300'; did you mean"),
    (
        "sweep.systems.orca.memory.reserve=[max, request]",
        "sweep.systems.orca.memory.reserve: 'request' reserves each request's own limit",
    ),
    ("sweep={workload..x: [1]}", "sweep.workload..x: its name must be a dotted path such as"),
    (
        "sweep={workload.prompt_tokens.max: [1], workload.prompt_tokens: [5]}",
        "sweep.workload.prompt_tokens.max: is overwritten by workload.prompt_tokens, which comes after it",
    ),
    # beyond what time and tokens can be added up in
    (
        "workload.arrivals.rate_per_s=1e-320",
        "workload.arrivals.rate_per_s: must be at least 1e-06 and at most 1e+09; got",
    ),
    ("systems.orca.cost={kind: linear, step_s: 1e-20}", "systems.orca.cost: an iteration that decodes must take time"),
    (
        "workload.output_tokens.mean=1e300",
        "workload.output_tokens.mean: must be greater than 0 and at most 10000000; got 1e+300",
    ),
    ("systems.static.memory=reservation", "systems.static.memory: request_level keeps finished seats running"),
    # claims
    (f"claims=[{{{CLAIM}, system: orka}}]", "claims.0.system: unknown system 'orka'; did you mean 'orca'?"),
    (
        "claims=[{id: a, system: orca, same_as: statc}]",
        "claims.0.same_as.system: unknown system 'statc'; did you mean 'static'?",
    ),
    (
        "claims=[{id: a, system: orca, metric: x}]",
        "claims.0: give one of: value; low, high or both; exactly; same_as; above; below; trend",
    ),
    ("claims=[{id: A, system: orca, metric: x, value: 1}]", "claims.0.id: must be lower-case letters, digits, '.' and"),
    (f"claims=[{{{CLAIM}, system: orca}}, {{{CLAIM}, system: static}}]", "claims.1.id: 'a' is given twice; claims.0"),
    (
        f"claims=[{{{CLAIM}, system: orca, at: {{slo.ttft_s: 1}}}}]",
        "claims.0.at.slo.ttft_s: is not swept for system 'orca'",
    ),
    (
        "claims=[{id: a, system: orca, metric: ttft_p5_s, value: 1}]",
        "claims.0.metric: unknown metric 'ttft_p5_s'; did you",
    ),
    (
        f"claims=[{{{CLAIM}, system: orca, over: busy}}]",
        "claims.0.over.metric: unknown metric 'busy'; did you mean 'busy_s'?",
    ),
    (
        "claims=[{id: a, system: orca, metric: goodput_per_s, value: 1}]",
        "claims.0.metric: unknown metric 'goodput_per_s'",
    ),
    ("figure.metrics=[batch]", "figure.metrics.0: unknown metric 'batch'; did you mean 'batch_mean'?"),
    ("claims={a: 1}", "claims: must be a list; got {'a': 1}"),
    # overrides that are none
    ("foo", "override 'foo': must be dotted.path=value"),
    ("=5", "override '=5': '' is not a dotted path"),
    ("a..b=5", "override 'a..b=5': 'a..b' is not a dotted path"),
    ("seed=[1", "override 'seed=[1': line 1, column 3: not YAML: while parsing a flow sequence, expected ',' or ']'"),
    (
        "seed=!!bool maybe",
        "override 'seed=!!bool maybe': not YAML of plain values: a type written with !! does not fit its value",
    ),
    ("seed=&a [*a]", "override 'seed=&a [*a]': not YAML of plain values: Circular reference"),
    (
        "systems.new.engine=continuous",
        "override 'systems.new.engine=continuous': systems.new: there is no such system. The scenario has: ",
    ),
    (
        "workload.num_requests.x=5",
        "override 'workload.num_requests.x=5': workload.num_requests: is 10; there is nothing inside it",
    ),
]


@pytest.mark.parametrize(("override", "message"), BROKEN, ids=[override for override, _ in BROKEN])
def test_broken(base: Path, override: str, message: str) -> None:
    (problem,) = problems(base, override)
    assert problem.startswith(message)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ("path: no.csv, column: prompt", "cannot read"),
        ("path: trace.csv, column: promt", "has no column 'promt'; did you mean 'prompt'? It has: prompt, output"),
        ("path: trace.csv, column: zzz", "has no column 'zzz'. It has: prompt, output"),
        ("path: bad.csv, column: prompt", "must hold whole numbers from 1 to 10,000,000"),
        ("values: [1, 2], weights: [1]", "give one weight for each of the 2 values"),
        ("values: [1, 2], weights: [0, 0]", "not all of them 0"),
        ("values: [1, 2], weights: [1, -1]", "workload.prompt_tokens.weights.1: must be at least 0; got -1"),
        (
            "values: [1, 0.5]",
            "workload.prompt_tokens.values.1: must be a whole number of at least 1 and at most 10000000; got 0.5",
        ),
        ("max: 5", "give either values, or path with column"),
    ],
)
def test_empirical_lengths(base: Path, lengths: str, message: str) -> None:
    (problem,) = problems(base, f"workload.prompt_tokens={{kind: empirical, {lengths}}}")
    assert problem.startswith("workload.prompt_tokens")
    assert message in problem


@pytest.mark.parametrize("override", [override for override, _ in BROKEN])
def test_no_jargon(base: Path, override: str) -> None:
    text = "\n".join(problems(base, override))
    for word in (
        "Input should",
        "Extra inputs",
        "valid dictionary",
        "Value error",
        "tag",
        "pydantic",
        "http",
        "instance of",
    ):
        assert word not in text


FILES = [
    (b"", "is empty"),
    (b"# nothing\n", "is empty"),
    (b"- a\n- b\n", "must be a mapping of names to values; got ['a', 'b']"),
    (b"name: [1\n", "line 2, column 1: not YAML: while parsing a flow sequence, expected ',' or ']'"),
    (b"name: a\nseed: 1\nname: b\n", "line 3, column 1: key 'name' is given twice"),
    (b"1: a\n", "line 1, column 1: key 1 is not a name; put it in quotes"),
    (b"name: a\n---\nname: b\n", "line 2, column 1: not YAML: expected a single document in the stream"),
    (b"name: \xff\n", "is not UTF-8 text: byte 6 is 0xff"),
    (b"name: \x00\n", "not YAML of plain values: unacceptable character #x0000"),
    (b"name: &a {x: *a}\n", "not YAML of plain values: Circular reference"),
    (b"name: !!timestamp 2024-01-31\n", "not YAML of plain values: Object of type date"),
    (b"[" * 1200, "not YAML of plain values: maximum recursion depth exceeded"),
    (b"seed: " + b"9" * 5000, "not YAML of plain values: Exceeds the limit"),
]


@pytest.mark.parametrize(("content", "message"), FILES, ids=[message for _, message in FILES])
def test_unreadable(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    (problem,) = problems(path)
    assert problem.startswith(message)


def test_no_such_file(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.yaml") == ["there is no such file"]


def test_a_directory(tmp_path: Path) -> None:
    assert problems(tmp_path) == ["is a directory, not a scenario"]


@pytest.mark.parametrize("key", ["name", "model", "workload", "systems"])
def test_missing(base: Path, key: str) -> None:
    lines = BASE.splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{key}:"))
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    base.write_text("".join(lines[:start] + lines[end:]), encoding="utf-8")
    assert problems(base) == [f"{key}: is missing"]


def test_search_without_slo(base: Path) -> None:
    assert problems(base, "slo=null", "search={low: 1, high: 2}") == [
        "search looks for the highest rate that attains the SLO: give slo"
    ]


def test_search_and_sweep_of_the_same_path(base: Path) -> None:
    overrides = ("search={low: 1, high: 2}", "sweep.workload.arrivals.rate_per_s=[1, 2]")
    assert problems(base, *overrides) == [
        "search.parameter: workload.arrivals.rate_per_s is swept as well; search it or sweep it"
    ]


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("{workload.num_requests: 3}", "workload.num_requests: must be one of the swept values 1, 2; got 3"),
        (
            "{workload.num_request: 1}",
            "workload.num_request: is not swept for system 'orca'; did you mean 'workload.num_re",
        ),
        ("{systems.static.max_batch_size: 4}", "systems.static.max_batch_size: is not swept for system 'orca'"),
    ],
)
def test_claim_at_a_point_that_is_not_swept(base: Path, at: str, message: str) -> None:
    sweep = "sweep={workload.num_requests: [1, 2, 1], systems.static.max_batch_size: [4, 8]}"
    (problem,) = problems(base, sweep, f"claims=[{{{CLAIM}, system: orca, at: {at}}}]")
    assert problem.startswith(f"claims.0.at.{message}")


def test_all_faults_at_once_each_with_the_file(base: Path) -> None:
    overrides = ("seed=-1", "foo", "name=a b", "systems.orca.max_batch_size=0", "slo.attainment=2", "sed=1")
    with pytest.raises(ScenarioError) as caught:
        load(base, overrides)
    assert str(caught.value).splitlines() == [
        f"{base}: override 'foo': must be dotted.path=value",
        f"{base}: name: must be letters, digits, '-' and '_'; got 'a b'",
        f"{base}: systems.orca.max_batch_size: must be a whole number of at least 1; got 0",
        f"{base}: seed: must be a whole number of at least 0; got -1",
        f"{base}: slo.attainment: must be greater than 0 and at most 1; got 2",
        f"{base}: {problems(base, 'sed=1')[0]}",
    ]


def test_all_faults_of_the_study_at_once(base: Path) -> None:
    sweep = "sweep={seed: [1, 2], workload.num_requests: [1, 0, -1], modle: [1]}"
    found = problems(base, sweep, "search={low: 1, high: 2, parameter: slo}", f"claims=[{{{CLAIM}, system: x}}]", "foo")
    places = [problem.split(": ")[0] for problem in found]
    assert places == [
        "override 'foo'",
        "sweep.seed",
        "sweep.workload.num_requests",
        "sweep.workload.num_requests",
        "sweep.modle",
        "search.parameter",
        "search.parameter",
        "claims.0.system",
        "claims.0.metric",
    ]


def test_long_values_are_cut(base: Path) -> None:
    (problem,) = problems(base, f"seed={'x' * 500}")
    assert problem.endswith("...")
    assert len(problem) < 130


def test_errors_survive_pickling() -> None:
    fault = pickle.loads(pickle.dumps(ScenarioError("x.yaml", ["seed: is odd"])))  # noqa: S301 (our own)
    assert str(fault) == "x.yaml: seed: is odd"


# What is accepted


def test_defaults(base: Path) -> None:
    scenario = load(base)
    assert (scenario.seed, scenario.replications, scenario.hardware.gpu.name) == (1, 1, "h100-sxm")
    assert scenario.systems["static"].memory == Unlimited()
    assert scenario.systems["orca"].memory == Reservation(reserve="max", max_tokens=8192)
    assert scenario.workload.prompt_tokens == Constant(tokens=512)


@pytest.mark.parametrize(
    "override",
    [
        "workload.num_requests=1e3",
        "workload.prompt_tokens=1e3",
        "workload.arrivals.rate_per_s=1",
        "workload.arrivals.rate_per_s=0x10",
        "seed=0",
        "title=no",
        "slo=null",
        "model.layers=16",
        "hardware={gpu: h200}",
        "hardware.kv_bytes=1e9",
        "systems.orca.order=fcfs",
        "systems.orca.cost=roofline",
        "output={requests: true, iterations: first}",
        "search={low: 1, high: 5}",
        "search={low: 0.1, high: 0.9, parameter: hardware.compute_efficiency}",
        "sweep.workload.arrivals.rate_per_s=[1, 2]",
        "sweep.workload.prompt_tokens=[5, {kind: geometric, mean: 5}]",
        "sweep={workload.prompt_tokens: [5, 6], workload.prompt_tokens.max: [1]}",
        "sweep={systems.orca.max_batch_size: [1e2], model: [llama-3-8b, mistral-7b]}",
        "title=a=b",
    ],
)
def test_accepted(base: Path, override: str) -> None:
    load(base, [override])


def test_overrides_come_in_order_and_change_the_values(base: Path) -> None:
    scenario = load(base, ["systems.orca.cost=roofline", "systems.orca.cost.overhead_s=1e-3", "seed=5", "seed=6"])
    assert getattr(scenario.systems["orca"].cost, "overhead_s", None) == 0.001
    assert scenario.seed == 6


def test_claims_at_swept_points(base: Path) -> None:
    at = "{workload.prompt_tokens: {kind: constant, tokens: 5}, systems.orca.max_batch_size: 2.0}"
    sweep = "sweep={workload.prompt_tokens: [{kind: constant, tokens: 5}, 6], systems.orca.max_batch_size: [2]}"
    scenario = load(base, [sweep, f"claims=[{{{CLAIM}, system: orca, at: {at}}}]"])
    assert scenario.claims[0].at["systems.orca.max_batch_size"] == 2


def test_request_reservations_with_a_limit(base: Path) -> None:
    scenario = load(base, ["systems.orca.memory.reserve=request", "workload.max_output_tokens=100"])
    assert scenario.workload.max_output_tokens == 100


def test_files_start_at_the_folder_of_the_scenario(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = "{kind: empirical, path: trace.csv, column: prompt}"
    elsewhere = base.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    scenario = load(
        Path(os.pardir, "base.yaml"),
        [
            f"workload.prompt_tokens={trace}",
            f"sweep.workload.output_tokens=[{trace}, 5]",
            f"claims=[{{{CLAIM}, system: orca, at: {{workload.output_tokens: {trace}}}}}]",
        ],
    )
    assert isinstance(scenario.workload.prompt_tokens, Empirical)
    assert scenario.workload.prompt_tokens.path == os.path.join(os.pardir, "trace.csv")
    swept = scenario.sweep["workload.output_tokens"][0]
    assert swept["path"] == os.path.join(os.pardir, "trace.csv")


# Finding scenarios by name


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    for name in ("goodput", "saturation"):
        (tmp_path / "scenarios" / f"{name}.yaml").write_text(BASE, encoding="utf-8")
    (tmp_path / "scenarios" / "notes.txt").write_text("no scenario", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(BASE, encoding="utf-8")
    (tmp_path / "saturation").mkdir()


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("goodput", "scenarios/goodput.yaml"),
        ("saturation", "scenarios/saturation.yaml"),  # a folder of that name does not hide it
        ("mine.yaml", "mine.yaml"),
        ("scenarios/goodput.yaml", "scenarios/goodput.yaml"),
    ],
)
def test_find(given: str, path: str) -> None:
    assert find(given) == Path(path)


@pytest.mark.usefixtures("_folder")
def test_available() -> None:
    found = available()
    assert found["goodput"] == Path("scenarios/goodput.yaml")
    assert "notes" not in found
    assert list(found) == sorted(found)


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("godput", "there is no such file or scenario; did you mean 'goodput'? Scenarios: "),
        ("scenarios/godput.yaml", "there is no such file or scenario; did you mean 'goodput'?"),
        ("scenarios", "is a directory, not a scenario"),
    ],
)
def test_not_found(given: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        find(given)
    assert caught.value.where == given
    assert caught.value.problems[0].startswith(message)


def test_values_that_are_right_alone_and_wrong_together(base: Path) -> None:
    grid = "sweep={model: [llama-3-8b, mistral-7b], hardware.memory_fraction: [0.19, 0.9]}"
    (problem,) = problems(base, "model=mistral-7b", grid)
    # 0.19 x 80 GB = 15.2 GB hold the 14.48 GB of Mistral, and not the 16.06 GB of Llama
    assert problem == (
        "sweep: at {'model': 'llama-3-8b', 'hardware.memory_fraction': 0.19}: llama-3-8b does not fit on h100-sxm: its "
        "weights take 16.06 GB, 0.86 GB more than memory_fraction 0.19 of 80 GB"
    )


def test_the_metrics_of_a_search(base: Path) -> None:
    search, claim = "search={low: 1, high: 2}", "claims=[{id: a, system: orca, metric: gpus_for_demand, value: 1}]"
    (problem,) = problems(base, search, claim)
    assert problem.endswith("There are: goodput_per_s")
    load(base, [search, "search.demand_per_s=3", claim])


def test_the_same_times_need_the_same_points(base: Path) -> None:
    claim = "claims=[{id: a, system: static, same_as: orca}]"
    load(base, [claim, "sweep={workload.num_requests: [1, 2]}"])
    swept = "sweep={systems.orca.max_batch_size: [1, 2]}"
    (problem,) = problems(base, claim, swept)
    assert problem == "claims.0.same_as.at: say which systems.orca.max_batch_size of 'orca' is meant"
    load(
        base, [swept, "claims=[{id: a, system: static, same_as: {system: orca, at: {systems.orca.max_batch_size: 2}}}]"]
    )
    load(base, [swept, "claims=[{id: a, system: orca, same_as: static}]"])  # each of the two with the one


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("same_as: orca", "claims.0.same_as: names the claim's own run"),
        ("metric: finished, above: orca", "claims.0.above: names the claim's own run"),
        (
            "metric: finished, below: {at: {workload.num_requests: 5}}",
            "claims.0.below.at.workload.num_requests: must be one",
        ),
        ("metric: finished, low: 1, baseline: statc", "claims.0.baseline.system: unknown system 'statc'"),
        ("metric: finished, low: 1, over: {system: static, metric: fin}", "claims.0.over.metric: unknown metric 'fin'"),
        (
            "metric: finished, low: 1, when: {metric: running, at_most: 3}",
            "claims.0.when.metric: unknown metric 'running'",
        ),
        ("metric: finished, trend: {along: seed, shape: rising}", "claims.0.trend.along: 'seed' is not swept"),
        (
            "metric: finished, trend: {along: workload.num_requests, shape: rising}",
            "claims.0.trend: needs at least three",
        ),
        (
            "metric: finished, trend: {along: workload.num_requests, shape: rise}",
            "claims.0.trend.shape: unknown value 'rise'; did you mean 'rising'?",
        ),
    ],
)
def test_claims_about_other_runs(base: Path, claim: str, message: str) -> None:
    (problem,) = problems(base, "sweep={workload.num_requests: [1, 2]}", f"claims=[{{id: a, system: orca, {claim}}}]")
    assert problem.startswith(message)
