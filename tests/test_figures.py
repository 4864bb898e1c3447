import math
import struct
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from pydantic import ValidationError

from simserve.report import figures
from simserve.report.figures import draw, goodput_figure, panels_figure
from simserve.report.labels import entry, label, number, path_label
from simserve.report.series import (
    MAX_STEPS,
    Curve,
    Panel,
    Plot,
    Point,
    Series,
    distributions_of,
    goodput_bars,
    paired,
    plot_of,
)
from simserve.report.style import style
from simserve.report.tables import read_csv, write_csv
from simserve.scenario.serving import SLO
from simserve.scenario.soundness import study_problems
from simserve.scenario.study import Figure
from tests.scenarios import small

RATE = "workload.arrivals.rate_per_s"
BATCH = "systems.orca.max_batch_size"
ORDER = "systems.orca.order"
RATES = [1, 2, 4, 8, 16, 32, 48]
FIGURE = Figure(metrics=("ttft_p50_s",))
NO_METRICS = Plot(swept="", lines=False, x_values=(), panels=())


def goodput_table(values: dict[str, list[float]]) -> pd.DataFrame:
    """0 stands for a search that ended below 0.02, 200 for one that ended above."""
    rows = []
    for system, found in values.items():
        for replication, value in enumerate(found):
            low, high, status = value * 0.99, value * 1.01, "bracketed"
            if value == 0:
                low, high, status = math.nan, 0.02, "below_low"
            if value == 200:
                low, high, status = 200.0, math.nan, "above_high"
            shown = value if status == "bracketed" else math.nan
            rows.append((system, replication, shown, low, high, status, 9))
    return pd.DataFrame(
        rows, columns=["system", "replication", "goodput_per_s", "low_per_s", "high_per_s", "status", "evaluations"]
    )


def claims_table(*claims: tuple[str, str]) -> pd.DataFrame:
    rows = [("goodput/x", "§5.3", statement, expected, 1.0, 0.5, 1.5, "range", True) for statement, expected in claims]
    columns = ["id", "source", "statement", "expected", "measured", "low", "high", "rule", "holds"]
    return pd.DataFrame(rows, columns=columns)


def summary_table(
    systems: Sequence[str], sweep: dict[str, list[Any]], metrics: Sequence[str] = ("ttft_p50_s",), half: float = 0.5
) -> pd.DataFrame:
    """The mean of row number k is k + 1; a swept path of one system is empty for the others."""
    keys: list[tuple[Any, ...]] = []
    for system in systems:
        own = {
            path: of if not path.startswith("systems.") or f".{system}." in path else [None]
            for path, of in sweep.items()
        }
        keys += [(system, *point) for point in product(*own.values())]
    rows = []
    for k, (key, metric) in enumerate(product(keys, metrics)):
        mean = k + 1.0
        rows.append((*key, metric, "s", mean, 0.1, mean - half, mean + half, mean - 1, mean + 1, 20))
    tail = ["metric", "unit", "mean", "std", "ci_low", "ci_high", "min", "max", "n"]
    return pd.DataFrame(rows, columns=["system", *sweep, *tail])


def requests_table(times: dict[str, dict[Any, list[float | None]]], path: str = RATE) -> pd.DataFrame:
    """The TTFT of the requests of each system at each swept value; their E2E is ten times as long."""
    rows = [
        (system, value, 0, i, time, time and 10 * time)
        for system, points in times.items()
        for value, found in points.items()
        for i, time in enumerate(found)
    ]
    return pd.DataFrame(rows, columns=["system", path, "replication", "request_id", "ttft_s", "e2e_s"])


def save(folder: Path, **tables: pd.DataFrame) -> None:
    for name, table in tables.items():
        write_csv(table, folder / f"{name}.csv")


# What is drawn, as values.


