from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from report.svg_texts import texts

from shoal.report.canvas import COLOURS, line_style, spread_apart, svg
from shoal.report.charts import (
    fairness_chart,
    final_chart,
    histogram_chart,
    metric_chart,
    metrics_chart,
)
from shoal.report.heatmap_cells import HeatMap, HeatMapCell, colours
from shoal.report.heatmap_figure import shaded_table
from shoal.report.series import Axis, Histogram


@pytest.mark.parametrize(
    ("against", "title"),
    [("rounds", "Rounds"), ("bytes", "Traffic, up and down (kB)"), ("seconds", "Time (s)")],
)
def test_axes_have_titles_with_units(make_run, against, title):
    shown = texts(metric_chart([make_run()], "accuracy", against))
    assert {title, "Test accuracy (%)"} <= set(shown)


def test_lines_are_named_at_their_end_once_there_are_several(make_run):
    assert "fedavg" not in texts(metric_chart([make_run(), make_run(seed=1)], "accuracy"))
    assert {"a", "b"} <= set(texts(metric_chart([make_run("a"), make_run("b")], "accuracy")))


def test_a_chart_of_one_point(make_run):
    runs = [make_run(label, seed=seed, rounds=1) for label in "ab" for seed in (0, 1)]
    for against in ("rounds", "bytes", "seconds"):
        assert texts(metric_chart(runs, "accuracy", against))


def test_nothing_to_show_is_no_chart(make_run):
    run = make_run(rounds=0, finished=False)
    nulls = make_run()._replace(rounds=[{"round": 1, "accuracy": None, "seconds": None}])
    for empty in (run, nulls):
        assert metric_chart([empty], "accuracy") is None
        assert metrics_chart(empty, {"loss": "Test"}, Axis("Loss")) is None
        assert fairness_chart(empty) is None
    assert final_chart([run], "final_accuracy") is None


def test_costs_over_decades_are_on_a_log_scale(make_run):
    cheap = make_run("cheap")
    dear = make_run("dear")._replace(rounds=[{**row, "bytes_up": 10**6} for row in cheap.rounds])
    assert "Traffic, up and down (MB), log scale" in texts(metric_chart([cheap, dear], "accuracy", "bytes"))


def test_errors_over_decades_are_on_a_log_scale(regression):
    steep = regression._replace(rounds=[{"round": r, "mse": 10.0 ** (4 - r)} for r in range(1, 6)])
    shown = texts(metric_chart([steep], "mse"))
    assert "Test MSE, log scale" in shown
    assert {"0.1", "10", "1,000"} <= set(shown)


def test_scores_are_never_on_a_log_scale(make_run):
    run = make_run()._replace(rounds=[{"round": r, "f1": 0.001 * 10**r} for r in (1, 2)])
    figure = metrics_chart(run, {"f1": "F1"}, Axis("Score", end=1))
    assert figure.axes[0].get_yscale() == "linear"
    assert metric_chart([run], "f1").axes[0].get_yscale() == "linear"


def test_a_band_that_reaches_below_zero_survives_a_log_scale(regression):
    runs = [
        regression._replace(rounds=[{"round": r, "mse": 100.0**-r * f} for r in (1, 2, 3)])
        for f in (1.0, 9.0)
    ]
    assert texts(metric_chart(runs, "mse"))


def test_the_fairness_chart_names_its_lines(make_run):
    assert {"Global test set", "Mean client", "Worst tenth", "Accuracy (%)"} <= set(
        texts(fairness_chart(make_run()))
    )


def test_final_values_have_the_best_on_top(make_run, regression):
    runs = [
        make_run("low", summary={"final_accuracy": 0.1}),
        make_run("high", summary={"final_accuracy": 0.9}),
    ]
    figure = final_chart(runs, "final_accuracy")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["low", "high"]
    worse = regression._replace(label="worse", summary={"final_mse": 99.0})
    figure = final_chart([regression, worse], "final_mse")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["worse", "fsi"]


