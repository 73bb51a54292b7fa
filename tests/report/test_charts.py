from __future__ import annotations

import io
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest

from shoal.core.errors import SpecError
from shoal.report.canvas import COLOURS, look, spread_apart, svg
from shoal.report.charts import (
    bar_chart,
    fairness_chart,
    final_chart,
    metric_chart,
    metrics_chart,
    partition_picture,
)
from shoal.report.series import Quantity


def texts(figure) -> list[str]:
    """The texts of a figure, by way of its SVG, which must be XML."""
    root = ET.fromstring(svg(figure, "test"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


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
        assert metrics_chart(empty, {"loss": "Test"}, Quantity("Loss")) is None
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
    figure = metrics_chart(run, {"f1": "F1"}, Quantity("Score", end=1))
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
    looks = {str(look(slot)) for slot in range(4 * len(COLOURS))}
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


def test_bars_of_nothing(make_run):
    assert texts(bar_chart(np.zeros(3, np.int64), "Rounds", "Replies"))


def test_places_are_spread_around_where_they_were():
    assert spread_apart([0.5, 0.1], 0.1) == [0.5, 0.1]
    assert spread_apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert spread_apart([1.0, 1.0, 0.99], 0.1) == pytest.approx([0.9, 1.0, 0.8])
    assert spread_apart([0.0, 0.05], 0.2) == pytest.approx([0.0, 0.2])


@pytest.mark.parametrize(("clients", "classes"), [(4, 2), (1, 1), (100, 10), (1000, 100)])
def test_partition_pictures_of_all_sizes(clients, classes):
    counts = np.arange(clients * classes).reshape(clients, classes) % 37
    figure = partition_picture(counts, [], "mnist5k, dirichlet (beta = 0.1)")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=60)
    assert out.getvalue().startswith(b"\x89PNG")
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert len(shown) == (np.count_nonzero(counts) if clients <= 16 else 0)


def test_a_partition_picture_says_what_it_shows():
    counts = np.array([[120, 0], [3, 88], [40, 41], [0, 5000]])
    shown = texts(partition_picture(counts, ["healthy", "ill"], "heart"))
    assert {"healthy", "ill", "Client", "Class", "4 clients, 2 classes, 5,292 samples", "5,000"} <= set(shown)
    assert any("square-root" in text for text in shown)
    assert "0" not in [text.get_text() for text in partition_picture(counts, [], "heart").axes[0].texts]


def test_a_partition_in_which_nobody_holds_anything():
    assert texts(partition_picture(np.zeros((4, 2), np.int64), [], "empty"))


@pytest.mark.parametrize(
    ("counts", "names", "told"),
    [
        (np.zeros((4, 0)), [], "no classes"),
        (np.zeros(4), [], "shape"),
        (np.ones((4, 2), np.int64), ["one"], "each of the 2 classes, got 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(counts, names, told):
    with pytest.raises(SpecError, match=told):
        partition_picture(counts, names, "x")