def test_goodput_is_the_mean_and_the_range_of_the_replications() -> None:
    bars = goodput_bars(goodput_table({"static": [0.1, 0.2, 0.3], "orca": [20.0, 22.0, 24.0]}), None)
    assert [bar.label for bar in bars] == ["static", "orca"]
    assert [(bar.mean, bar.low, bar.high) for bar in bars] == [(pytest.approx(0.2), 0.1, 0.3), (22.0, 20.0, 24.0)]
    assert [(bar.replications, bar.note, bar.source_value) for bar in bars] == [(3, "", None)] * 2


def test_searches_that_ended_at_a_bound_are_told_apart() -> None:
    static, orca, oracle = goodput_bars(
        goodput_table({"static": [0, 0.5, 0, 0.7], "orca": [0, 0], "oracle": [200, 150, 0, 170]}), None
    )
    assert (static.note, static.low) == ("< 0.02 in 2 of 4", 0.5)
    assert static.mean == pytest.approx(0.6)
    assert orca.note == "< 0.02 in 2 of 2"
    assert math.isnan(orca.mean)
    assert oracle.note == "< 0.02 in 1 of 4; > 200 in 1 of 4"


@pytest.mark.parametrize(
    ("statement", "expected", "found"),
    [
        ("orca: goodput_per_s", "20.34", 20.34),
        ("orca: goodput_per_s (Poisson arrivals)", "20.34", 20.34),
        ("orca: goodput_per_s", "18 to 22", None),
        ("orca: goodput_per_s / gpus", "20.34", None),
        ("orca-2: goodput_per_s", "20.34", None),
        ("orca: gpus_for_demand", "5", None),
    ],
)
def test_the_source_speaks_of_a_system(statement: str, expected: str, found: float | None) -> None:
    [bar] = goodput_bars(goodput_table({"orca": [20.0]}), claims_table((statement, expected)))
    assert bar.source_value == found


def test_a_search_at_every_point_of_a_sweep() -> None:
    table = pd.concat([goodput_table({"orca": [10.0, 12.0]}), goodput_table({"orca": [20.0], "static": [0.1]})])
    table.insert(1, BATCH, [64.0, 64.0, 256.0, math.nan])
    bars = goodput_bars(table, claims_table((f"orca: goodput_per_s at {BATCH}=256 (as printed)", "20.34")))
    assert [(bar.label, bar.mean, bar.source_value) for bar in bars] == [
        ("orca, max batch size 64", 11.0, None),
        ("orca, max batch size 256", 20.0, 20.34),
        ("static", 0.1, None),
    ]


