"""The robust rules, by hand and by what their authors promise."""

import math

import numpy as np
import pytest
import torch
from toy import KEY, played, setup

from shoal.aggregators import AGGREGATORS
from shoal.aggregators.aggregator import count_of, moved
from shoal.aggregators.dsvd import Similarity
from shoal.aggregators.geomedian import GeometricMedian, weiszfeld
from shoal.aggregators.krum import Krum, MultiKrum, krum_scores
from shoal.aggregators.matrix import gram, squared_distances
from shoal.aggregators.normclip import ClippedMean
from shoal.aggregators.trimmed_mean import Median, TrimmedMean, trimmed
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, Moment, Weights
from shoal.loop import advance, start

RULES = {
    "krum": Krum(f=0.2),
    "multikrum": MultiKrum(f=0.2),
    "median": Median(),
    "trimmed_mean": TrimmedMean(trim=0.2),
    "geomedian": GeometricMedian(),
    "normclip": ClippedMean(),
    "dsvd": Similarity(),
}
EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
MOMENT = Moment(0, 0, True, KEY)


def model(values, var=1.0, seen=0):
    return Weights(
        {"w": torch.tensor(values)}, {"running_var": torch.tensor([var]), "seen": torch.tensor(seen)}
    )


def finished(rule, here, acc):
    """The model after the step, and the weights that are recorded."""
    outcome = rule.finish(None, rule.init(here), acc, MOMENT)
    return moved(here, outcome.step), outcome.weights


def apply(rule, rows, weights=None, variances=None, order=None):
    """What a rule makes of updates [n, 2] of a model at 0, and the weights it records."""
    here = model([0.0] * len(rows[0]))
    n = len(rows)
    acc = rule.begin(rule.init(here), here, Cohort(tuple(range(10, 10 + n)), {}, 50))
    for i in order or range(n):
        change = model(list(map(float, rows[i])), 0.0 if variances is None else variances[i], i)
        acc = rule.fold(acc, 10 + i, here, change, 1.0 if weights is None else weights[i])
    return finished(rule, here, acc)


def points(n, width, name):
    return KEY.fold(name).numpy().normal(size=(n, width)).astype(np.float32)


# ---- by hand


def test_krum_by_hand():
    """On a line at 0, 1, 3, 4, 5 and 100 with f = 1, the three nearest others decide."""
    rows = torch.tensor([[0.0], [1.0], [3.0], [4.0], [5.0], [100.0]])
    squares = squared_distances(gram(rows))
    assert krum_scores(squares, 1).tolist() == [
        1 + 9 + 16,
        1 + 4 + 9,
        1 + 4 + 4,
        1 + 1 + 9,
        1 + 4 + 16,
        95**2 + 96**2 + 97**2,
    ]
    after, weights = apply(Krum(f=1), rows.tolist())
    assert after.params["w"].tolist() == [3.0]
    assert weights == {10: 0.0, 11: 0.0, 12: 1.0, 13: 0.0, 14: 0.0, 15: 0.0}
    after, weights = apply(MultiKrum(f=1, m=3), rows.tolist())
    assert after.params["w"].item() == pytest.approx((3 + 4 + 1) / 3)
    after, weights = apply(MultiKrum(f=1), rows.tolist())
    assert after.params["w"].item() == pytest.approx(13 / 5)
    assert weights[15] == 0


def test_coordinates_by_hand():
    rows = [[1.0, 50.0], [2.0, 7.0], [4.0, 6.0], [9.0, 1.0]]
    after, _ = apply(Median(), rows)
    assert after.params["w"].tolist() == [3.0, 6.5]  # the mean of the middle two
    after, _ = apply(Median(), rows[:3])
    assert after.params["w"].tolist() == [2.0, 7.0]
    after, _ = apply(TrimmedMean(trim=1), rows)
    assert after.params["w"].tolist() == [3.0, 6.5]
    five = [*rows, [0.0, 0.0]]
    after, _ = apply(TrimmedMean(trim=1), five)
    assert after.params["w"].tolist() == pytest.approx([7 / 3, 14 / 3])


def test_the_share_of_coordinates_that_a_client_decides():
    rows = torch.tensor([[1.0, 5.0, 2.0], [2.0, 6.0, 2.0], [3.0, 7.0, 9.0]])
    _, shares = trimmed(rows, 1)
    assert shares.tolist() == pytest.approx([0.5 / 3, 2.5 / 3, 0.0])  # equal numbers share a place
    assert trimmed(rows, 0)[1].tolist() == pytest.approx([1 / 3] * 3)


