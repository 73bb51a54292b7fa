from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.data import Partition
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data import PARTITIONS, label_matrix
from shoal.data.partitions import (
    Consecutive,
    Dirichlet,
    Iid,
    LabelShards,
    Natural,
    OneClass,
    Quantity,
    Synthetic,
    Unseen,
)

KEY = Key.from_seed(7)
SEEDS = st.integers(0, 2**32).map(Key.from_seed)
BETAS = st.floats(1e-4, 1e4) | st.sampled_from([5e-324, 1e-300, 1.7e308])
# 200 to 400 samples of four classes, of 20 to 100 samples each
CLASS_SIZES = st.lists(st.integers(20, 100), min_size=4, max_size=4).filter(lambda sizes: sum(sizes) >= 200)


def labels_of(sizes: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


@pytest.fixture(scope="module")
def toy(labelled):
    return labelled(labels_of([100] * 10))


@st.composite
def dealings(draw) -> Partition:
    """Any partition but the lazy one, with clients that 200 samples of four classes suffice for."""
    clients, beta = draw(st.integers(4, 20)), draw(BETAS)
    small = draw(st.integers(1, 10))
    return draw(
        st.sampled_from(
            [
                Iid(clients),
                Consecutive(clients),
                Dirichlet(clients, beta, small),
                LabelShards(clients, draw(st.integers(1, 4))),
                OneClass(clients),
                Quantity(clients, beta, small),
                Unseen(clients, draw(st.integers(1, 3)), draw(st.integers(1, 3)), beta),
                Natural(),
            ]
        )
    )


@settings(deadline=None, max_examples=150)
@given(dealings(), CLASS_SIZES, SEEDS)
def test_every_sample_is_at_exactly_one_client(labelled, partition, sizes, key):
    labels = labels_of(sizes)
    dataset = labelled(labels, classes=4, groups=np.arange(len(labels)) % 2)
    shards = partition.split(dataset, key)
    parts = [shards.indices(client) for client in range(len(shards))]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert [shards.count(client) for client in range(len(shards))] == [len(part) for part in parts]
    assert min(len(part) for part in parts) >= getattr(partition, "min_size", 1)
    assert len(shards) == getattr(partition, "clients", 2)
    assert all(part.dtype == np.int64 for part in parts)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_a_key_settles_everything(kind, labelled):
    dataset = labelled(labels_of([150] * 10), groups=np.arange(1500) % 2)
    first, again, other = (PARTITIONS[kind]().split(dataset, key) for key in (KEY, KEY, KEY.fold(1)))
    assert all(np.array_equal(first.indices(i), again.indices(i)) for i in range(len(first)))
    assert any(not np.array_equal(first.indices(i), other.indices(i)) for i in range(len(first)))
    torch.from_numpy(first.indices(0))  # which warns of arrays that cannot be written to


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partitions_are_frozen_and_have_defaults(kind):
    partition = PARTITIONS[kind]()
    assert dataclasses.is_dataclass(partition)
    assert type(partition).__doc__
    with pytest.raises(dataclasses.FrozenInstanceError):
        partition.clients = 3


@pytest.mark.parametrize("kind", PARTITIONS)
def test_clients_that_do_not_exist(kind, labelled):
    shards = PARTITIONS[kind]().split(labelled(labels_of([150] * 10), groups=np.arange(1500) % 2), KEY)
    for client in (-1, len(shards)):
        with pytest.raises(IndexError, match=f"there is no client {client}; ids are 0"):
            shards.indices(client)
        with pytest.raises(IndexError):
            shards.count(client)


def test_iid_is_even(toy):
    shards = Iid(30).split(toy, KEY)
    assert {shards.count(i) for i in range(30)} == {33, 34}
    assert (label_matrix(toy, shards, range(30)) > 0).sum(1).min() >= 6


def test_consecutive_cuts_the_rows_in_their_order(toy):
    shards = Consecutive(3).split(toy, KEY)
    assert [sorted(shards.indices(i)) for i in range(3)] == [
        list(range(334)),
        list(range(334, 667)),
        list(range(667, 1000)),
    ]


def test_rows_of_a_client_are_not_sorted_by_class(toy):
    labels = toy.y_train.numpy()[Iid(2).split(toy, KEY).indices(0)]
    assert len(np.unique(labels[:50])) == 10


def test_dirichlet_skews_by_beta(toy):
    def classes_held(beta: float) -> float:
        matrix = label_matrix(toy, Dirichlet(20, beta).split(toy, KEY), range(20))
        return float((matrix > 0).sum(1).mean())

    assert classes_held(0.1) < 5 < 9 < classes_held(100)


def test_dirichlet_caps_the_largest_client(toy):
    for seed in range(20):
        shards = Dirichlet(10, 0.1).split(toy, Key.from_seed(seed))
        # before its last class a client holds less than the mean of 100; a class has 100
        assert max(shards.count(i) for i in range(10)) < 200


def hundred(dataset, partition: Partition) -> np.ndarray:
    """[seeds, clients, classes]: what a hundred seeds deal."""
    splits = (partition.split(dataset, Key.from_seed(seed)) for seed in range(100))
    return np.array([label_matrix(dataset, shards, range(partition.clients)) for shards in splits])


def slope(values: np.ndarray) -> float:
    return float(np.polyfit(np.arange(len(values)), values, 1)[0])


def test_no_class_is_at_fewer_clients_for_its_number(toy):
    holders = (hundred(toy, Dirichlet(20, 0.1, min_size=1)) > 0).sum(1).mean(0)
    assert abs(slope(holders)) < 0.1  # -0.3 if the classes are dealt in their own order


def test_no_unseen_class_is_at_fewer_newcomers_for_its_number(toy):
    holders = (hundred(toy, Unseen(30, newcomers=15, classes=5, beta=0.1)) > 0).sum(1).mean(0)
    assert abs(slope(holders[:5])) < 0.2  # -0.4
    assert abs(slope(holders[5:])) < 0.2


def test_no_client_holds_more_classes_for_its_id(toy):
    held = (hundred(toy, Dirichlet(20, 0.1, min_size=1)) > 0).sum(2).mean(0)
    assert np.abs(held - held.mean()).max() < 0.8  # 4 if what rounding leaves falls to the last client


def test_no_client_of_shards_is_smaller_for_its_id(toy):
    sizes = hundred(toy, LabelShards(7, 2)).sum(2).mean(0)  # fourteen places for ten classes
    assert np.abs(sizes - 1000 / 7).max() < 20  # 43 if the last clients share what others have already


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 100), st.integers(1, 10), SEEDS)
def test_shards_give_exactly_so_many_classes(toy, clients, classes, key):
    if clients * classes < 10:
        with pytest.raises(SpecError, match=f"use at least {-(-10 // classes)} clients"):
            LabelShards(clients, classes).split(toy, key)
        return
    matrix = label_matrix(toy, LabelShards(clients, classes).split(toy, key), range(clients))
    assert ((matrix > 0).sum(1) == classes).all()
    holders = (matrix > 0).sum(0)
    assert holders.max() - holders.min() <= 1
    for column in matrix.T:
        held = column[column > 0]
        assert held.max() - held.min() <= 1


