import numpy as np
import pytest

from shoal.core.key import Key
from shoal.methods.situa_cq import cluster
from shoal.parts.kl_clusters import _clusters, divergence, kl_clusters

RNG = Key.from_seed(9).numpy()
UNIFORM = np.ones(10)


def skewed(clients, beta=0.3, classes=10):
    return RNG.dirichlet(np.full(classes, beta), clients)


def test_uniform_clients_are_clusters_of_their_own():
    assert cluster(np.full((4, 10), 7), UNIFORM, 0.4) == [[0], [1], [2], [3]]


def test_without_a_threshold_everybody_is_alone_the_most_even_first():
    rows = skewed(5)
    order = np.argsort(divergence(rows, UNIFORM / 10), kind="stable").tolist()
    assert cluster(rows, UNIFORM, np.inf) == [[i] for i in order]


def test_one_hot_clients_make_clusters_of_one_each():
    rows = np.eye(10)[np.arange(30) % 10]
    found = cluster(rows, UNIFORM, 1e-9)
    assert len(found) == 3
    for members in found:
        assert sorted(i % 10 for i in members) == list(range(10))


@pytest.mark.parametrize("threshold", [0.8, 0.4, 0.1])
def test_every_cluster_is_near_enough_and_nobody_is_in_two(threshold):
    rows = skewed(80)
    found = cluster(rows, UNIFORM, threshold)
    everybody = [i for members in found for i in members]
    assert len(everybody) == len(set(everybody))
    for members in found:
        total = rows[members].sum(0)[None]
        assert divergence(total, UNIFORM / 10)[0] <= threshold + 1e-9
        if len(members) > 1:  # and not before its last member joined
            assert divergence(rows[members[:-1]].sum(0)[None], UNIFORM / 10)[0] > threshold


def test_an_unfinished_cluster_is_dropped_unless_the_code_is_followed():
    rows = np.eye(2)[[0, 1, 0]]
    assert kl_clusters(rows, np.ones(2), 0.1) == [[0, 1]]
    assert kl_clusters(rows, np.ones(2), 0.1, "released") == [[0, 1], [2]]


def test_the_code_adds_nobody_who_makes_it_worse():
    rows = np.array([[0.6, 0.4], [1.0, 0.0], [1.0, 0.0]])
    assert kl_clusters(rows, np.ones(2), 1e-3, "released") == [[0], [1], [2]]
    assert kl_clusters(rows, np.ones(2), 1e-3) == []


def test_who_waited_longest_goes_first():
    rows = np.full((4, 3), 1.0)
    assert kl_clusters(rows, np.ones(3), 0.1, waited=[1, 5, 1, 3]) == [[1], [3], [0], [2]]


def test_a_divergence_is_never_negative():
    assert 0 <= divergence(np.full((1, 7), 0.1), np.full(7, 1 / 7))[0] < 1e-12
    assert divergence(np.array([[1.0, 0.0]]), np.full(2, 0.5))[0] == pytest.approx(np.log(2))


def test_the_same_clients_are_clustered_once():
    rows = skewed(200)
    first, before = cluster(rows, UNIFORM, 0.4), _clusters.cache_info()
    assert cluster(rows, UNIFORM, 0.4) == first
    after = _clusters.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)
    cluster(rows[:-1], UNIFORM, 0.4)
    assert _clusters.cache_info().misses == before.misses + 1