def test_clipping_by_hand():
    rows = [[3.0, 4.0], [0.6, 0.8], [0.0, 0.0]]
    after, weights = apply(ClippedMean(clip=2.0), rows)
    assert after.params["w"].tolist() == pytest.approx([(1.2 + 0.6) / 3, (1.6 + 0.8) / 3])
    assert weights == pytest.approx({10: 0.4 / 3, 11: 1 / 3, 12: 1 / 3})
    after, _ = apply(ClippedMean(), rows)  # the median norm is 1
    assert after.params["w"].tolist() == pytest.approx([(0.6 + 0.6) / 3, (0.8 + 0.8) / 3])
    after, _ = apply(ClippedMean(clip=2.0), rows, weights=[3.0, 1.0, 0.0])
    assert after.params["w"].tolist() == pytest.approx([(3 * 1.2 + 0.6) / 4, (3 * 1.6 + 0.8) / 4])


def test_the_geometric_median_of_points_on_a_line_is_their_median():
    line = torch.tensor([[1.0, 2.0]]) * torch.tensor([[-3.0], [0.0], [1.0], [8.0], [90.0]])
    after, _ = apply(GeometricMedian(iterations=2000, smoothing=1e-9), line.tolist())
    assert after.params["w"].tolist() == pytest.approx([1.0, 2.0], abs=1e-3)


def test_the_geometric_median_of_a_triangle():
    """Fermat's point sees the sides of a triangle under 120 degrees."""
    rows = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]])
    after, _ = apply(GeometricMedian(), rows.tolist())
    rays = rows - after.params["w"]
    rays = rays / rays.norm(dim=1, keepdim=True)
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert float(rays[i] @ rays[j]) == pytest.approx(-0.5, abs=1e-3)


def test_a_weight_of_two_is_two_clients_to_the_geometric_median():
    rows = points(4, 3, "weighted")
    once = weiszfeld(
        squared_distances(gram(torch.tensor(rows))), torch.tensor([2.0, 1, 1, 1]).double(), 50, 1e-5
    )
    twice = weiszfeld(
        squared_distances(gram(torch.tensor(rows[[0, 0, 1, 2, 3]]))), torch.ones(5).double(), 50, 1e-5
    )
    assert float(once[0]) == pytest.approx(float(twice[0] + twice[1]), abs=1e-6)


# ---- what every rule promises


@EVERY
def test_equal_updates_give_that_update(rule):
    after, _ = apply(rule, [[1.0, -2.0]] * 7)
    assert after.params["w"].tolist() == pytest.approx([1.0, -2.0])


@EVERY
def test_one_liar_has_bounded_influence(rule):
    rows = points(9, 4, "honest")
    near, *far = (
        apply(rule, [*rows.tolist(), (size * np.ones(4)).tolist()])[0].params["w"]
        for size in (1e3, 1e6, 1e16, 1e20, 1e30)
    )
    farthest = np.linalg.norm(rows, axis=1).max()
    for found in far:
        assert float(found.norm()) <= farthest
        assert float((found - near).norm()) < 0.1
    mean = np.vstack([rows, 1e6 * np.ones(4)]).mean(0)
    assert np.linalg.norm(mean) > 1e4


@EVERY
def test_scaling_all_updates_scales_the_step(rule):
    rows = points(8, 5, "scaled")
    once, thrice = (apply(rule, (size * rows).tolist())[0].params["w"] for size in (1.0, 3.0))
    torch.testing.assert_close(thrice, 3 * once, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in RULES if name not in ("normclip", "dsvd")])
def test_shifting_all_updates_shifts_the_step(name):
    rows = points(8, 5, "shifted")
    here, there = (apply(RULES[name], (rows + shift).tolist())[0].params["w"] for shift in (0.0, 2.0))
    torch.testing.assert_close(there, here + 2, rtol=1e-4, atol=1e-4)


@EVERY
def test_the_order_of_replies_changes_no_bit(rule):
    rows = points(6, 5, "order").tolist()
    first, second = (apply(rule, rows, order=order) for order in (range(6), [3, 0, 5, 1, 4, 2]))
    assert torch.equal(first[0].params["w"], second[0].params["w"])
    assert first[1] == second[1]


@EVERY
@pytest.mark.parametrize("n", [1, 2, 3])
def test_one_two_or_three_replies_are_enough_for_a_step_no_longer_than_theirs(rule, n):
    rows = points(n, 3, "few")
    after, weights = apply(rule, rows.tolist())
    assert np.linalg.norm(after.params["w"]) <= np.linalg.norm(rows, axis=1).max() + 1e-6
    assert len(weights) == n


@EVERY
def test_replies_that_are_lost_are_left_out(rule):
    here = model([0.0, 0.0])
    acc = rule.begin(rule.init(here), here, Cohort(tuple(range(12)), {}, 12))
    for client in (3, 8):
        acc = rule.fold(acc, client, here, model([1.0, 2.0]), 1.0)
    after, weights = finished(rule, here, acc)
    assert after.params["w"].tolist() == [1.0, 2.0]
    assert set(weights) == {3, 8}


@EVERY
def test_what_a_client_was_sent_counts(rule):
    here = model([1.0, 1.0])
    acc = rule.begin(rule.init(here), here, Cohort((0, 1, 2), {}, 3))
    for client in range(3):
        acc = rule.fold(acc, client, model([3.0, 1.0]), model([0.0, 0.5]), 1.0)
    assert finished(rule, here, acc)[0].params["w"].tolist() == pytest.approx([3.0, 1.5])