def test_a_sweep_of_numbers_gives_lines() -> None:
    plot = plot_of(summary_table(["static", "orca"], {RATE: [4, 1, 2]}), ["ttft_p50_s"])
    assert plot == Plot(
        swept=RATE,
        lines=True,
        x_values=(1, 2, 4),
        panels=(
            Panel(
                "ttft_p50_s",
                "s",
                (
                    Series("static", "", (Point(1, 2.0, 1.5, 2.5), Point(2, 3.0, 2.5, 3.5), Point(4, 1.0, 0.5, 1.5))),
                    Series("orca", "", (Point(1, 5.0, 4.5, 5.5), Point(2, 6.0, 5.5, 6.5), Point(4, 4.0, 3.5, 4.5))),
                ),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("sweep", "axis", "lines"),
    [
        ({RATE: [1, 2]}, RATE, False),
        ({RATE: [1, 2, 3]}, RATE, True),
        ({RATE: [1], BATCH: [8, 16, 32]}, BATCH, True),
        ({ORDER: ["fcfs", "sjf", "ljf"], RATE: [1, 2]}, RATE, False),
        ({BATCH: [8, 16], RATE: [1, 2, 3]}, RATE, True),
        ({BATCH: [8, 16, 32], RATE: [1, 2, 3]}, BATCH, True),
        ({ORDER: ["fcfs", "sjf", "ljf"]}, ORDER, False),
        ({"workload.flag": [True, False]}, "workload.flag", False),
        ({RATE: [16]}, "", False),
        ({}, "", False),
    ],
)
def test_the_axis_is_the_path_that_says_most(sweep: dict[str, list[Any]], axis: str, lines: bool) -> None:
    plot = plot_of(summary_table(["orca"], sweep), ["ttft_p50_s"])
    assert (plot.swept, plot.lines) == (axis, lines)


def test_other_swept_paths_make_series_of_the_systems_they_concern() -> None:
    plot = plot_of(summary_table(["orca", "static"], {RATE: [1, 2, 4], BATCH: [8, 64]}), ["ttft_p50_s"])
    assert [(s.label, [p.mean for p in s.points]) for s in plot.panels[0].series] == [
        ("orca, max batch size 8", [1.0, 3.0, 5.0]),
        ("orca, max batch size 64", [2.0, 4.0, 6.0]),
        ("static", [7.0, 8.0, 9.0]),
    ]


def test_a_system_that_the_sweep_does_not_concern_is_the_same_all_along() -> None:
    plot = plot_of(summary_table(["orca", "static"], {BATCH: [8, 64, 256]}), ["ttft_p50_s"])
    assert plot.panels[0].series[1] == Series("static", "", tuple(Point(x, 4.0, 3.5, 4.5) for x in (8, 64, 256)))


def test_without_a_sweep_the_systems_are_on_the_axis() -> None:
    plot = plot_of(summary_table(["static", "orca"], {}, ["ttft_p50_s", "itl_p99_s"]), ["itl_p99_s", "ttft_p50_s"])
    assert plot.x_values == ("static", "orca")
    assert [panel.metric for panel in plot.panels] == ["itl_p99_s", "ttft_p50_s"]
    assert [[p.mean for s in panel.series for p in s.points] for panel in plot.panels] == [[2.0, 4.0], [1.0, 3.0]]


def test_a_metric_without_values_has_no_series() -> None:
    table = summary_table(["orca"], {RATE: [1, 2, 3]})
    table["mean"] = math.nan
    assert [panel.series for panel in plot_of(table, ["ttft_p50_s", "nonsense"]).panels] == [(), ()]


def test_a_metric_against_another_pairs_the_points_of_each_system() -> None:
    table = summary_table(["static", "orca"], {RATE: [4, 1, 2]}, ["ttft_p50_s", "itl_p99_s"])
    table.loc[(table["system"] == "orca") & (table[RATE] == 2) & (table["metric"] == "ttft_p50_s"), "mean"] = math.nan
    plot = plot_of(table, ["itl_p99_s"], against="ttft_p50_s")
    assert plot.against is not None
    across, up = paired(plot.panels[0], plot.against)
    assert (across.metric, up.metric) == ("ttft_p50_s", "itl_p99_s")
    assert [(s.label, [(p.x, p.mean) for p in s.points]) for s in across.series] == [
        ("static", [(1, 3.0), (2, 5.0), (4, 1.0)]),
        ("orca", [(1, 9.0), (4, 7.0)]),
    ]
    assert [(s.label, [(p.x, p.mean) for p in s.points]) for s in up.series] == [
        ("static", [(1, 4.0), (2, 6.0), (4, 2.0)]),
        ("orca", [(1, 10.0), (4, 8.0)]),
    ]


def test_a_system_that_is_the_same_all_along_is_a_point_among_trails() -> None:
    plot = plot_of(summary_table(["orca", "static"], {BATCH: [8, 64]}, ["a_s", "b_s"]), ["b_s"], against="a_s")
    assert plot.against is not None
    assert [len(series.points) for series in paired(plot.panels[0], plot.against)[0].series] == [2, 1]


def test_a_distribution_is_the_share_of_all_requests_at_or_below(tmp_path: Path) -> None:
    save(tmp_path, requests=requests_table({"static": {1: [3.0, 1.0, 3.0, None]}, "orca": {1: [None, None]}}))
    ttft, e2e = distributions_of(read_csv(tmp_path / "requests.csv"), ["ttft_s", "e2e_s"], SLO(ttft_s=2.0))
    assert (ttft.latency, ttft.bound, ttft.only) == ("ttft_s", 2.0, "")
    assert ttft.curves == (Curve("static", "", (1.0, 3.0), (0.25, 0.75)), Curve("orca", "", (), ()))
    assert (e2e.latency, e2e.bound) == ("e2e_s", None)
    assert e2e.curves[0] == Curve("static", "", (10.0, 30.0), (0.25, 0.75))


def test_each_point_of_a_sweep_is_a_curve() -> None:
    table = requests_table({"orca": {8: [1.0], 64: [2.0]}, "static": {None: [3.0]}}, path=BATCH)
    [panel] = distributions_of(table, ["ttft_s"], None)
    assert [(c.label, c.values, c.shares) for c in panel.curves] == [
        ("orca, max batch size 8", (1.0,), (1.0,)),
        ("orca, max batch size 64", (2.0,), (1.0,)),
        ("static", (3.0,), (1.0,)),
    ]


@pytest.mark.parametrize(("points", "curves", "only"), [(5, 10, ""), (6, 2, "arrival rate 9")])
def test_of_too_many_curves_the_first_swept_value_is_shown(points: int, curves: int, only: str) -> None:
    times: dict[Any, list[float | None]] = {9 - k: [1.0 + k] for k in range(points)}
    [panel] = distributions_of(requests_table({"static": times, "orca": times}), ["ttft_s"], None)
    assert (len(panel.curves), panel.only) == (curves, only)
    assert panel.curves[0].values == (1.0,)
    assert [curve.label for curve in panel.curves[:: curves - 1]] == (
        ["static", "orca"] if only else ["static, arrival rate 9", "orca, arrival rate 5"]
    )


@pytest.mark.parametrize(("path", "bound"), [(RATE, 2.0), ("slo.attainment", 2.0), ("slo.ttft_s", None), ("slo", None)])
def test_a_bound_that_is_swept_is_not_one_bound(path: str, bound: float | None) -> None:
    table = requests_table({"orca": {1: [1.0], 2: [1.0]}}, path=path)
    assert distributions_of(table, ["ttft_s"], SLO(ttft_s=2.0, tpot_s=1.0))[0].bound == bound


def test_a_distribution_of_many_requests_has_steps_enough_for_the_eye() -> None:
    times: list[float | None] = [float(k) for k in range(1, 4001)]
    [panel] = distributions_of(requests_table({"orca": {1: times}}), ["ttft_s"], None)
    [curve] = panel.curves
    assert len(curve.values) == MAX_STEPS
    assert (curve.values[0], curve.values[-1], curve.shares[-1]) == (1.0, 4000.0, 1.0)
    assert [value / 4000 for value in curve.values] == list(curve.shares)


# What may be asked for.


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"against": "ttft_p5_s"}, "figure.against: unknown metric 'ttft_p5_s'; did you mean 'ttft_p50_s'?"),
        ({"distributions": ["ttft_s", "e2e"]}, "figure.distributions.1: unknown latency 'e2e'; did you mean 'e2e_s'?"),
        ({"metrics": ["batch"]}, "figure.metrics.0: unknown metric 'batch'; did you mean 'batch_mean'?"),
    ],
)
def test_unknown_names_are_told_with_the_nearest(asked: dict[str, Any], problem: str) -> None:
    [line] = study_problems(small(figure=asked))
    assert line.startswith(problem)


