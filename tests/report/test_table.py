from __future__ import annotations

import math

import pytest

from shoal.report.table import (
    NOTHING,
    Row,
    Stat,
    comparison_rows,
    human_bytes,
    human_seconds,
    marks,
    shown_columns,
    stat_text,
)


def test_mean_and_sample_deviation_by_hand(make_run):
    # 0.80, 0.84, 0.88: the mean is 0.84, the squared deviations sum to 0.0032, and 0.0032 / 2 = 0.04 ** 2.
    runs = [
        make_run("a", seed=s, summary={"final_accuracy": 0.80 + 0.04 * s, "bytes_up": 10 * s})
        for s in range(3)
    ]
    (row,) = comparison_rows(runs)
    assert row.label == "a"
    assert (row.seeds, row.finished) == (3, 3)
    assert row.final_accuracy == pytest.approx(Stat(0.84, 0.04))
    assert row.bytes_up == pytest.approx(Stat(10.0, 10.0))
    assert row.final_mse is None
    assert row.seconds is None


def test_one_seed_has_no_deviation(make_run):
    (row,) = comparison_rows([make_run()])
    assert row.final_accuracy == Stat(0.4, 0.0)


def test_rows_keep_the_order_of_appearance(make_run):
    assert [row.label for row in comparison_rows([make_run("b"), make_run("a"), make_run("b", seed=1)])] == [
        "b",
        "a",
    ]


def test_unfinished_runs_and_nulls_do_not_count(make_run):
    runs = [
        make_run(summary={"final_accuracy": 0.5, "seconds": None}),
        make_run(finished=False),
        make_run(summary={"final_accuracy": float("nan"), "seconds": None}),
    ]
    (row,) = comparison_rows(runs)
    assert (row.seeds, row.finished) == (3, 2)
    assert row.final_accuracy == Stat(0.5, 0.0)
    assert row.seconds is None


def test_no_runs_make_no_rows():
    assert comparison_rows([]) == []


def test_only_columns_with_numbers_are_shown(regression):
    assert list(shown_columns(comparison_rows([regression]))) == [
        "final_mse",
        "bytes_up",
        "bytes_down",
        "seconds",
    ]


def row(mean: float | None, std: float = 0.0, metric: str = "final_accuracy") -> Row:
    return Row("x", 3, 3)._replace(**{metric: None if mean is None else Stat(mean, std)})


def test_the_best_and_its_ties_are_marked():
    rows = [row(0.90, 0.02), row(0.885, 0.001), row(0.87), row(None)]
    assert marks(rows, "final_accuracy") == ["best", "tie", "", ""]


def test_of_errors_the_lowest_is_best():
    rows = [row(9.0, 0.5, "final_mse"), row(8.0, 0.5, "final_mse"), row(8.4, 3.0, "final_mse")]
    assert marks(rows, "final_mse") == ["", "best", "tie"]


def test_marks_do_not_depend_on_the_order_of_equal_means():
    rows = [row(0.9, 0.0), row(0.9, 0.05), row(0.88), row(0.5)]
    assert marks(rows, "final_accuracy") == ["best", "best", "tie", ""]
    assert marks(rows[::-1], "final_accuracy") == ["", "tie", "best", "best"]


def test_nothing_is_marked_with_fewer_than_three_seeds():
    rows = [row(0.9)._replace(finished=2), row(0.5)]
    assert marks(rows, "final_accuracy") == ["", ""]


@pytest.mark.parametrize("rows", [[], [row(None)], [row(0.5)], [row(0.5), row(0.5)]])
def test_no_news_is_not_marked(rows):
    assert set(marks(rows, "final_accuracy")) <= {""}


@pytest.mark.parametrize(
    ("metric", "stat", "text"),
    [
        ("final_accuracy", Stat(0.87312, 0.00421), "87.31 ± 0.42"),
        ("final_accuracy", Stat(0.87312, 0.0), "87.31"),
        ("final_accuracy", Stat(1.0, 0.00001), "100.00"),
        ("final_mse", Stat(23.1956, 0.51), "23.20 ± 0.51"),
        ("final_mse", Stat(0.012345, 0.0001), "0.01235 ± 0.00010"),
        ("final_mse", Stat(0.0, 0.0), "0.000"),
        ("bytes_up", Stat(31_234_567, 0), "31.2 MB"),
        ("bytes_up", Stat(31_234_567, 2_000_000), "31.2 ± 2.0 MB"),
        ("bytes_up", Stat(0, 0), "0 B"),
        ("seconds", Stat(12.34, 0.5), "12.3 ± 0.5 s"),
        ("seconds", Stat(600, 30), "10.0 ± 0.5 min"),
        ("seconds", None, NOTHING),
    ],
)
def test_stat_text(metric, stat, text):
    assert stat_text(metric, stat) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.00 kB"),
        (1000, "1.00 kB"),
        (62_006, "62.0 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (9_995_000, "9.99 MB"),
        (9_996_000, "10.0 MB"),
        (1.5e12, "1.50 TB"),
        (1.5e16, "15000 TB"),
        (None, NOTHING),
        (math.nan, NOTHING),
    ],
)
def test_human_bytes(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.0042, "4.2 ms"),
        (0.85, "850 ms"),
        (0.9996, "1.0 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245.2, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7980, "2 h 13 min"),
        (86_375, "1 d 00 h"),
        (273_600, "3 d 04 h"),
        (None, NOTHING),
        (math.inf, NOTHING),
    ],
)
def test_human_seconds(seconds, text):
    assert human_seconds(seconds) == text
