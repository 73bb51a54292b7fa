"""Centered clipping, bucketing, DnC, FoolsGold, FLAME and Bulyan, by hand and by what they promise."""

import numpy as np
import pytest
import torch
from sklearn.cluster import HDBSCAN
from toy import KEY, setup

from shoal.aggregators.bucketing import Bucketing, buckets
from shoal.aggregators.bulyan import Bulyan, middle, selected
from shoal.aggregators.centered_clip import CenteredClip, centred
from shoal.aggregators.dnc import DnC, outlying
from shoal.aggregators.flame import Flame, majority
from shoal.aggregators.foolsgold import FoolsGold, learning_rates
from shoal.aggregators.krum import Krum
from shoal.aggregators.matrix import UpdateMatrix, gram, squared_distances
from shoal.aggregators.mean import Mean
from shoal.core.errors import SpecError
from shoal.core.types import Moment, Weights

MOMENT = Moment(0, 0, True, KEY)
RULES = {
    "centered_clip": CenteredClip(),
    "bucketing": Bucketing(),
    "dnc": DnC(f=0.2),
    "foolsgold": FoolsGold(),
    "flame": Flame(noise=0.0),
    "bulyan": Bulyan(f=2),
}


def matrix(rows):
    rows = torch.as_tensor(rows, dtype=torch.float32)
    model = Weights({"w": torch.zeros(rows.shape[1])}, {})
    return UpdateMatrix(model, tuple(range(len(rows))), rows, torch.ones(len(rows)).double(), {}, {})


def stepped(rule, rows, state=None):
    updates = matrix(rows)
    outcome = rule.finish(None, rule.init(updates.model) if state is None else state, updates, MOMENT)
    return outcome.step.params["w"].numpy(), outcome


def normal(n, width, name="rows"):
    return KEY.fold(name).numpy().normal(size=(n, width))


def test_centered_clipping_by_hand():
    """From 0 with radius 1 the updates 1, 2 and 10 count 1 each; from there 1, 1 and 1 again."""
    rows = torch.tensor([[0.0], [1.0], [2.0], [10.0]])
    products, weights = gram(rows), torch.ones(3).double()
    once, counts = centred(products, weights, 1.0, 1)
    assert (once @ rows.double()).tolist() == pytest.approx([1.0])
    assert counts.tolist() == pytest.approx([1 / 3, 1 / 6, 1 / 30])
    twice, _ = centred(products, weights, 1.0, 2)
    assert (twice @ rows.double()).tolist() == pytest.approx([1 + (0 + 1 + 1) / 3])
    free, _ = centred(products, weights, 1e9, 1)
    assert (free @ rows.double()).tolist() == pytest.approx([13 / 3])  # the mean


@pytest.mark.parametrize("radius", [None, 3.0])
@pytest.mark.parametrize("far", [1.0, 1e8, 1e30])
def test_centered_clipping_goes_where_its_definition_goes(radius, far):
    """Step by step with the vectors themselves; one client is far away, and one sends what it sent before."""
    rows = normal(6, 50).astype(np.float32)
    rows[5] *= far
    start = rows[2].astype(np.float64)
    rule = CenteredClip(radius=radius, steps=4)
    found, outcome = stepped(rule, rows, torch.from_numpy(start))
    centre = start
    for _ in range(4):
        away = rows - centre
        norms = np.linalg.norm(away, axis=1)
        limit = np.median(norms) if radius is None else radius
        factors = np.minimum(1, limit / np.maximum(norms, 1e-300)) / 6
        centre = centre + factors @ away
    np.testing.assert_allclose(found, centre, rtol=1e-9, atol=1e-9)
    assert list(outcome.weights.values()) == pytest.approx(factors.tolist(), rel=1e-6)


def test_centered_clipping_starts_where_the_last_step_went():
    rule = CenteredClip(radius=1.0, steps=1)
    first, outcome = stepped(rule, [[5.0], [5.0], [5.0]])
    assert first.tolist() == [1.0]
    second, _ = stepped(rule, [[5.0], [5.0], [5.0]], outcome.state)
    assert second.tolist() == pytest.approx([2.0], rel=1e-15)