def test_distributions_need_the_table_of_requests() -> None:
    asked = {"metrics": [], "distributions": list(Figure.LATENCIES)}
    assert study_problems(small(figure=asked)) == []
    [line] = study_problems(small(figure=asked, output={"requests": False}))
    assert line.startswith("figure.distributions: ")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"metrics": []}, "give at least one of metrics, distributions, curves and gantt"),
        ({"metrics": [], "distributions": ["ttft_s"], "against": "ttft_p50_s"}, "against needs metrics"),
    ],
)
def test_a_figure_shows_something(asked: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        small(figure=asked)


# The drawing.


def test_lines_and_bands_are_the_numbers_of_the_table() -> None:
    plot = plot_of(summary_table(["static", "orca"], {RATE: RATES}), ["ttft_p50_s"])
    [axes] = panels_figure(plot, "Title").axes
    assert [line.get_xydata()[:, 1].tolist() for line in axes.lines] == [  # type: ignore[index, union-attr]
        [float(k) for k in range(1, 8)],
        [float(k) for k in range(8, 15)],
    ]
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4", "8", "16", "32", "48"]
    assert axes.get_xlabel() == "arrival rate (req/s)"
    assert axes.get_title() == "TTFT p50 (s)"
    band = axes.collections[1].get_paths()[0].get_extents()
    assert (band.ymin, band.ymax) == (7.5, 14.5)


def test_bars_are_the_numbers_of_the_table() -> None:
    plot = plot_of(summary_table(["static", "orca"], {RATE: [16, 60]}), ["ttft_p50_s"])
    figure = panels_figure(plot, "Title")
    [axes] = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 3.0, 2.0, 4.0]  # type: ignore[attr-defined]
    assert [text.get_text() for text in axes.texts] == ["1", "3", "2", "4"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["16", "60"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["static", "orca"]


def test_goodput_bars_are_on_a_log_scale_with_the_source_beside_them() -> None:
    table = goodput_table({"static": [0.1, 0.1, 0.16], "orca": [0, 60.0, 64.0], "none": [0, 0, 0]})
    bars = goodput_bars(table, claims_table(("orca: goodput_per_s", "63.24")))
    figure = goodput_figure(bars, "Title")
    [axes] = figure.axes
    assert axes.get_xscale() == "log"
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    assert ends == [pytest.approx(0.12), pytest.approx(62.0)]
    assert [text.get_text() for text in axes.texts] == ["0.12", "62  (< 0.02 in 1 of 3)", "goodput < 0.02 in 3 of 3"]
    markers = [collection for collection in axes.collections if collection.get_label() == "source's value"]
    assert [marker.get_offsets().tolist() for marker in markers] == [[[63.24, 1.0]]]  # type: ignore[union-attr]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["source's value"]


def test_without_claims_there_is_no_legend_of_the_source() -> None:
    assert goodput_figure(goodput_bars(goodput_table({"orca": [20.0]}), None), "Title").legends == []


def test_a_metric_against_another_is_a_trail_with_its_ends_labelled() -> None:
    table = summary_table(["static", "orca"], {RATE: [16, 32, 60]}, ["ttft_p50_s", "itl_p99_s"])
    figure = panels_figure(plot_of(table, ["itl_p99_s"], against="ttft_p50_s"), "Title")
    [axes] = figure.axes
    trails = [np.asarray(line.get_xydata()).tolist() for line in axes.lines]
    assert trails == [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]
    bars = [[np.asarray(path.vertices).tolist() for path in bar.get_paths()] for bar in axes.collections]
    assert bars[0][0] == [[0.5, 2.0], [1.5, 2.0]]
    assert bars[1][0] == [[1.0, 1.5], [1.0, 2.5]]
    assert [text.get_text() for text in axes.texts] == ["16", "60", "16", "60"]
    assert (axes.get_xlabel(), axes.get_title()) == ("TTFT p50 (s)", "ITL p99 (s)")
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["static", "orca"]
    assert legend.get_title().get_text() == "at the ends of lines: arrival rate (req/s)"


def test_equal_labels_in_one_place_are_one() -> None:
    table = summary_table(["a", "b"], {RATE: [16, 60]}, ["ttft_p50_s", "itl_p99_s"])
    table["mean"] = [1.0, 1.0, 9.0, 9.0, 1.0, 1.0, 2.0, 9.0]
    [axes] = panels_figure(plot_of(table, ["itl_p99_s"], against="ttft_p50_s"), "Title").axes
    assert [text.get_text() for text in axes.texts] == ["16", "60", "60"]


def test_metrics_without_common_values_say_so() -> None:
    plot = plot_of(summary_table(["orca"], {RATE: [1, 2, 3]}), ["ttft_p50_s"], against="nonsense")
    [axes] = panels_figure(plot, "Title").axes
    assert [text.get_text() for text in axes.texts] == ["no values"]


def test_a_distribution_is_drawn_as_steps_across_the_bound() -> None:
    table = requests_table({"static": {1: [1.0, 3.0, 30.0, None]}, "orca": {1: [1.0, 2.0, 2.0, 4.0]}})
    summary = summary_table(["static", "orca"], {RATE: [1]})
    distributions = distributions_of(table, ["ttft_s", "e2e_s"], SLO(ttft_s=2.5))
    figure = panels_figure(plot_of(summary, ["ttft_p50_s"]), "Title", distributions)
    ttft, e2e, bars = figure.axes
    static, orca, bound = (np.asarray(line.get_xydata()).tolist() for line in ttft.lines)
    assert static == [[1.0, 0.0], [1.0, 0.25], [3.0, 0.5], [30.0, 0.75]]
    assert orca == [[1.0, 0.0], [1.0, 0.25], [2.0, 0.75], [4.0, 1.0]]
    assert {x for x, _ in bound} == {2.5}
    assert (ttft.get_title(), ttft.get_xlabel(), ttft.get_xscale()) == ("distribution of TTFT", "TTFT (s)", "log")
    assert [text.get_text() for text in ttft.texts] == ["SLO 2.5 s"]
    assert ttft.get_ylim() == (0, 1.05)
    assert len(e2e.lines) == 2
    assert len(bars.patches) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["static", "orca"]


def test_a_bound_far_beyond_all_times_is_pointed_at() -> None:
    table = requests_table({"orca": {1: [0.006, 0.008]}})
    distributions = distributions_of(table, ["ttft_s"], SLO(ttft_s=1.0))
    [axes] = panels_figure(NO_METRICS, "Title", distributions).axes
    assert len(axes.lines) == 1
    assert axes.get_xlim()[1] < 0.01
    assert [text.get_text() for text in axes.texts] == ["SLO 1 s →"]


def test_a_panel_says_which_points_it_leaves_out() -> None:
    times: dict[Any, list[float | None]] = {k: [1.0] for k in range(1, 13)}
    table = requests_table({"orca": times})
    [axes] = panels_figure(NO_METRICS, "Title", distributions_of(table, ["ttft_s"], None)).axes
    assert axes.get_title() == "distribution of TTFT, only arrival rate 1"


def test_no_two_curves_look_the_same() -> None:
    for systems, points in ((1, 10), (2, 5), (5, 2), (10, 1)):
        times: dict[Any, list[float | None]] = {k: [1.0] for k in range(points)}
        table = requests_table({f"s{k}": times for k in range(systems)})
        figure = panels_figure(NO_METRICS, "Title", distributions_of(table, ["ttft_s"], None))
        looks = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in figure.axes[0].lines}  # type: ignore[attr-defined]
        assert len(looks) == 10


@pytest.mark.parametrize(
    ("sweep", "against", "which"),
    [
        ({RATE: RATES}, None, "y"),
        ({RATE: RATES}, "ttft_p50_s", "y"),
        ({RATE: [16, 60]}, None, "x"),
        ({RATE: [16, 60]}, "slo_attainment", "x"),
        ({}, None, "x"),
    ],
)
def test_an_axis_of_attainment_ends_at_one(sweep: dict[str, list[Any]], against: str | None, which: str) -> None:
    table = summary_table(["static", "orca"], sweep, ["slo_attainment", "ttft_p50_s"])
    table.loc[table["metric"] == "slo_attainment", ["mean", "ci_low", "ci_high"]] = (1.0, 0.7, 1.3)
    axes = panels_figure(plot_of(table, ["slo_attainment"], against), "Title").axes[0]
    assert (axes.get_xlim() if which == "x" else axes.get_ylim()) == (0, 1.05)


def test_labels_of_trails_do_not_overlap() -> None:
    systems = ["static", "orca", "oracle", "pow2", "first", "chunked", "sjf"]
    table = summary_table(systems, {RATE: [16, 60]}, ["ttft_p50_s", "itl_p99_s"])
    x = [0.9, 1, 1.1, 2, 1, 1.1, 1, 1.2, 4, 4, 4.2, 4.1, 3.9, 4.3]
    y = [1, 1.1, 1.3, 1.2, 3, 1, 2.9, 1.2, 3, 3.2, 3.1, 2.7, 5, 5]
    table["mean"] = [value for pair in zip(x, y, strict=True) for value in pair]
    with style():
        figure = panels_figure(plot_of(table, ["itl_p99_s"], against="ttft_p50_s"), "Title")
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
        [axes] = figure.axes
        boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) > 10
    assert [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)] == []
    assert all(axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1) for box in boxes)