def test_shards_mix_the_classes(toy):
    matrix = label_matrix(toy, LabelShards(100, 2).split(toy, KEY), range(100))
    assert len({tuple(np.flatnonzero(row)) for row in matrix}) > 25  # of 45 pairs


def test_one_class(toy):
    matrix = label_matrix(toy, OneClass(23).split(toy, KEY), range(23))
    for client, row in enumerate(matrix):
        assert np.flatnonzero(row).tolist() == [client % 10]
    assert matrix[[0, 10, 20], 0].tolist() == [34, 33, 33]
    assert matrix[[3, 13], 3].tolist() == [50, 50]


def test_quantity_skews_sizes_only(toy):
    shards = Quantity(10, 0.5).split(toy, KEY)
    sizes = np.array([shards.count(i) for i in range(10)])
    assert sizes.max() > 3 * sizes.min()
    largest = label_matrix(toy, shards, [int(sizes.argmax())])[0]
    assert largest.min() > 0.4 * largest.mean()


def test_quantity_serves_regressions(labelled):
    shards = Quantity(5).split(labelled(np.linspace(0, 1, 50, dtype=np.float32), classes=0), KEY)
    assert sum(shards.count(i) for i in range(5)) == 50


def test_natural_follows_the_groups(labelled):
    groups = np.array([0, 1, 1, 0, 1])
    shards = Natural().split(labelled(np.zeros(5, np.int64), groups=groups), KEY)
    assert [sorted(shards.indices(i)) for i in range(2)] == [[0, 3], [1, 2, 4]]