def test_buckets_hold_every_client_once():
    held = buckets(7, 3, KEY)
    assert held.shape == (3, 7)
    assert torch.equal((held > 0).sum(0), torch.ones(7))
    assert sorted((held > 0).sum(1).tolist()) == [1, 3, 3]
    assert held.sum(1).tolist() == pytest.approx([1.0] * 3)


def test_bucketing_averages_in_front_of_its_rule():
    rows = normal(6, 4)
    alone, _ = stepped(Bucketing(rule=Krum(f=0), size=1), rows)
    np.testing.assert_allclose(alone, stepped(Krum(f=0), rows)[0], atol=1e-6)
    step, outcome = stepped(Bucketing(rule=Krum(f=0), size=2), rows)
    pair = [client for client, weight in outcome.weights.items() if weight]
    assert len(pair) == 2
    np.testing.assert_allclose(step, rows[pair].mean(0), atol=1e-6)
    with pytest.raises(SpecError, match="sees all updates"):
        Bucketing(rule=Mean())
    with pytest.raises(SpecError, match="more than 2 f"):
        Bucketing(rule=Krum(f=2), size=2).check_cohort(12)


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_the_cohort_decides_nothing(name):
    rule, given = RULES[name], matrix(normal(11, 40, "cohort"))
    order = [7, 2, 10, 0, 5, 9, 1, 8, 3, 6, 4]
    other = given._replace(ids=tuple(order), rows=given.rows[order])
    one, two = (rule.finish(None, rule.init(given.model), updates, MOMENT) for updates in (given, other))
    torch.testing.assert_close(two.step.params["w"], one.step.params["w"])
    assert two.weights == pytest.approx(one.weights)


def test_outlying_by_hand():
    """On a line at 0, 0 and 3 the mean is 1: squares 1, 1 and 4."""
    lines = [[[0.0, 7.0], [0.0, 7.0], [3.0, 7.0]], [[0.0, 0.0], [1.5, 1.0], [1.5, 1.0]]]
    found = outlying(torch.stack([gram(torch.tensor(rows)) for rows in lines]))
    assert found[0].tolist() == pytest.approx([1.0, 1.0, 4.0])
    assert found[1].tolist() == pytest.approx([3.25 * share for share in (4 / 9, 1 / 9, 1 / 9)])


def test_dnc_leaves_out_the_farthest():
    step, outcome = stepped(DnC(f=1, width=2, tries=3), [[0.0, 1.0], [0.1, 1.0], [0.2, 1.0], [9.0, 1.0]])
    assert step.tolist() == pytest.approx([0.1, 1.0])
    assert outcome.weights[3] == 0.0


def test_foolsgold_by_hand():
    """Two who always agree count 0, one at right angles counts 1."""
    cosines = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]).double()
    assert learning_rates(cosines).tolist() == pytest.approx([0.0, 0.0, 1.0])
    # 0.2 -> a = 0.8 and 1; the third is pardoned: its likeness 0.2 to the first counts 0.2 * 0.2 / 0.6
    cosines = torch.tensor([[1.0, 0.6, 0.2], [0.6, 1.0, 0.0], [0.2, 0.0, 1.0]]).double()
    rates = torch.tensor([0.4, 0.4, 1 - 0.2 * 0.2 / 0.6]).double()
    rates = (rates / rates.max()).clamp(max=0.99)
    expected = ((rates / (1 - rates)).log() + 0.5).clamp(0, 1)
    assert learning_rates(cosines).tolist() == pytest.approx(expected.tolist())


def test_foolsgold_remembers():
    """Clients 0 and 1 agree over the rounds, though not in any one of them more than others."""
    rule, state = FoolsGold(), None
    for round in range(30):
        rows = 3 * normal(5, 40, f"fools {round}")
        rows[:2] += normal(1, 40, "plot")
        _, outcome = stepped(rule, rows, state)
        state = outcome.state
    assert max(outcome.weights[0], outcome.weights[1]) < 0.2 * min(outcome.weights[i] for i in (2, 3, 4))


