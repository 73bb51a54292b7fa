import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shoal.core.key import Key, text_word
from shoal.kernels import philox
from shoal.kernels.philox_blocks import FOLD_INT, FOLD_TEXT

WORD = st.integers(0, 2**64 - 1)
EDGES = [0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


def keys(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), dtype=np.uint64)


def reference_fold(words, value, kind):
    """The words of a folded key, as NumPy's own generator gives them."""
    counter = np.array([value, 0, 0, kind], np.uint64)
    return tuple(np.random.Philox(key=np.array(words, np.uint64), counter=counter).random_raw(2).tolist())


def pairs(folded):
    return [tuple(row) for row in folded.tolist()]


def stream(words):
    """The numbers of a key, one by one, as NumPy has them."""
    generator = np.random.Philox(key=words)
    while True:
        yield int(generator.random_raw())


def reference_order(count, numbers):
    order = list(range(count))
    for place in range(count - 1, 0, -1):
        bound = place + 1
        while (product := next(numbers) * bound) % 2**64 < 2**64 % bound:
            pass
        other = product >> 64
        order[place], order[other] = order[other], order[place]
    return order


@given(st.tuples(WORD, WORD), arrays(np.uint64, st.integers(0, 5), elements=WORD))
def test_folding_many_integers_is_folding_each(words, values):
    folded = philox.fold_many(np.array(words, np.uint64), values)
    assert folded.shape == (len(values), 2)
    assert pairs(folded) == [reference_fold(words, value, 1) for value in values]


def test_folding_carries_as_numpy_does():
    words = keys(1)[0]
    folded = philox.fold_many(words, np.array(EDGES, np.uint64))
    assert pairs(folded) == [reference_fold(words, value, 1) for value in EDGES]


@given(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=4), WORD)
def test_folding_a_text_into_many_keys_is_folding_it_into_each(words, text_word):
    folded = philox.fold_text(np.array(words, np.uint64), text_word)
    assert pairs(folded) == [reference_fold(pair, text_word, 2) for pair in words]


@given(WORD, WORD, WORD)
def test_folding_one(first, second, value):
    for kind in (FOLD_INT, FOLD_TEXT):
        expected = reference_fold((first, second), value, kind)
        assert philox.fold_one(first, second, value, kind) == expected


def test_folds_are_those_of_keys():
    root = Key.from_seed(3)
    words = np.array(root.words, np.uint64)
    clients = philox.fold_many(words, np.arange(20, dtype=np.uint64))
    assert pairs(clients) == [root.fold(client).words for client in range(20)]
    batches = philox.fold_text(clients, text_word("batches"))
    assert pairs(batches) == [root.fold(client, "batches").words for client in range(20)]


@pytest.mark.parametrize("epochs", [1, 3])
def test_orders_are_those_of_the_reference(epochs):
    counts = np.array([0, 1, 2, 3, 7, 100])
    words = keys(len(counts))
    expected = []
    for row, count in zip(words, counts):
        numbers = stream(row)
        for _ in range(epochs):
            expected += reference_order(int(count), numbers)
    assert philox.permutations(words, counts, epochs).tolist() == expected


def test_an_order_does_not_depend_on_the_other_clients():
    words, counts = keys(30, 1), np.random.default_rng(2).integers(0, 50, 30)
    together = philox.permutations(words, counts, 2)
    alone = [philox.permutations(words[i : i + 1], counts[i : i + 1], 2) for i in range(30)]
    assert np.array_equal(together, np.concatenate(alone))


def test_the_bits_of_an_order_never_change():
    """A change here changes every number of every run."""
    words = np.array([[1, 2]], np.uint64)
    assert philox.permutations(words, np.array([8]), 2).tolist() == [
        6,
        3,
        1,
        5,
        4,
        0,
        7,
        2,
        6,
        7,
        1,
        0,
        2,
        3,
        4,
        5,
    ]
    assert philox.uniforms(*words[0].tolist(), 3).tolist() == [
        0.4181060791015625,
        0.7082977294921875,
        0.2620086669921875,
    ]


def test_all_orders_are_equally_likely():
    orders = philox.permutations(keys(24_000, 3), np.full(24_000, 4), 1).reshape(-1, 4)
    _, seen = np.unique(orders @ [64, 16, 4, 1], return_counts=True)
    assert len(seen) == 24
    assert np.sum((seen - 1000) ** 2 / 1000) < 49.7  # chi-squared with 23 degrees of freedom, p = 0.001


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 50])
def test_uniform_numbers_are_the_quarters_of_the_words(size):
    for words in keys(3, 4):
        numbers = philox.uniforms(*words.tolist(), size)
        assert numbers.shape == (size,)
        assert numbers.dtype == np.float32
        raw = np.random.Philox(key=words).random_raw(size // 4 + 1).view(np.uint16)[:size]
        assert numbers.tolist() == (raw / 2**16).tolist()


def test_uniform_numbers_are_uniform():
    numbers = philox.uniforms(*keys(1, 5)[0].tolist(), 100_000)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.005
    assert abs(numbers.var() - 1 / 12) < 0.002


def test_integers_are_below_the_bound_and_even():
    words = Key.from_seed(3).fold("integers").array[None]
    drawn = philox.integers(words, 10, 20_000)[0]
    assert drawn.min() == 0
    assert drawn.max() == 9
    assert np.abs(np.bincount(drawn) / 20_000 - 0.1).max() < 0.01
    several = philox.integers(np.concatenate([words + np.uint64(1), words]), 10, 50)
    assert several[1].tolist() == drawn[:50].tolist()