def test_labels_are_shown_as_they_are(make_run):
    odd = ["$a_1$ & <b>", "群れ", "bell\x07", "x" * 80]
    shown = texts(metric_chart([make_run(label) for label in odd], "accuracy"))
    assert {"$a_1$ & <b>", "群れ", "bell ", "x" * 25 + "…"} <= set(shown)


def test_many_labels_have_looks_of_their_own(make_run):
    looks = {str(line_style(slot)) for slot in range(4 * len(COLOURS))}
    assert len(looks) == 4 * len(COLOURS)
    assert texts(metric_chart([make_run(f"m{i}") for i in range(20)], "accuracy"))


def test_the_same_figure_gives_the_same_bytes_and_leaves_the_settings_alone(make_run):
    before = dict(matplotlib.rcParams)
    runs = [make_run("a"), make_run("b", seed=1)]
    assert svg(metric_chart(runs, "accuracy"), "x") == svg(metric_chart(runs, "accuracy"), "x")
    assert dict(matplotlib.rcParams) == before


def test_texts_stay_texts_and_no_date_is_written(make_run):
    text = svg(metric_chart([make_run()], "accuracy"), "x")
    assert "<text" in text
    assert "<metadata" not in text
    assert "Matplotlib" not in text


def test_bars_of_nothing():
    assert texts(histogram_chart(Histogram(np.zeros(3, np.int64), np.arange(4)), "Rounds", "Replies"))


def test_a_bar_that_dwarfs_the_others_is_on_a_log_scale():
    uneven = Histogram(np.array([999_000, 1000, 0, 2]), np.arange(5))
    shown = texts(histogram_chart(uneven, "Rounds", "Clients"))
    assert {"Clients, log scale", "1,000,000", "1"} <= set(shown)
    even = Histogram(np.array([30, 1]), np.arange(3))
    assert "Clients" in texts(histogram_chart(even, "Rounds", "Clients"))


def test_many_bars_are_one_shape():
    few, many = (
        histogram_chart(Histogram(np.ones(n, np.int64), np.arange(n + 1)), "x", "y") for n in (9, 5000)
    )
    assert len(few.axes[0].patches) == 9
    assert len(many.axes[0].patches) == 1


def test_places_are_spread_around_where_they_were():
    assert spread_apart([0.5, 0.1], 0.1) == [0.5, 0.1]
    assert spread_apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert spread_apart([1.0, 1.0, 0.99], 0.1) == pytest.approx([0.9, 1.0, 0.8])
    assert spread_apart([0.0, 0.05], 0.2) == pytest.approx([0.0, 0.2])


def test_a_second_metric_stands_beside_the_final_one(make_run):
    run = make_run()
    tuned = run._replace(summary={**run.summary, "finetuned_mean_client_accuracy": 0.9})
    beside = "finetuned_mean_client_accuracy"
    (axes,) = final_chart([tuned], "mean_client_accuracy", beside=beside).axes
    (diamond,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert diamond.get_xdata()[0] == pytest.approx(90)
    (axes,) = final_chart([run], "mean_client_accuracy", beside=beside).axes
    assert not [line for line in axes.lines if line.get_marker() == "D"]


def test_a_table_of_shades_has_all_names_and_numbers_and_no_colour_where_there_is_none():
    heat = HeatMap(
        "Accuracy", "", ["clean", "sign_flip"], {"a": [HeatMapCell("1.0", 1.0), HeatMapCell("2.0")]}
    )
    figure = shaded_table(heat)
    assert {"Accuracy", "clean", "a", "1.0", "2.0"} <= set(texts(figure))
    deep, none = figure.axes[0].patches
    assert matplotlib.colors.to_hex(none.get_facecolor()) == "#ffffff"
    assert matplotlib.colors.to_hex(deep.get_facecolor()) == colours(1.0)[0]