def test_a_million_clients_cost_nothing(toy):
    start = time.perf_counter()
    shards = Synthetic(10**6, samples=50).split(toy, KEY)
    assert len(shards) == 10**6
    assert shards.count(999_999) == 50
    last = shards.indices(999_999)
    assert time.perf_counter() - start < 0.5
    assert last.shape == (50,)
    assert last.dtype == np.int64
    assert 0 <= last.min() <= last.max() < 1000
    assert np.array_equal(last, shards.indices(np.int64(999_999)))
    assert not np.array_equal(last, shards.indices(999_998))


def test_synthetic_may_hold_more_than_there_is(labelled):
    shards = Synthetic(3, samples=40).split(labelled(np.zeros(5, np.int64)), KEY)
    assert shards.indices(2).shape == (40,)


def test_unseen_classes_are_the_newcomers_own(toy):
    shards = Unseen(clients=12, newcomers=4, classes=3, min_size=5).split(toy, KEY)
    matrix = label_matrix(toy, shards, range(12))
    assert matrix[:8, 7:].sum() == matrix[8:, :7].sum() == 0
    assert matrix[:8].sum() == 700
    assert matrix.sum(1).min() >= 5


def test_known_and_unseen_classes_may_be_dealt_in_shards(toy):
    shards = Unseen(clients=30, newcomers=12, classes=4, shards=2).split(toy, KEY)
    held = label_matrix(toy, shards, range(30))
    assert (held > 0).sum(1).tolist() == [2] * 30
    assert held[:18, 6:].sum() == held[18:, :6].sum() == 0
    assert held.sum() == 1000
    assert np.unique((held[:18, :6] > 0).sum(0)).tolist() == [6]  # holders of each known class
    assert np.unique((held[18:, 6:] > 0).sum(0)).tolist() == [6]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shards": 0}, "shards must be at least 1, got 0"),
        ({"shards": 2, "beta": 0.1}, "give shards or beta, not both, got shards = 2 and beta = 0.1"),
        ({"shards": 2, "min_size": 5}, "give shards or min_size, not both"),
        ({"shards": 6}, "shards must be at most the 5 of the known part of toy, got 6"),
        ({"shards": 4, "classes": 3}, "shards must be at most the 3 of the unseen part of toy, got 4"),
        (
            {"shards": 1, "newcomers": 2},
            "2 clients with 1 classes each cannot hold the 5 classes of the unseen",
        ),
    ],
)
def test_unseen_shards_that_make_no_sense(fields, message, toy):
    with pytest.raises(SpecError, match=message):
        Unseen(**{"clients": 20, "newcomers": 10, **fields}).split(toy, KEY)


def test_label_matrix(toy, labelled):
    shards = Iid(4).split(toy, KEY)
    matrix = label_matrix(toy, shards, [3, 0])
    assert matrix.shape == (2, 10)
    assert matrix.sum(1).tolist() == [250, 250]
    expected = np.bincount(toy.y_train.numpy()[shards.indices(3)], minlength=10)
    assert matrix[0].tolist() == expected.tolist()
    regression = labelled(np.zeros(10, np.float32), classes=0)
    assert label_matrix(regression, Iid(2).split(regression, KEY), [0, 1]).tolist() == [[5], [5]]


