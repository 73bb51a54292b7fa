"""The training samples of clients, and the test samples that their own models are judged on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shoal.core.client import ClientData
from shoal.core.data import Batching, Dataset
from shoal.core.key import Key
from shoal.data import digits
from shoal.data.client_data import TEST_SAMPLES, Simulated
from shoal.data.partitions import Dirichlet
from shoal.data.shards import DealtShards, label_matrix

KEY = Key.from_seed(7)


def lone_client(train: list[int], test: list[int]) -> Simulated:
    """A client with all training samples; so many samples of each class."""
    y_train, y_test = (torch.repeat_interleave(torch.tensor(sizes)) for sizes in (train, test))
    x_train, x_test = (torch.zeros(len(y), 1) for y in (y_train, y_test))
    dataset = Dataset("toy", x_train, y_train, x_test, y_test, classes=len(train))
    return Simulated(dataset, DealtShards(np.arange(len(y_train)), np.array([0, len(y_train)])), KEY)


def test_a_small_test_set_keeps_every_clients_proportions():
    dataset = digits()
    shards = Dirichlet(25, 0.3).split(dataset, KEY)
    holdings = Simulated(dataset, shards, KEY)
    for client, own in enumerate(label_matrix(dataset, shards, range(25))):
        dealt = holdings.test(client)
        counts, total = dealt.label_counts.numpy(), len(dealt.rows)
        assert np.abs(counts / total - own / own.sum()).max() < 1 / total
        assert len(set(dealt.rows.tolist())) == total


@pytest.mark.parametrize(
    ("train", "test", "dealt"),
    [
        ([70, 30], [35, 50], [35, 15]),  # half of each, for half of the first is all there is
        ([70, 30], [500, 2], [6, 2]),  # 2.4 of 8 is 2, 2.7 of 9 would be 3
        ([97, 2, 1], [1, 50, 50], [1, 0, 0]),
        ([60, 30, 10], [500, 0, 500], [86, 0, 14]),  # six to one
        ([0, 98, 2], [9, 0, 1], [0, 0, 1]),
        ([5, 0], [0, 9], [0, 0]),
    ],
)
def test_the_scarcest_class_scales_all_of_them_down(train, test, dealt):
    assert lone_client(train, test).test(0).label_counts.tolist() == dealt


def test_a_large_test_set_gives_a_hundred_by_largest_remainder():
    rows = lone_client([5, 3, 4], [200, 100, 100]).test(0).rows
    generator = KEY.fold("test", 0).numpy()
    starts, sizes, counts = (0, 200, 300), (200, 100, 100), (42, 25, 33)
    expected = [
        generator.permutation(np.arange(start, start + size))[:count]
        for start, size, count in zip(starts, sizes, counts, strict=True)
    ]
    assert len(rows) == TEST_SAMPLES
    assert rows.tolist() == np.concatenate(expected).tolist()


@pytest.mark.parametrize("full", [False, True])
def test_the_schedules_of_several_clients_are_those_of_each(full):
    dataset, clients = digits(), [3, 0, 7]
    held = Simulated(dataset, Dirichlet(25, 0.3).split(dataset, KEY), KEY)
    words = KEY.fold_many("client", np.array(clients), "batches")
    args = clients, Batching(10, 2), words
    for found, alone in zip(
        held.several(*args, full=full), ClientData.several(held, *args, full=full), strict=True
    ):
        assert found.rows.tolist() == alone.rows.tolist()
        for one, other in zip(found.plan, alone.plan, strict=True):
            assert one.tolist() == other.tolist()