@EVERY
def test_buffers_follow_the_rule_and_variances_stay_variances(rule):
    rows = [[0.0, 0.1 * i] for i in range(6)]
    after, _ = apply(rule, rows, variances=[0.5] * 6)
    assert after.buffers["running_var"].item() == pytest.approx(1.5, abs=0.05)  # clipping shortens some
    assert after.buffers["seen"].item() == 5  # counters: the largest
    after, _ = apply(rule, rows, variances=[-7.0] * 6)
    assert after.buffers["running_var"].item() == 0.0
    after, _ = apply(rule, [[0.0, 0.1 * i] for i in range(8)], variances=[0.5] * 7 + [1e6])
    assert after.buffers["running_var"].item() < 3  # no door for an attacker


@pytest.mark.parametrize(
    "rule", [GeometricMedian(), ClippedMean(clip=100.0), Similarity(temperature=math.inf)]
)
def test_who_was_drawn_twice_counts_as_two(rule):
    here, rows = model([0.0, 0.0]), points(3, 2, "drawn")

    def after(counts, clients):
        acc = rule.begin(rule.init(here), here, Cohort(tuple(range(len(clients))), {"count": counts}, 9))
        for place, client in enumerate(clients):
            acc = rule.fold(acc, place, here, model(rows[client].tolist()), 1.0)
        return finished(rule, here, acc)[0].params["w"]

    torch.testing.assert_close(
        after((2, 1, 1), [0, 1, 2]), after((1, 1, 1, 1), [0, 0, 1, 2]), rtol=1e-4, atol=1e-5
    )


# ---- in a federation


@pytest.mark.parametrize("name", [name for name in RULES if name != "krum"])
def test_an_aggregator_serves_any_method_and_records_weights(name):
    made = setup({"name": "fedavg", "weights": "uniform", "aggregator": name}, selector="all")
    _, record = advance(made.federation, start(made.federation))
    weights = record.metrics["weights"]
    assert set(weights) == set(range(8))
    assert all(0 <= weight <= 1 for weight in weights.values())
    assert isinstance(made.federation.method.aggregator, AGGREGATORS[name])


def test_where_every_client_is_sent_another_model():
    made = setup({"name": "fedmut", "aggregator": {"name": "krum", "f": 1}}, selector="all")
    progress, _ = advance(made.federation, start(made.federation))
    _, record = advance(made.federation, progress)
    assert sorted(record.metrics["weights"].values()) == [0.0] * 7 + [1.0]


@pytest.mark.parametrize(
    "method",
    [
        {"name": "trimmed_mean", "trim": 0},
        {"name": "normclip", "clip": float("inf")},
        {"name": "multikrum", "f": 0},
    ],
    ids=lambda method: method["name"],
)
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_neutral_value_is_fedavg(method, norm):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    first, second = (
        played(m, 3, task=task).state.model for m in (method, {"name": "fedavg", "weights": "uniform"})
    )
    for name, value in second.params.items():
        torch.testing.assert_close(first.params[name], value, rtol=1e-6, atol=1e-6)
    for name, value in second.buffers.items():
        torch.testing.assert_close(first.buffers[name], value, rtol=1e-6, atol=1e-6)


# ---- refusals


def test_how_many_attackers_may_be_a_number_or_a_share():
    assert [count_of(0.3, 20), count_of(6, 20), count_of(0.29, 100), count_of(0.2, 4)] == [6, 6, 29, 0]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "krum", "f": 3}, r"more than 2 f \+ 2 = 8 clients"),
        ({"name": "multikrum", "f": 0.49}, r"expects 3 attackers among 8 clients"),
        ({"name": "trimmed_mean", "trim": 4}, r"drops 8 of 8 clients a round"),
    ],
)
def test_too_few_clients_are_refused_before_anybody_trains(method, message):
    made = setup(method, selector="all")
    progress = start(made.federation)
    with pytest.raises(SpecError, match=message):
        made.federation.method.begin(progress.state, Cohort(tuple(range(8)), {}, 8))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "krum", "f": 0.6}, r"f must be a share of the clients in \[0, 0.5\)"),
        ({"name": "krum", "f": 2.5}, "or a whole number of them, got 2.5"),
        ({"name": "krum", "f": -1}, "got -1"),
        ({"name": "multikrum", "m": 0}, "m must be at least 1"),
        ({"name": "trimmed_mean", "trim": 0.5}, "trim must be a share"),
        ({"name": "geomedian", "iterations": 0}, "iterations must be at least 1"),
        ({"name": "geomedian", "smoothing": 0.0}, "smoothing must be > 0"),
        ({"name": "normclip", "clip": 0.0}, "clip must be > 0"),
    ],
)
def test_bad_values_are_refused(method, message):
    with pytest.raises(SpecError, match=message):
        setup(method)
