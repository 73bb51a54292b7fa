from __future__ import annotations

import pytest

from shoal.report.series import (
    is_regression,
    last,
    metric_curves,
    own_metrics,
    participation,
    participation_histogram,
    rejections,
    total,
)


def values(*numbers):
    return [
        {"round": r, "accuracy": v, "seconds": 2.0, "bytes_up": 1, "bytes_down": 9}
        for r, v in enumerate(numbers, 1)
    ]


def test_seeds_of_a_label_become_mean_and_deviation(make_run):
    runs = [make_run(rounds=0, **{"seed": s}) for s in (0, 1)]
    runs = [run._replace(rounds=values(0.2 + s * 0.2, 0.6)) for s, run in enumerate(runs)]
    (curve,) = metric_curves(runs, "accuracy")
    assert curve.x.tolist() == [1, 2]
    assert curve.mean == pytest.approx([0.3, 0.6])
    assert curve.std == pytest.approx([0.2 / 2**0.5, 0.0])  # two values 0.2 apart


def test_costs_add_up_and_count_rounds_that_were_not_evaluated(make_run):
    run = make_run()._replace(rounds=values(0.1, None, 0.3))
    assert metric_curves([run], "accuracy", "seconds")[0].x.tolist() == [2, 6]
    assert metric_curves([run], "accuracy", "bytes")[0].x.tolist() == [10, 30]


def test_an_unknown_cost_gives_no_curve(make_run):
    assert metric_curves([make_run()], "accuracy", "virtual_seconds") == []


def test_curves_end_with_the_shortest_seed(make_run):
    runs = [make_run(rounds=4), make_run(seed=1, rounds=2)]
    assert metric_curves(runs, "accuracy")[0].x.tolist() == [1, 2]


def test_a_label_keeps_its_slot_where_another_has_no_curve(make_run):
    runs = [make_run("a")._replace(rounds=[]), make_run("b")]
    assert [(curve.label, curve.slot) for curve in metric_curves(runs, "accuracy")] == [("b", 1)]


def test_values_that_are_not_finite_are_left_out(make_run):
    run = make_run()._replace(rounds=values(0.1, float("nan"), float("inf"), None, 0.5))
    assert metric_curves([run], "accuracy")[0].x.tolist() == [1, 5]
    assert last(run, "accuracy") == 0.5
    assert last(run, "f1") is None


def test_totals_come_from_the_summary_or_from_what_is_there(make_run):
    assert total(make_run(), "bytes_up") == 4000
    assert total(make_run(finished=False, rounds=3), "bytes_up") == 3000
    assert total(make_run(finished=False), "virtual_seconds") is None


def test_participation_counts_those_who_never_came(make_run):
    run = make_run()._replace(
        rounds=[{"round": 1, "cohort": [3, 1]}, {"round": 2, "cohort": [3]}, {"round": 3}]
    )
    rounds = participation(run)
    assert rounds == {"3": 2, "1": 1}
    histogram = participation_histogram(rounds, 10**6)
    assert histogram.heights.tolist() == [10**6 - 2, 1, 1]
    assert histogram.edges.tolist() == [0, 1, 2, 3]
    assert participation_histogram(rounds, None).heights.tolist() == [1, 1]
    assert participation_histogram(rounds, None).edges.tolist() == [1, 2, 3]


def test_even_participation_has_no_histogram():
    assert participation_histogram({}, None) is None
    assert participation_histogram({}, 5) is None
    assert participation_histogram({"0": 3, "1": 3}, 2) is None


def test_a_histogram_has_few_bins_and_counts_everybody():
    times = {str(client): 70 + client % 95 for client in range(1000)}
    heights, edges = participation_histogram(times, 1000)
    assert len(heights) <= 40
    assert heights.sum() == 1000
    assert (edges[0], edges[1] - edges[0]) == (70, 3)
    assert edges[-1] > 164
    assert heights[0] == sum(count < 73 for count in times.values())


def test_own_metrics_are_the_other_numbers(make_run):
    run = make_run()
    rounds = [{**row, "best_loss": None, "weights": {"1": 0.5}} for row in run.rounds]
    rounds[2]["best_loss"] = 0.5
    assert own_metrics([run._replace(rounds=rounds)]) == ["best_loss"]


def test_rejections_are_listed_in_order(make_run):
    rounds = [
        {"round": 1, "rejected": [{"client": 3, "reason": "late"}]},
        {"round": 2, "rejected": None},
        {"round": 3, "rejected": [{"client": 1}]},
    ]
    found = rejections(make_run()._replace(rounds=rounds))
    assert [tuple(entry) for entry in found] == [(1, "3", "late"), (3, "1", "no reason given")]


def test_regressions_are_known_by_their_error(make_run, regression):
    assert is_regression([regression])
    assert not is_regression([make_run()])
    assert not is_regression([regression, make_run()])
    assert not is_regression([make_run(rounds=0, finished=False)])