def test_the_majority_is_a_cluster():
    honest = normal(1, 30, "centre") + 0.3 * normal(9, 30)
    rows = torch.from_numpy(np.concatenate([honest, -honest[:3]])).float()
    found = majority(gram(rows))
    assert int(found[:9].sum()) > 6
    assert found[9:].tolist() == [False] * 3
    assert majority(gram(rows[:2])).tolist() == [True] * 2
    step, outcome = stepped(Flame(noise=0.0), rows)
    assert sum(outcome.weights[i] for i in (9, 10, 11)) == 0.0
    noisy, _ = stepped(Flame(noise=0.5), rows)
    usual = float(rows.norm(dim=1).quantile(0.5))
    assert np.linalg.norm(noisy - step) == pytest.approx(0.5 * usual, rel=0.5)


@pytest.mark.parametrize("n", [3, 4, 5, 10, 11, 30])
@pytest.mark.parametrize("places", [2, 5, 10**6])  # few: many are equally far apart
def test_the_majority_is_that_of_hdbscan(n, places):
    for trial in range(20):
        draw = KEY.fold("hdbscan", n, places, trial).numpy()
        rows = torch.from_numpy(draw.integers(1, 1 + places, size=(n, 3)) / places).float()
        rows[draw.random(n) < 0.3] *= torch.tensor([1.0, -1.0, 1.0])
        products = gram(rows)
        norms = products.diagonal().sqrt()
        apart = (1 - products / norms / norms[:, None]).clamp(min=0).fill_diagonal_(0)
        clusters = HDBSCAN(
            min_cluster_size=n // 2 + 1,
            min_samples=1,
            metric="precomputed",
            allow_single_cluster=True,
            copy=True,
        )
        assert majority(products).tolist() == (clusters.fit(apart.numpy()).labels_ == 0).tolist()


def test_bulyan_by_hand():
    rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [100.0]])
    assert selected(squared_distances(gram(rows)), 1, 5) == [0, 1, 2, 3, 4]  # first 2, then 3, 1, 4 and 0
    means, kept = middle(torch.tensor([[0.0, 9.0], [1.0, 1.0], [2.0, 2.0], [9.0, 3.0]]), 2)
    assert means.tolist() == [1.5, 2.5]
    assert kept.tolist() == [0.0, 0.5, 1.0, 0.5]
    step, _ = stepped(Bulyan(f=1), rows.tolist())
    assert step.tolist() == [2.0]  # the three nearest to the median of those chosen
    with pytest.raises(SpecError, match="4 f"):
        Bulyan(f=2).check_cohort(10)


@pytest.mark.parametrize("name", RULES)
def test_equal_updates_give_that_update(name):
    step, _ = stepped(RULES[name], np.tile(normal(1, 6), (12, 1)))
    limit = 1e-5 if name != "centered_clip" else 1e-3
    np.testing.assert_allclose(step, normal(1, 6)[0], atol=limit)


@pytest.mark.parametrize("name", ["centered_clip", "dnc", "flame", "bulyan"])
def test_one_that_is_far_away_moves_little(name):
    rows = normal(1, 6, "centre") + 0.1 * normal(12, 6)
    before, _ = stepped(RULES[name], rows)
    rows[3] = 1e6
    after, _ = stepped(RULES[name], rows)
    assert np.linalg.norm(after - before) < 0.6


@pytest.mark.parametrize("name", RULES)
def test_one_and_two_clients(name):
    for n in (1, 2):
        step, _ = stepped(RULES[name], normal(n, 5))
        assert np.isfinite(step).all()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "centered_clip", "radius": 0.0}, "radius must be > 0"),
        ({"name": "centered_clip", "steps": 0}, "steps must be at least 1"),
        ({"name": "bucketing", "size": 0}, "size must be at least 1"),
        ({"name": "dnc", "tries": 0}, "tries and width must be at least 1"),
        ({"name": "flame", "noise": -1.0}, "noise must be at least 0"),
        ({"name": "bulyan", "f": 0.3}, "f must be a share"),
    ],
)
def test_bad_values_are_refused(method, message):
    with pytest.raises(SpecError, match=message):
        setup(method)