def test_times_over_decades_are_on_a_log_scale_and_shares_never() -> None:
    table = summary_table(["orca"], {RATE: [1, 2, 3]}, ["ttft_p50_s"])
    table["mean"] = [0.01, 0.1, 3.0]
    shares = table.assign(metric="slo_attainment", unit="share")
    plot = plot_of(pd.concat([table, shares]), ["ttft_p50_s", "slo_attainment"])
    time, share = panels_figure(plot, "Title").axes
    assert (time.get_yscale(), share.get_yscale()) == ("log", "linear")


@pytest.mark.parametrize("systems", [1, 2, 5])
@pytest.mark.parametrize("sweep", [{}, {RATE: [16, 60]}, {ORDER: ["fcfs", "sjf"]}, {RATE: RATES}], ids=str)
def test_printed_values_and_names_do_not_overlap(systems: int, sweep: dict[str, list[Any]]) -> None:
    names = ["orca", "static-128", "orca-oracle-prefill-first", "d", "e"][:systems]
    metrics = ["throughput_tok_per_s", "slo_attainment", "ttft_p50_s", "nonsense"]
    table = summary_table(names, sweep, metrics[:3], half=0.2)
    table.loc[table["metric"] == "slo_attainment", ["mean", "ci_low", "ci_high"]] /= len(table)
    with style():
        figure = panels_figure(plot_of(table, metrics), "Title")
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
        boxes = []
        for axes in figure.axes:
            if axes.axison:
                ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
                inside = [tick for tick in ticks if tick.get_text() and _in_view(axes, tick)]
                boxes += [text.get_window_extent() for text in [*axes.texts, *inside, axes.title, axes.xaxis.label]]
        boxes += [legend.get_window_extent() for legend in figure.legends]
    width, height = figure.canvas.get_width_height()
    boxes = [box for box in boxes if box.width > 1]
    assert len(boxes) > 6
    assert [box for box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width + 1 or box.y1 > height + 1] == []
    overlaps = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]
    assert overlaps == []


