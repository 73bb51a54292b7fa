import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from shoal.core.key import Key
from shoal.parts.clusters import Clusters
from shoal.parts.signature import mean_projector, signature
from shoal.runs.build import load_dataset
from shoal.spec import TaskSpec

KEY = Key.from_seed(11)
DISJOINT = [(0, 1), (2, 3), (4, 5, 6), (7, 8, 9)]
OVERLAPPING = [(0, 1, 2, 3), (2, 3, 4, 5), (5, 6, 7, 8), (8, 9, 0, 1)]


@pytest.fixture(scope="module")
def digits():
    return load_dataset(TaskSpec())


def clients_of(digits, groups, rng, count=40):
    """Clients of 10 to 200 digits, each with the classes of one of the groups."""
    y = digits.y_train.numpy()
    signatures, truth = {}, []
    for client in range(count):
        held = np.flatnonzero(np.isin(y, groups[client % len(groups)]))
        rows = rng.choice(held, int(rng.integers(10, 201)), replace=False)
        signatures[client] = signature(digits.x_train[torch.from_numpy(rows)], 5)
        truth.append(client % len(groups))
    return signatures, truth


@pytest.mark.parametrize("rule", ["kmeans", "kmedoids"])
@pytest.mark.parametrize(("groups", "least"), [(DISJOINT, 0.9), (OVERLAPPING, 0.8)])
def test_clients_with_the_same_classes_come_together(digits, rule, groups, least):
    signatures, truth = clients_of(digits, groups, KEY.numpy())
    found = Clusters.empty(rule).founded(signatures, 4, KEY)
    assert adjusted_rand_score(truth, [found.homes[client] for client in signatures]) >= least


def test_linkage_finds_disjoint_groups_and_literal_vectors_do_not(digits):
    signatures, truth = clients_of(digits, DISJOINT, KEY.numpy())
    agreed = {
        rule: adjusted_rand_score(
            truth, list(Clusters.empty(rule).founded(signatures, 4, KEY).homes.values())
        )
        for rule in ("linkage", "literal")
    }
    assert agreed["linkage"] >= 0.9
    assert agreed["literal"] < 0.7


def test_a_newcomer_joins_its_like_and_moves_the_centre(digits):
    signatures, _ = clients_of(digits, DISJOINT, KEY.numpy(), 48)
    first = dict(list(signatures.items())[:40])
    found = Clusters.empty("kmeans").founded(first, 4, KEY)
    later = {client: one for client, one in signatures.items() if client >= 40}
    joined = found.joined(later, 4)
    for client in later:
        assert joined.homes[client] == joined.homes[client % 4]
    assert sum(joined.sizes) == 48
    home = joined.homes[40]
    members = [signatures[client] for client, k in joined.homes.items() if k == home]
    moved, wanted = (centre @ centre.T for centre in (joined.centres[home], mean_projector(members)))
    assert torch.allclose(moved, wanted, atol=1e-3)  # both are cut to the same width


def test_the_literal_centre_is_the_running_mean():
    """Algorithm 2, line 11, by hand."""
    one, two, three = (torch.full((2, 1), value) for value in (1.0, 3.0, 8.0))
    found = Clusters.empty("literal").founded({0: one, 1: two}, 1, KEY).joined({2: three}, 1)
    assert found.centres[0].tolist() == [[4.0], [4.0]]


@pytest.mark.parametrize("rule", ["kmeans", "kmedoids", "linkage", "literal"])
def test_fewer_clients_than_clusters_leave_room_for_newcomers(rule):
    axes = [torch.eye(6)[:, [i]] for i in range(6)]
    found = Clusters.empty(rule).founded({0: axes[0], 1: axes[1]}, 4, KEY)
    assert found.homes == {0: 0, 1: 1}
    grown = found.joined({2: axes[2], 3: axes[3], 4: axes[0]}, 4)
    assert grown.homes == {0: 0, 1: 1, 2: 2, 3: 3, 4: 0}
    assert grown.home(99) == 0  # the largest one, for a client that told nothing


def test_equal_clients_share_a_cluster():
    member = torch.eye(6)[:, :2]
    found = Clusters.empty("kmeans").founded(dict.fromkeys(range(5), member), 3, KEY)
    assert set(found.homes.values()) == {0}
