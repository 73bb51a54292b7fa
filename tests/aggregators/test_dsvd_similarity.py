import numpy as np
import pytest
import torch
from toy import KEY

from shoal.aggregators.dsvd_similarity import FORMS, layer_weights, similarities
from shoal.parts.factors import Factors

SHAPES = {"wide": (6, 9), "conv": (5, 2, 3, 3), "bias": (6,)}


def updates(n, name="s"):
    draw = KEY.fold(name).numpy()
    return {key: torch.from_numpy(draw.normal(size=(n, *shape))).float() for key, shape in SHAPES.items()}


def pair(first, second):
    return {name: torch.stack([first[name], second[name]]) for name in first}


def one(name="one"):
    return {key: value[0] for key, value in updates(1, name).items()}


def times(factor, update):
    return {name: factor * value for name, value in update.items()}


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_equal_and_opposite(share):
    update = one()
    equal = similarities(pair(update, update), [share] * 2)
    opposite = similarities(pair(update, times(-1, update)), [share] * 2)
    for found, expected in zip(equal, (1.0, 0.0, 0.0), strict=True):
        assert float(found[0, 1]) == pytest.approx(expected, abs=1e-5)
    for found, expected in zip(opposite, (-1.0, 0.0, -1.0), strict=True):
        assert float(found[0, 1]) == pytest.approx(expected, abs=1e-5)


def test_a_multiple_has_the_same_directions_and_other_sizes():
    update = one()
    found = similarities(pair(update, times(3.0, update)), [0.5] * 2)
    assert [float(part[0, 1]) for part in found] == pytest.approx([1.0, -0.5, -0.5], abs=1e-5)


def test_the_invariant_form_by_hand():
    """diag(2, 1) and diag(2, -1) agree in one direction of two and differ in the other."""
    first, second = torch.diag(torch.tensor([2.0, 1.0])), torch.diag(torch.tensor([2.0, -1.0]))
    found = similarities({"w": torch.stack([first, second])}, [1.0, 1.0])
    assert float(found.vectors[0, 1]) == pytest.approx(0.0, abs=1e-6)
    assert float(found.values[0, 1]) == pytest.approx(0.0, abs=1e-6)
    assert float(found.updates[0, 1]) == pytest.approx(-2 / (2 * 5**0.5), abs=1e-6)
    cut = similarities({"w": torch.stack([first, second])}, [1.0, 0.5])  # <diag(1, 1), diag(1, 0)> / sqrt(2)
    assert float(cut.vectors[0, 1]) == pytest.approx(0.5**0.5, abs=1e-6)


def orthonormal(rows, name):
    return torch.from_numpy(np.linalg.qr(KEY.fold(name).numpy().normal(size=(rows, 3)))[0])


def test_the_invariant_form_sees_neither_signs_nor_rotations_of_equal_values():
    """u and v of a pair may both be turned round, and those of equal singular values rotated together."""
    values, signs = torch.tensor([2.0, 2.0, 1.0]).double(), torch.tensor([1.0, 1.0, -1.0]).double()
    turn = torch.tensor([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]).double() * signs
    u, v = orthonormal(6, "u"), orthonormal(9, "v")
    other = Factors(orthonormal(6, "other u"), values, orthonormal(9, "other v"))
    once, turned = (
        FORMS["invariant"]([Factors(u @ by, values, v @ by), other], raw=False)
        for by in (torch.eye(3).double(), turn)
    )
    torch.testing.assert_close(turned, once)
    torch.testing.assert_close(
        (u @ turn * values) @ (v @ turn).T, (u * values) @ v.T
    )  # it is the same matrix


def test_the_subspace_form_cannot_tell_an_update_from_its_opposite():
    update = one()
    both = [similarities(pair(update, times(sign, update)), [0.5] * 2, "subspace") for sign in (1, -1)]
    assert [float(found.vectors[0, 1]) for found in both] == pytest.approx([1.0, 1.0], abs=1e-4)


def test_the_literal_form_of_equal_updates_is_their_rank():
    update = {"w": one()["wide"]}
    raw = similarities(pair(update, update), [0.5] * 2, "literal", literal=True)
    assert float(raw.vectors[0, 1]) == pytest.approx(3.0, abs=1e-4)
    assert float(raw.updates[0, 1]) == pytest.approx(0.0, abs=1e-4)
    apart = similarities(pair(update, times(3.0, update)), [1.0] * 2, "literal", literal=True)
    norm = float(update["w"].norm())
    assert float(apart.updates[0, 1]) == pytest.approx(-2 * norm, rel=1e-5)
    assert float(apart.values[0, 1]) == pytest.approx(-2 * norm, rel=1e-4)


@pytest.mark.parametrize("form", ["invariant", "literal", "subspace"])
@pytest.mark.parametrize("literal", [False, True])
def test_similarities_are_symmetric_and_finite(form, literal):
    given = updates(4)
    given = {name: torch.cat([value, torch.zeros_like(value[:1])]) for name, value in given.items()}
    for part in similarities(given, [0.5, 1.0, 0.1, 0.5, 0.5], form, literal=literal):
        assert part.shape == (5, 5)
        assert bool(part.isfinite().all())
        torch.testing.assert_close(part, part.T, rtol=1e-5, atol=1e-5)


def test_normalised_similarities_do_not_depend_on_the_scale():
    given = updates(4)
    for part, again in zip(
        similarities(given, [0.5] * 4), similarities(times(100.0, given), [0.5] * 4), strict=True
    ):
        torch.testing.assert_close(part, again, rtol=1e-4, atol=1e-4)


def test_no_client_decides_which_tensors_are_looked_at():
    norms = {"a": np.array([3.0, 3.0, 0.0]), "b": np.array([4.0, 4.0, 1e6])}
    weights = layer_weights(norms, ())
    assert weights == pytest.approx({"a": 9 / 25, "b": 16 / 25})
    with_buffers = layer_weights({**norms, "mean": np.ones(3)}, ["mean"])
    assert with_buffers == pytest.approx({"a": 9 / 27.5, "b": 16 / 27.5, "mean": 0.1 / 1.1})
    assert layer_weights({"a": np.zeros(2), "b": np.zeros(2)}, ()) == {"a": 0.5, "b": 0.5}


def test_a_model_without_matrices():
    found = similarities({"b": updates(3)["bias"]}, [0.5] * 3)
    assert not bool(found.vectors.any())
    assert bool(found.updates.any())
