"""The arithmetic of the partitions, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.class_counts import cut, owners, skewed, split_evenly, spread, top_up


class Shares:
    """In place of a generator: the next shares of a list, and everything in its own order unless told."""

    def __init__(self, *draws: list[float], orders: tuple[list[int], ...] = ()) -> None:
        self.draws = list(draws)
        self.orders = list(orders)

    def dirichlet(self, alpha: np.ndarray) -> np.ndarray:
        return np.array(self.draws.pop(0))

    def permutation(self, count: int) -> np.ndarray:
        return np.array(self.orders.pop(0)) if self.orders else np.arange(count)


def test_cut_rounds_shares_to_counts_of_the_same_sum():
    assert cut(10, np.array([0.25, 0.5, 0.25])).tolist() == [2, 5, 3]
    assert cut(3, np.array([0, 0.1, 0, 0])).tolist() == [0, 3, 0, 0]
    thirds = np.array([0.1, 0.1, 0.1, 0.0])  # sums to 0.30000000000000004
    assert cut(9, thirds).tolist()[3] == 0
    assert cut(0, thirds).tolist() == [0, 0, 0, 0]


def test_even_sizes_differ_by_one():
    assert split_evenly(11, 4).tolist() == [3, 3, 3, 2]
    assert split_evenly(4, 4).tolist() == [1, 1, 1, 1]


def test_skewed_gives_nothing_more_to_full_clients():
    rng = Shares([0.5, 0.5, 0.0], [0.8, 0.0, 0.2], [0.2, 0.4, 0.4])
    counts = skewed(np.array([8, 2, 2]), 3, 0.1, rng)  # a client with 4 is full
    assert counts.tolist() == [[4, 0, 0], [4, 0, 0], [0, 2, 2]]


def test_skewed_falls_back_to_the_smallest_clients():
    rng = Shares([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    assert skewed(np.array([6, 6]), 3, 0.1, rng).tolist() == [[6, 0], [0, 3], [0, 3]]


def test_skewed_deals_classes_and_clients_in_drawn_orders():
    # class 1 first, cut at 0.5 and 1.25 of 5; then class 0, of which client 2, with 5 full, gets none
    rng = Shares([0.1, 0.15, 0.75], [0.5, 0.3, 0.2], orders=([1, 0], [0, 1, 2], [1, 0, 2]))
    assert skewed(np.array([7, 5]), 3, 0.1, rng).tolist() == [[5, 0], [2, 1], [0, 4]]


def test_top_up_takes_the_most_frequent_class_of_the_largest():
    counts = np.array([[5, 2], [0, 1], [3, 3], [0, 0]])
    # client 1 takes two 0s of client 0, which is then left with 3 + 2; client 3 takes of client 2,
    # the largest by now, three 0s
    assert top_up(counts, 3).tolist() == [[3, 2], [2, 1], [0, 3], [3, 0]]
    assert counts[0].tolist() == [5, 2]


def test_top_up_never_empties_the_giver():
    assert top_up(np.array([[4], [1], [1]]), 2).tolist() == [[2], [2], [2]]
    assert top_up(np.array([[2, 2, 2], [0, 0, 0]]), 3).tolist() == [[0, 1, 2], [2, 1, 0]]


def test_spread_deals_each_class_evenly_to_its_holders():
    holders = np.array([[True, False], [True, True], [True, True]])
    assert spread(np.array([7, 2]), holders).tolist() == [[3, 0], [2, 1], [2, 1]]
    with pytest.raises(SpecError, match="class 1 has 1 training samples for the 2 clients"):
        spread(np.array([7, 1]), holders)


def test_owners_follow_the_counts():
    labels = np.array([0, 1, 0, 1, 0])
    counts = np.array([[1, 2], [2, 0]])
    owner = owners(labels, counts, Key.from_seed(0).numpy())
    assert [[np.sum((owner == i) & (labels == c)) for c in (0, 1)] for i in (0, 1)] == counts.tolist()
