import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.key import Key

PARTS = st.one_of(st.integers(0, 2**63), st.text(max_size=8))


def test_the_bits_of_a_key_never_change():
    """A change here changes every number of every run."""
    key = Key.from_seed(0).fold("round", 3, "client", 17)
    assert key.words == (9499572235283084244, 12306617562058340112)
    assert key.numpy().integers(1000, size=3).tolist() == [178, 302, 740]


@given(st.lists(PARTS, max_size=3), st.lists(PARTS, max_size=3))
def test_keys_are_named_by_what_was_folded(first, second):
    root = Key.from_seed(5)
    assert (root.fold(*first) == root.fold(*second)) == (first == second)


def test_folding_in_steps_is_folding_at_once():
    root = Key.from_seed(1)
    assert root.fold("a", 2, "b") == root.fold("a").fold(2).fold("b")


def test_a_number_and_its_text_are_not_the_same():
    assert Key.from_seed(1).fold(3) != Key.from_seed(1).fold("3")


def test_streams_start_anew_and_do_not_depend_on_one_another():
    key = Key.from_seed(2)
    first = key.numpy().random(4)
    key.fold("child").numpy().random(100)
    assert np.array_equal(first, key.numpy().random(4))
    assert torch.equal(torch.rand(3, generator=key.torch()), torch.rand(3, generator=key.torch()))
    assert not np.array_equal(first, key.fold("child").numpy().random(4))


def test_uniform_numbers_fill_the_unit_interval():
    drawn = Key.from_seed(3).uniform((1000, 10))
    assert drawn.dtype == torch.float32
    assert 0 <= float(drawn.min()) < 0.01 < 0.99 < float(drawn.max()) < 1
    assert abs(float(drawn.mean()) - 0.5) < 0.01


def test_seeded_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    with Key.from_seed(4).seeded():
        first = torch.nn.Linear(3, 3).weight
    with Key.from_seed(4).seeded():
        second = torch.nn.Linear(3, 3).weight
    assert torch.equal(first, second)
    assert torch.equal(before, torch.random.get_rng_state())


def test_signs_are_even_and_start_anew():
    signs = Key.from_seed(3).signs(10_001)
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 0.05
    assert torch.equal(Key.from_seed(3).signs(70), signs[:70])
    assert Key.from_seed(3).signs(0).shape == (0,)
    assert signs[:8].tolist() == [
        1 - 2 * (int(Key.from_seed(3).numpy().bit_generator.random_raw()) >> i & 1) for i in range(8)
    ]
