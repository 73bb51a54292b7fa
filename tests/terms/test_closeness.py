import math

import pytest
import torch

from shoal.core.term import Step
from shoal.core.types import Weights
from shoal.terms.closeness import Closeness

CENTRE = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[0.0], [0.0], [0.0], [0.0]])}


def pulled(term, **values):
    """The term's value and its gradient at these weights."""
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    step = Step(None, Weights(weights, {}), None, torch.zeros(1, 1), None, None, None)
    loss = term.loss(step)
    loss.backward()
    return float(loss.detach()), {name: value.grad for name, value in weights.items()}


def test_the_pull_has_constant_strength():
    near, far = (pulled(Closeness(0.5, CENTRE), a=[1.0, 2.0 + d], b=[[0.0]] * 4) for d in (1.0, 100.0))
    assert near[0] == pytest.approx(0.5)
    assert far[0] == pytest.approx(50.0)
    assert near[1]["a"].tolist() == far[1]["a"].tolist() == [0.0, 0.5]


def test_a_masked_pull_acts_on_its_mask_only():
    mask = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([[0.0], [1.0], [0.0], [0.0]])}
    loss, gradient = pulled(Closeness(1.0, CENTRE, mask), a=[4.0, 7.0], b=[[9.0], [4.0], [9.0], [9.0]])
    assert loss == pytest.approx(5.0)  # the root of 3^2 + 4^2
    assert gradient["a"].tolist() == pytest.approx([0.6, 0.0])
    assert gradient["b"].flatten().tolist() == pytest.approx([0.0, 0.8, 0.0, 0.0])


def test_layers_are_held_by_their_size():
    loss, _ = pulled(Closeness(1.0, CENTRE, by_layer=True), a=[1.0, 4.0], b=[[3.0], [0.0], [0.0], [0.0]])
    assert loss == pytest.approx(2 / math.sqrt(2) + 3 / 2)


def test_there_is_a_gradient_at_the_centre_too():
    _, gradient = pulled(Closeness(1.0, CENTRE), a=[1.0, 2.0], b=[[0.0]] * 4)
    assert torch.equal(gradient["a"], torch.zeros(2))


def test_only_layers_of_the_centre_are_pulled():
    _, gradient = pulled(Closeness(1.0, {"a": CENTRE["a"]}), a=[1.0, 4.0], b=[[3.0]] * 4)
    assert gradient["b"] is None
    assert Closeness(1.0, {}).loss(Step(None, Weights({}, {}), None, torch.zeros(1, 1), *[None] * 3)) == 0


def test_without_strength_or_mask_there_is_no_term():
    assert not Closeness(0.0, CENTRE).active
    assert not Closeness(1.0, CENTRE, {name: torch.zeros_like(v) for name, v in CENTRE.items()}).active
