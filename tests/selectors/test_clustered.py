import math

import numpy as np
import pytest
import torch
from toy import KEY

from shoal import SpecError
from shoal.core.types import ModelUpdate, Moment, Reply, Weights
from shoal.selectors import last_updates
from shoal.selectors.clustered import Clustered, Seen, by_similarity, by_size, cut, ward
from shoal.selectors.last_updates import LastUpdates, distances_between

NOBODY = Seen({}, LastUpdates({}))


def moment(key):
    return Moment(0, 0, False, key)


def matrix(shares, clients):
    """[m, clients]: W_1, ..., W_m."""
    begins = np.cumsum(shares.masses) - shares.masses
    found = np.zeros((int(shares.masses.sum()) // shares.capacity, clients))
    np.add.at(found, (begins // shares.capacity, shares.clients), shares.masses / shares.capacity)
    return found


def random_distances(clients):
    points = KEY.fold("points").numpy().normal(size=(clients, 3))
    return np.linalg.norm(points[:, None] - points, axis=2)


def both(counts, draws):
    """The distributions of both algorithms."""
    counts = np.array(counts)
    similar = by_similarity(counts, draws, random_distances(len(counts)), KEY)
    return [matrix(shares, len(counts)) for shares in (by_size(counts, draws), similar)]


def dirichlet(clients, beta):
    shares = KEY.fold("dirichlet", clients).numpy().dirichlet([beta] * clients)
    return np.round(10_000 * shares).astype(np.int64)


POPULATIONS = {
    "uniform": ([7] * 100, 10),
    "odd": ([7] * 23, 5),
    "dirichlet": (dirichlet(100, 1.0), 10),
    "skewed": (dirichlet(30, 0.1), 10),
    "heavy": ([500, 100, 100, 100, 100, 100], 3),
    "very heavy": ([900, 20, 20, 20, 20, 20], 4),
    "two heavy": ([450, 350, 50, 50, 50, 50], 4),
    "whole": ([2, 1, 1], 4),
    "empty": ([0, 5, 0, 5, 3], 2),
    "one": ([5], 1),
}


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_distributions_have_the_clients_shares_as_their_mean(name):
    counts, draws = POPULATIONS[name]
    wanted = np.array(counts) / np.sum(counts)
    for found in both(counts, draws):
        assert found.shape == (draws, len(counts))
        assert found.min() >= 0
        assert np.abs(found.sum(1) - 1).max() < 1e-12
        assert np.abs(found.mean(0) - wanted).max() < 1e-12


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_variance_is_no_larger_than_that_of_independent_draws(name):
    counts, draws = POPULATIONS[name]
    shares = np.array(counts) / np.sum(counts)
    for found in both(counts, draws):
        variance = (found * (1 - found)).sum(0)  # of how often each client is drawn
        assert (variance <= draws * shares * (1 - shares) + 1e-12).all()


def test_pouring_by_hand():
    """Masses 8, 6 and 6 into bins of 10: the second client is split at the border."""
    assert matrix(by_size(np.array([4, 3, 3]), 2), 3).tolist() == [[0.8, 0.2, 0.0], [0.0, 0.4, 0.6]]


def test_heavy_clients_by_hand():
    """Half of all samples and three draws: one bin of its own, and half of another."""
    found = matrix(by_size(np.array([6, 3, 3]), 3), 3)
    assert found.tolist() == [[0.0, 0.75, 0.25], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]


def test_everybody_once():
    for found in both([9] * 12, 12):
        assert (found.max(1) == 1).all()
        assert found.sum(0).tolist() == [1] * 12


def test_unlike_groups_never_mix_where_their_masses_fit():
    gradients = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]
    groups = np.array([0, 1, 0, 1, 1, 0, 0, 1])
    for distance in ("cosine", "l2", "l1"):
        between = distances_between([gradients[group] for group in groups], distance)
        found = matrix(by_similarity(np.full(8, 5), 2, between, KEY), 8)
        assert all(len(set(groups[row > 0])) == 1 for row in found)


def test_the_rest_fills_what_the_kept_clusters_leave_free():
    """Three groups and two bins: the lightest group is poured, the others stay together."""
    positions = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 9.0])
    between = np.abs(positions[:, None] - positions)
    counts = np.array([2, 2, 2, 2, 2, 1, 3])
    found = matrix(by_similarity(counts, 2, between, KEY), 7)
    kept = [set(np.flatnonzero(row > 0)) - {6} for row in found]
    assert sorted(map(sorted, kept)) == [[0, 1, 2], [3, 4, 5]]
    assert found[:, 6].tolist() == pytest.approx([1 / 7, 2 / 7])


def test_cutting_by_hand():
    positions = np.array([0.0, 0.1, 5.0, 5.1])
    tree = ward(np.abs(positions[:, None] - positions))
    groups = [cut(tree, np.array([3, 3, 2, 2]), limit).tolist() for limit in (10, 6, 5, 3)]
    assert [len(set(group)) for group in groups] == [1, 2, 3, 4]
    assert groups[1][0] == groups[1][1] != groups[1][2] == groups[1][3]
    assert groups[2][2] == groups[2][3]


def test_distances_by_hand(monkeypatch):
    gradients = [
        torch.tensor(v) for v in ([1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [3.0, 3.0, 0.0], [0.0, 0.0, 0.0])
    ]
    quarter = math.pi / 4
    expected = {
        "cosine": [[0, quarter, 0, 0], [quarter, 0, quarter, 0], [0, quarter, 0, 0], [0, 0, 0, 0]],
        "l2": [[0, 1, 8, 2], [1, 0, 13, 1], [8, 13, 0, 18], [2, 1, 18, 0]],
        "l1": [[0, 1, 4, 2], [1, 0, 5, 1], [4, 5, 0, 6], [2, 1, 6, 0]],
    }
    for piece in (2**16, 2):
        monkeypatch.setattr(last_updates, "PIECE", piece)
        for distance, wanted in expected.items():
            assert distances_between(gradients, distance) == pytest.approx(np.array(wanted), abs=1e-7)


def test_a_gradient_is_never_apart_from_itself():
    draw = KEY.fold("same").torch()
    gradient = torch.randn(1000, generator=draw)
    for distance in ("cosine", "l2", "l1"):
        found = distances_between([gradient] * 3 + [2.5 * gradient] * (distance == "cosine"), distance)
        assert np.isfinite(found).all()
        assert found.max() < 1e-6


def admitted(selector, counts):
    return selector.admit(selector.init(), dict(enumerate(counts)))


def told(vector):
    return Reply(ModelUpdate(Weights({"w": torch.tensor(vector)}, {"seen": torch.tensor(1)})), None, {})


@pytest.mark.parametrize("by", ["size", "cosine"])
def test_the_mean_over_draws_is_unbiased(by):
    counts = [60, 25, 5, 5, 3, 1, 1]
    selector = Clustered(count=3, by=by)
    state = admitted(selector, counts)
    for client in range(0, 7, 2):
        state = selector.observe(state, client, told([math.sin(client), math.cos(client)]), 0.1)
    rounds, drawn = 600, np.zeros(7)
    for draw in range(rounds):
        cohort = selector.select(state, range(7), {}, moment(KEY.fold(draw)))
        assert sum(cohort.settings["count"]) == 3
        drawn[list(cohort.ids)] += cohort.settings["count"]
    shares = np.array(counts) / 100
    deviation = np.sqrt(shares * (1 - shares) / (3 * rounds))
    assert (np.abs(drawn / (3 * rounds) - shares) < 4 * deviation).all()
    values = np.array([4.0, -1.0, 2.0, 8.0, 0.5, 3.0, -7.0])  # what clients would return
    assert drawn @ values / (3 * rounds) == pytest.approx(shares @ values, abs=0.15)


def test_once_all_are_known_a_round_has_somebody_of_every_kind():
    """Ten kinds of ten clients each: independent draws would meet 6.5 kinds a round."""
    draw = KEY.fold("kinds").torch()
    kinds = torch.eye(10).repeat_interleave(10, 0) + 0.05 * torch.randn(100, 10, generator=draw)
    selector = Clustered(count=10)
    state = admitted(selector, [40] * 100)
    before = {client // 10 for client in selector.select(state, range(100), {}, moment(KEY)).ids}
    for client in range(100):
        state = selector.observe(state, client, told(kinds[client].tolist()), 0.1)
    for draw_number in range(20):
        cohort = selector.select(state, range(100), {}, moment(KEY.fold(draw_number)))
        assert {client // 10 for client in cohort.ids} == set(range(10))
    assert len(before) < 10


def test_what_it_remembers():
    similar, size = Clustered(), Clustered(by="size")
    state = similar.observe(NOBODY, 4, told([1.0, 2.0]), 0.1)
    state = similar.observe(state, 4, told([3.0, 4.0]), 0.1)
    assert state.last.updates[4]["w"].tolist() == [3.0, 4.0]
    assert similar.observe(state, 5, Reply((), None, {}), 0.1) == state
    assert size.observe(NOBODY, 4, told([1.0, 2.0]), 0.1) == NOBODY


@pytest.mark.parametrize("by", ["size", "l1"])
def test_who_cannot_be_reached_or_told_nothing_is_not_drawn(by):
    selector = Clustered(count=2, by=by)
    state = admitted(selector, [10, 10, 10, 10])
    state = selector.observe(state, 3, told([1.0, 2.0]), 0.1)
    for draw in range(20):
        assert set(selector.select(state, (1, 3, 9), {}, moment(KEY.fold(draw))).ids) <= {1, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": 3, "fraction": 0.1}, "give count or fraction, not both"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        Clustered(**options)


def test_a_cohort_larger_than_the_population():
    with pytest.raises(SpecError, match="count = 12 is more than the population of 10"):
        Clustered(count=12).check(10)
