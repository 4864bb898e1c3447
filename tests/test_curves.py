"""Traces of large tables, and bounds across the panels of metrics."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simserve.experiment.statistics import unit
from simserve.report.figures import draw, panels_figure
from simserve.report.labels import label
from simserve.report.scales import reads_as_share
from simserve.report.series import TRACE_COLUMNS, Line, Plot, Reference, Trace, Traces, plot_of, traces_of
from simserve.report.style import COLOURS, style
from simserve.report.tables import read_csv, write_csv
from simserve.scenario import study
from tests.test_figures import NO_METRICS, RATE, summary_table

LIMITS = study.Curves(table="batches", x="batch", y="limit", reference="ceiling")
BARE = study.Curves(table="batches", x="batch", y="limit")
CALM = [1.0, 2.0, 3.0]
SAW = [30.0, 20.0] * 20


def batches(
    limits: dict[str, Sequence[float]],
    ceilings: dict[str, Sequence[float]] | None = None,
    **columns: Any,
) -> pd.DataFrame:
    """The limits of each system batch by batch; a second replication has others."""
    parts = [
        pd.DataFrame(
            {
                "system": system,
                **columns,
                "replication": replication,
                "batch": np.arange(len(found)),
                "limit": np.asarray(found) + 100.0 * replication,
                "model": "m",
                "replica": 0,
                "ceiling": (ceilings or {}).get(system, math.nan),
            }
        )
        for system, found in limits.items()
        for replication in (0, 1)
    ]
    return pd.concat(parts, ignore_index=True)


def points(line: Any) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()  # type: ignore[no-any-return]


def drawn(table: pd.DataFrame | None, plot: Plot = NO_METRICS, asked: study.Curves = LIMITS) -> Figure:
    return panels_figure(plot, "Title", traces=[traces_of(table, asked)])


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def panel_with_bound(
    bound: float, means: Sequence[float], metric: str = "ttft_p50_s", against: str | None = None
) -> Axes:
    table = summary_table(["orca"], {RATE: list(range(1, len(means) + 1))}, [metric, *([against] if against else [])])
    table["mean"] = np.repeat(means, 2 if against else 1)
    table["ci_low"] = table["ci_high"] = math.nan
    plot = plot_of(table, [metric], against, {name: bound for name in (metric, against) if name})
    return panels_figure(plot, "Title").axes[0]


# What is drawn, as values.


def test_a_trace_is_a_column_over_another_of_the_first_replication() -> None:
    table = batches({"aimd": [1, 2, 4], "fixed": [3, 3]}, {"aimd": [4, 4, 2], "fixed": [4, 4]})
    assert traces_of(table, LIMITS) == Traces(
        x="batch",
        y="limit",
        reference="ceiling",
        only="",
        traces=(
            Trace("aimd", "", Line((0.0, 1.0, 2.0), (1.0, 2.0, 4.0)), Line((0.0, 1.0, 2.0), (4.0, 4.0, 2.0))),
            Trace("fixed", "", Line((0.0, 1.0), (3.0, 3.0)), Line((0.0, 1.0), (4.0, 4.0))),
        ),
        references=(Reference(("aimd", "fixed"), Line((0.0, 1.0, 2.0), (4.0, 4.0, 2.0))),),
    )


def test_rows_without_values_and_systems_without_rows_are_left_out() -> None:
    table = batches({"aimd": [1, math.nan, 4], "none": [math.nan]})
    found = traces_of(table, LIMITS)
    assert [(trace.label, trace.line.x, trace.reference) for trace in found.traces] == [("aimd", (0.0, 2.0), None)]
    assert found.references == ()


@pytest.mark.parametrize("table", [None, batches({"none": [math.nan]}), batches({"none": [math.nan]}).iloc[:0]])
def test_a_table_that_is_missing_or_empty_has_no_traces(table: pd.DataFrame | None) -> None:
    found = traces_of(table, LIMITS)
    assert (found.traces, found.cells) == ((), ((),))
    [axes] = drawn(table).axes
    assert [text.get_text() for text in axes.texts] == ["no values"]


def test_swept_values_models_and_replicas_are_traces_of_their_own(tmp_path: Path) -> None:
    swept = pd.concat([batches({"aimd": CALM}, **{RATE: rate}) for rate in (8, 16)])
    assert [trace.label for trace in traces_of(swept, BARE).traces] == ["aimd, arrival rate 8", "aimd, arrival rate 16"]
    one, two = batches({"ensemble": CALM, "single": CALM}), batches({"ensemble": CALM}).assign(model="007")
    table = pd.concat([one, two, two.assign(replica=1)])
    write_csv(table, tmp_path / "batches.csv")
    found = traces_of(read_csv(tmp_path / "batches.csv"), BARE)
    assert [trace.label for trace in found.traces] == [
        "ensemble, model m, replica 0",
        "ensemble, model 007, replica 0",
        "ensemble, model 007, replica 1",
        "single",
    ]


def test_of_too_many_traces_the_first_swept_values_are_shown_and_then_the_first_replica() -> None:
    swept = pd.concat([batches({"aimd": CALM, "fixed": CALM}, **{RATE: rate}) for rate in range(7)])
    found = traces_of(swept, BARE)
    assert ([trace.label for trace in found.traces], found.only) == (["aimd", "fixed"], "arrival rate 0")
    [axes] = drawn(swept, asked=BARE).axes
    assert axes.get_title() == "batch size limit, only arrival rate 0"
    many = pd.concat([swept.assign(replica=replica) for replica in range(7)])
    assert traces_of(many, BARE).only == "arrival rate 0, replica 0"
    assert traces_of(many[many[RATE] == 0], BARE).only == "replica 0"


def test_equal_references_are_one_as_far_as_they_go() -> None:
    ceilings = {"a": [9.0, 9.0, 5.0, 9.0], "b": [9.0, 9.0, 5.0], "c": [9.0] * 4, "d": [9.0] * 3}
    found = traces_of(batches({name: [1.0] * len(y) for name, y in ceilings.items()}, ceilings), LIMITS)
    assert [(r.owners, r.line.y) for r in found.references] == [
        (("a", "b"), (9.0, 9.0, 5.0, 9.0)),
        (("c", "d"), (9.0, 9.0, 9.0, 9.0)),
    ]


def test_a_long_trace_keeps_its_extremes_and_its_ends() -> None:
    y = np.random.default_rng(1).integers(10, 20, 100_000).astype(float)
    y[[0, 4_321, 98_765, -1]] = (11.0, 99.0, -99.0, 12.0)
    [trace] = traces_of(batches({"aimd": y.tolist()}), BARE).traces
    line = dict(zip(trace.line.x, trace.line.y, strict=True))
    assert len(line) <= 2 * TRACE_COLUMNS + 2
    assert (line[0], line[4_321], line[98_765], line[99_999]) == (11.0, 99.0, -99.0, 12.0)
    assert list(trace.line.x) == sorted(trace.line.x)
    assert all(y[int(x)] == value for x, value in line.items())


def test_a_short_trace_keeps_everything_from_left_to_right() -> None:
    table = batches({"aimd": [1, 2, 3]}).iloc[::-1]
    assert traces_of(table, BARE).traces[0].line == Line((0.0, 1.0, 2.0), (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("limits", "cells"),
    [
        ({"a": CALM, "b": CALM, "c": CALM, "d": CALM}, [["a", "b", "c", "d"]]),
        ({"a": SAW, "b": SAW}, [["a", "b"]]),
        ({"a": SAW, "b": CALM, "c": CALM}, [["a"], ["b"], ["c"]]),
    ],
)
def test_what_would_be_hidden_has_axes_of_its_own(limits: dict[str, Sequence[float]], cells: list[list[str]]) -> None:
    assert [[trace.label for trace in cell] for cell in traces_of(batches(limits), BARE).cells] == cells


def test_very_many_traces_are_apart_by_system() -> None:
    table = pd.concat([batches({"a": SAW, "b": SAW}).assign(model=f"m{k}") for k in range(8)])
    found = traces_of(table, BARE)
    assert [len(cell) for cell in found.cells] == [8, 8]
    figure = panels_figure(NO_METRICS, "Title", traces=[found])
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert len(legend(figure)) == 16


# The drawing.


def test_traces_are_steps_in_the_colours_of_the_systems() -> None:
    summary = summary_table(["fixed", "aimd"], {})
    table = batches({"aimd": [1, 2, 4], "fixed": [3, 3]}, {"aimd": [5, 5, 5], "fixed": [5, 5]})
    figure = drawn(table, plot_of(summary, ["ttft_p50_s"]))
    axes, bars = figure.axes
    aimd, fixed, ceiling = axes.lines
    assert [points(line) for line in (aimd, fixed)] == [[[0, 1], [1, 2], [2, 4]], [[0, 3], [1, 3]]]
    assert points(ceiling) == [[0, 5], [1, 5], [2, 5]]
    assert {line.get_drawstyle() for line in axes.lines} == {"steps-post"}
    assert (aimd.get_color(), fixed.get_color(), ceiling.get_color()) == (COLOURS[1], COLOURS[0], "black")
    assert ceiling.is_dashed()
    assert axes.get_ylim() == (0, pytest.approx(5.3))
    assert (axes.get_title(), axes.get_xlabel()) == ("batch size limit", "batch")
    assert legend(figure) == ["fixed", "aimd", "ceiling"]
    assert len(bars.patches) == 2


def test_a_reference_of_one_system_has_its_colour() -> None:
    table = batches({"a": CALM, "b": CALM}, {"a": [5.0] * 3, "b": [7.0] * 3})
    lines = drawn(table).axes[0].lines
    assert [line.get_color() for line in lines] == [COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[1]]


def test_jagged_traces_are_side_by_side_on_equal_axes() -> None:
    limits = dict.fromkeys(("a", "b", "c", "d", "e"), SAW)
    figure = drawn(batches(limits, {name: [40.0] * len(SAW) for name in limits}))
    assert [axes.get_title() for axes in figure.axes] == list(limits)
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert [len(axes.lines) for axes in figure.axes] == [2] * 5
    assert [axes.lines[0].get_color() for axes in figure.axes] == list(COLOURS[:5])
    [inner] = figure.subfigs
    assert (inner.get_suptitle(), inner.get_supxlabel()) == ("batch size limit", "batch")
    assert legend(figure) == ["ceiling"]


def test_shares_along_a_run_are_read_against_one() -> None:
    table = pd.DataFrame({"system": "a", "replication": 0, "query": [1, 2, 3], "accuracy": [0.5, 0.55, 0.6]})
    asked = study.Curves(table="learning", x="query", y="accuracy")
    [axes] = drawn(table, asked=asked).axes
    assert axes.get_ylim() == (0, 1.05)
    assert axes.lines[0].get_drawstyle() == "default"


def test_values_below_zero_are_in_view() -> None:
    table = pd.DataFrame({"system": "a", "replication": 0, "query": [1, 2, 3], "regret": [0, -10, 5]})
    [axes] = drawn(table, asked=study.Curves(table="learning", x="query", y="regret")).axes
    assert axes.get_ylim() == (pytest.approx(-10.6), pytest.approx(5.3))


def test_panels_come_in_order_and_from_their_tables(tmp_path: Path) -> None:
    figure = study.Figure(
        metrics=("ttft_p50_s",), curves=(LIMITS, study.Curves(table="learning", x="query", y="regret"))
    )
    write_csv(summary_table(["a", "b", "c"], {}), tmp_path / "summary.csv")
    write_csv(batches({"a": SAW, "b": SAW, "c": SAW}), tmp_path / "batches.csv")
    pictures = []
    for _ in range(2):
        draw(tmp_path, "Title", figure, None, search=False)
        pictures.append([(tmp_path / name).read_bytes() for name in ("figure.png", "figure.svg")])
    assert pictures[0] == pictures[1]
    svg = pictures[0][1].decode()
    texts = [f"<!-- {text} -->" for text in ("batch size limit", "no values", "TTFT p50 (s)")]
    assert [text for text in texts if text not in svg] == []
    assert [svg.index(text) for text in texts] == sorted(svg.index(text) for text in texts)


@pytest.mark.parametrize("systems", [2, 3, 4, 5, 7])
def test_names_and_numbers_of_traces_do_not_overlap(systems: int) -> None:
    names = [f"a-rather-long-name-{k}" for k in range(systems)]
    table = batches({name: [1e5 + value for value in SAW * 20] for name in names})
    summary = summary_table(names, {})
    with style():
        plot = plot_of(summary, ["ttft_p50_s"], lines={"ttft_p50_s": 2.0})
        figure = drawn(table, plot)
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
        boxes = []
        for axes in figure.axes:
            ticks = [
                tick
                for tick in axes.get_xticklabels()
                if axes.get_xlim()[0] <= tick.get_position()[0] <= axes.get_xlim()[1]
            ]
            boxes += [text.get_window_extent() for text in [axes.title, axes.xaxis.label, *axes.texts, *ticks]]
        boxes += [text.get_window_extent() for inner in figure.subfigs for text in inner.texts]
        boxes += [box.get_window_extent() for box in figure.legends]
    boxes = [box for box in boxes if box.width > 1]
    width, height = figure.canvas.get_width_height()
    assert [box for box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width + 1 or box.y1 > height + 1] == []
    assert [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)] == []


# Bounds across panels of metrics.


def test_a_bound_is_a_dashed_line_with_its_number() -> None:
    axes = panel_with_bound(5.0, [1.0, 2.0, 4.0])
    bound = axes.lines[-1]
    assert {y for _, y in points(bound)} == {5.0}
    assert (bound.get_linestyle(), bound.get_color()) == ("--", "black")
    assert axes.get_ylim() == (0, pytest.approx(5.5))
    assert [text.get_text() for text in axes.texts] == ["5 s"]


@pytest.mark.parametrize(
    ("bound", "means", "texts", "lines"),
    [
        (13.0, [1.0, 2.0, 4.0], ["13 s ↑"], 1),
        (0.1, [1.0, 2.0, 40.0], ["0.1 s"], 2),
        (500.0, [1.0, 2.0, 40.0], ["500 s"], 2),
        (0.001, [1.0, 2.0, 40.0], ["0.001 s ↓"], 1),
        (5000.0, [1.0, 2.0, 40.0], ["5,000 s ↑"], 1),
        (0.0, [1.0, 2.0, 40.0], ["0 s ↓"], 1),
        (0.2, [0.0, 0.0, 0.0], ["0.2 s"], 2),
    ],
)
def test_the_axis_goes_to_a_bound_that_is_not_too_far(
    bound: float, means: list[float], texts: list[str], lines: int
) -> None:
    axes = panel_with_bound(bound, means)
    assert ([text.get_text() for text in axes.texts], len(axes.lines)) == (texts, lines)
    low, high = axes.get_ylim()
    assert (low <= bound <= high) == (lines == 2)
    assert low <= min(means)
    assert high > max(means)


def test_bounds_of_bars_stand_upright() -> None:
    axes = panel_with_bound(5.0, [1.0, 2.0])
    assert {x for x, _ in points(axes.lines[-1])} == {5.0}
    assert axes.get_xlim()[1] >= 5.5
    assert [text.get_text() for text in axes.texts] == ["1", "2", "5 s"]
    assert axes.get_ylim()[0] > axes.texts[-1].xy[1] > 1.5  # type: ignore[attr-defined]
    far = panel_with_bound(50.0, [1.0, 2.0])
    assert far.lines[:] == []
    assert far.texts[-1].get_text() == "50 s →"


def test_bounds_of_both_metrics_cross_where_one_is_shown_against_another() -> None:
    axes = panel_with_bound(3.0, [1.0, 2.0, 4.0], against="itl_p99_s")
    up, across = axes.lines[-2:]
    assert ({y for _, y in points(up)}, {x for x, _ in points(across)}) == ({3.0}, {3.0})
    assert [text.get_text() for text in axes.texts] == ["1", "3", "3 s", "3 s"]


def test_the_label_of_a_bound_stands_clear_of_the_lines() -> None:
    with style():
        axes = panel_with_bound(4.0, [1.0, 2.0, 4.1, 4.2, 4.3])
        figure = axes.figure
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call, arg-type]
        [text] = axes.texts
        box = text.get_window_extent()
        [x, y] = axes.transData.transform(points(axes.lines[0])).T
    dots = [(np.interp(s, np.arange(len(x)), x), np.interp(s, np.arange(len(y)), y)) for s in np.linspace(0, 4, 400)]
    assert [dot for dot in dots if box.contains(*dot)] == []
    assert axes.bbox.contains(box.x0, box.y0)
    assert axes.bbox.contains(box.x1, box.y1)


def test_bars_below_zero_go_to_the_left() -> None:
    table = summary_table(["a", "b"], {}, ["regret"])
    table["mean"], table["unit"] = [-2.0, 4.0], "count"
    table["ci_low"] = table["ci_high"] = math.nan
    [axes] = panels_figure(plot_of(table, ["regret"]), "Title").axes
    assert [bar.get_x() + min(0.0, bar.get_width()) for bar in axes.patches] == [-2.0, 0.0]  # type: ignore[attr-defined]
    assert axes.get_xlim()[0] < -2.0
    lines = panel_with_bound(-1.0, [-2.0, 1.0, 3.0], metric="regret")
    assert lines.get_ylim()[0] < -2.0
    assert len(lines.lines) == 2


# Names and units.


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("limit", "batch size limit"),
        ("latency_s", "latency (s)"),
        ("throughput_per_s", "throughput (queries/s)"),
        ("batch_size", "batch size (queries)"),
        ("regret", "regret (wrong answers)"),
        ("late_share", "late batches (share)"),
        ("request_throughput_per_s", "request throughput (req/s)"),
    ],
)
def test_labels(column: str, expected: str) -> None:
    assert label(column, unit(column)) == expected


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        *(
            (name, "share")
            for name in ("accuracy", "accuracy_late", "best_model_accuracy", "agreement", "support_mean")
        ),
        *((name, "share") for name in ("late_share", "late_share_disturbed", "missing_vote_share", "utilization")),
        *((name, "count") for name in ("regret", "largest_batch", "limit_mean", "adapt_batches")),
    ],
)
def test_units(metric: str, expected: str) -> None:
    assert unit(metric) == expected


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("accuracy", [0.1, 0.2], True),
        ("late_share", [0.01, 0.02], False),
        ("late_share", [0.01, 0.6], True),
        ("regret_second_half_share", [0.5, 1.2], False),
        ("accuracy_shortfall_late", [-0.1, 0.5], False),
        ("utilization", [1.0000000000000016], True),
        ("regret", [0.5], False),
    ],
)
def test_what_is_read_against_one(column: str, values: list[float], expected: bool) -> None:
    assert reads_as_share(column, unit(column), values) is expected