def _in_view(axes: Any, tick: Any) -> bool:
    x, y = tick.get_position()
    low_x, high_x = sorted(axes.get_xlim())
    low_y, high_y = sorted(axes.get_ylim())
    return bool(low_x <= x <= high_x) if tick in axes.get_xticklabels() else bool(low_y <= y <= high_y)


@pytest.mark.parametrize(
    "asked",
    [{"metrics": ["ttft_p50_s"]}, {"metrics": ["itl_p99_s"], "against": "ttft_p50_s", "distributions": ["ttft_s"]}],
    ids=["metrics", "against and distributions"],
)
def test_the_same_tables_give_the_same_bytes(tmp_path: Path, asked: dict[str, Any]) -> None:
    summary = summary_table(["static", "orca"], {RATE: [1, 2, 4]}, ["ttft_p50_s", "itl_p99_s"])
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        save(folder, summary=summary, requests=requests_table({"orca": {1: [1.0, 2.0], 2: [3.0, None]}}))
        # Settings of the user's have no say.
        with mpl.rc_context({"lines.linewidth": 9 if name == "second" else 1, "svg.hashsalt": name}):
            draw(folder, "Title", Figure(**asked), SLO(ttft_s=2.0), search=False)
    for file in ("figure.png", "figure.svg"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_a_search_is_drawn_from_its_tables_alone(tmp_path: Path) -> None:
    save(tmp_path, goodput=goodput_table({"static": [0.1, 0.2], "orca": [20.0, 22.0]}))
    draw(tmp_path, "Costs $3, and $4", FIGURE, None, search=True)
    without = (tmp_path / "figure.svg").read_bytes()
    save(tmp_path, claims=claims_table(("orca: goodput_per_s", "20.34")))
    draw(tmp_path, "Costs $3, and $4", FIGURE, None, search=True)
    assert (tmp_path / "figure.svg").read_bytes() != without
    assert b"<dc:date>" not in without
    width, height = struct.unpack(">II", (tmp_path / "figure.png").read_bytes()[16:24])
    assert width == figures.WIDTH_IN * figures.DPI
    assert height > 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claims.csv", "figure.png", "figure.svg", "goodput.csv"]


def test_drawing_leaves_the_settings_of_the_process_alone(tmp_path: Path) -> None:
    save(tmp_path, summary=summary_table(["orca"], {}))
    names = [name for name in mpl.rcParams if "backend" not in name]
    before = [mpl.rcParams[name] for name in names]
    draw(tmp_path, "Title", FIGURE, None, search=False)
    assert [mpl.rcParams[name] for name in names] == before


@pytest.mark.parametrize("title", ["静的バッチと連続バッチ、どちらが速いか" * 9, "दो तरीके", "שתי שיטות", "a\u0378b"])
def test_characters_that_no_font_has_are_no_trouble(
    tmp_path: Path, title: str, capfd: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, summary=summary_table([title[:6], "orca"], {RATE: [1, 2]}, ["ttft_p50_s", "itl_p99_s"]))
    draw(tmp_path, title, Figure(metrics=("itl_p99_s",), against="ttft_p50_s"), None, search=False)
    draw(tmp_path, title, Figure(metrics=("itl_p99_s",)), None, search=False)
    assert capfd.readouterr() == ("", "")


def test_fonts_that_are_installed_are_fallen_back_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simserve.report.style.CJK_FONTS", ("Not There", "DejaVu Serif"))
    with style():
        assert mpl.rcParams["font.family"] == ["DejaVu Sans", "DejaVu Serif"]


def test_a_title_of_wide_characters_is_broken_earlier() -> None:
    heights = [
        panels_figure(plot_of(summary_table(["orca"], {}), ["ttft_p50_s"]), title).get_figheight()
        for title in ("a" * 90, "字" * 90)
    ]
    assert heights[1] > heights[0]


# Names and numbers.


@pytest.mark.parametrize(
    ("column", "unit", "expected"),
    [
        ("ttft_p50_s", "s", "TTFT p50 (s)"),
        ("itl_max_s", "", "ITL max (s)"),
        ("e2e_s", "", "E2E (s)"),
        ("throughput_tok_per_s", "", "throughput (tok/s)"),
        ("goodput_per_s", "1/s", "goodput (req/s)"),
        ("preemptions", "count", "preemptions"),
        ("utilization", "share", "utilization (share)"),
        ("queue_wait_s", "", "queue wait (s)"),
        ("swaps_per_s", "", "swaps (1/s)"),
    ],
)
def test_labels(column: str, unit: str, expected: str) -> None:
    assert label(column, unit) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (RATE, "arrival rate (req/s)"),
        (BATCH, "orca: max batch size"),
        ("systems.orca.order.kind", "orca: order"),
        ("workload.prompt_tokens.mean", "prompt mean"),
        ("seed", "seed"),
    ],
)
def test_labels_of_swept_paths(path: str, expected: str) -> None:
    assert path_label(path) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.1, "0.1"), (20.3412, "20.34"), (12655.7, "12,656"), (999.96, "1000"), (0.0000011, "1.1e-06"), (64.0, "64")],
)
def test_numbers(value: float, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, ""),
        ("0.10", "0.1"),
        ("the same", "the same"),
        (True, "true"),
        ('{"kind": "sjf", "predictor": {"kind": "noisy", "sigma": 0.5}}', "sjf, predictor noisy, sigma 0.5"),
        ("{not JSON", "{not JSON"),
    ],
)
def test_entries(value: object, expected: str) -> None:
    assert entry(value) == expected