@pytest.mark.parametrize("partition", [Synthetic(50, samples=7), Dirichlet(50, 0.1)])
def test_label_matrix_in_pieces(partition, toy, monkeypatch):
    monkeypatch.setattr("shoal.data.shards._TOGETHER", 8)
    shards = partition.split(toy, KEY)
    expected = [np.bincount(toy.y_train.numpy()[shards.indices(i)], minlength=10) for i in range(50)]
    assert np.array_equal(label_matrix(toy, shards, range(50)), expected)
    assert label_matrix(toy, shards, []).shape == (0, 10)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards", "one_class", "quantity", "unseen"])
def test_sixty_thousand_samples_are_dealt_at_once(kind, labelled):
    dataset = labelled(labels_of([6000] * 10))
    start = time.perf_counter()
    PARTITIONS[kind](clients=1000).split(dataset, KEY)
    assert time.perf_counter() - start < 0.5


CURES = "small values such as 0.1 .*, large ones"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Iid(0), "clients must be at least 1, got 0"),
        (lambda: Dirichlet(beta=-1), f"beta must be > 0, got -1; {CURES} hardly"),
        (lambda: Dirichlet(beta=0), "beta must be > 0, got 0"),
        (lambda: Dirichlet(beta=float("nan")), "beta must be > 0, got nan"),
        (lambda: Dirichlet(min_size=0), "min_size must be at least 1, got 0"),
        (lambda: Quantity(beta=float("inf")), f"beta must be > 0, got inf; {CURES} give similar sizes"),
        (lambda: LabelShards(classes=0), "classes must be at least 1, got 0"),
        (lambda: OneClass(clients=-3), "clients must be at least 1, got -3"),
        (lambda: Synthetic(samples=0), "samples must be at least 1, got 0"),
        (lambda: Unseen(clients=10, newcomers=10), "newcomers must be fewer than clients = 10, got 10"),
        (lambda: Unseen(newcomers=0), "newcomers must be at least 1, got 0"),
    ],
)
def test_fields_are_checked(make, message):
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (
            Dirichlet(200, min_size=6),
            "min_size = 6 for 200 clients needs 1200 .* has 1000; use min_size = 5 or",
        ),
        (Quantity(200, min_size=6), "use min_size = 5 or fewer clients"),
        (Unseen(200, newcomers=101, min_size=5), "needs 505 training samples, but toy has 500"),
        (LabelShards(10, classes=11), "classes must be at most the 10 of toy, got 11"),
        (LabelShards(4, classes=2), "cannot hold the 10 classes of toy; use at least 5 clients"),
        (LabelShards(600, classes=2), r"class \d has 100 training samples for the 120 clients"),
        (OneClass(9), "at least one client per class, 10 for toy, got 9; use clients = 10 or more"),
        (Unseen(classes=10), "must be below the 10 of toy, got 10"),
        (Natural(), "toy has no natural clients; .*heart_disease"),
    ],
)
def test_data_sets_are_checked(toy, partition, message):
    with pytest.raises(SpecError, match=message):
        partition.split(toy, KEY)


@pytest.mark.parametrize(
    "partition",
    [
        Iid(1001),
        Consecutive(1001),
        Dirichlet(1001),
        LabelShards(1001),
        OneClass(1001),
        Quantity(1001),
        Unseen(1001),
    ],
)
def test_more_clients_than_samples(toy, partition):
    with pytest.raises(
        SpecError, match="1001 clients are more than the 1000 training samples of toy; use at"
    ):
        partition.split(toy, KEY)


@pytest.mark.parametrize("kind", ["dirichlet", "shards", "one_class", "unseen"])
def test_labels_of_a_regression(kind, labelled):
    dataset = labelled(np.zeros(1000, np.float32), classes=0)
    with pytest.raises(
        SpecError, match=f"{kind} needs class labels, but toy is a regression; use iid or quantity"
    ):
        PARTITIONS[kind]().split(dataset, KEY)


def test_a_group_without_samples(labelled):
    with pytest.raises(SpecError, match="group 0 of toy has no training sample"):
        Natural().split(labelled(np.zeros(3, np.int64), groups=np.ones(3, np.int64)), KEY)
