"""Lies that are small, or huge, or in places where nobody looks."""

import pytest
import torch
from toy import KEY

from shoal.aggregators import AGGREGATORS
from shoal.aggregators.aggregator import moved
from shoal.aggregators.matrix import MOST, MatrixRule, UpdateMatrix, bounded
from shoal.core.tree import all_finite
from shoal.core.types import Moment, Weights

N, LIARS = 20, 6
MOMENT = Moment(0, 0, True, KEY)
SHAPES = {"w": (8, 6), "b": (8,)}
ROBUST = [name for name in AGGREGATORS if name not in ("mean", "fltrust", "fedcpa")]


def model():
    params = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    return Weights(params, {"bn.running_mean": torch.zeros(4), "bn.running_var": torch.ones(4)})


def honest():
    """[N, ...] by tensor: a common direction, and half as much of one's own."""
    draw = KEY.fold("doors").numpy()
    shapes = {**SHAPES, "bn.running_mean": (4,), "bn.running_var": (4,)}
    made = {}
    for name, shape in shapes.items():
        centre, own = draw.normal(size=shape), draw.normal(size=(N, *shape))
        made[name] = torch.from_numpy(0.1 * (centre + 0.5 * own)).float()
    return made


def matrix(parts, weights=None):
    rows = torch.cat([value.reshape(N, -1) for value in parts.values()], 1)
    claims = torch.ones(N).double() if weights is None else weights
    return UpdateMatrix(model(), tuple(range(N)), rows, claims, {}, {})


def stepped(name, parts, weights=None):
    """The step that a rule takes, and the weights it gives."""
    rule, updates = AGGREGATORS[name](), matrix(parts, weights)
    assert isinstance(rule, MatrixRule)
    return rule.finish(None, rule.init(updates.model), updates, MOMENT)


def deviation(step, parts, name):
    """How far a step is from the honest mean, in lengths of that mean."""
    truth = parts[name][LIARS:].double().mean(0)
    found = {**step.params, **step.buffers}[name]
    return float((found - truth).norm() / truth.norm())


@pytest.mark.parametrize("factor", [-2.8, -50.0, -1e6])
def test_a_lie_in_a_bias_moves_it_by_at_most_its_length_and_a_half(factor):
    parts = honest()
    truth = parts["b"][LIARS:].mean(0)
    parts["b"][:LIARS] += factor * truth
    assert deviation(stepped("dsvd", parts).step, parts, "b") < 1.5


@pytest.mark.parametrize("value", [-1e30, -1e4, -3.0])
def test_running_statistics_are_bounded_like_parameters(value):
    parts = honest()
    parts["bn.running_var"][:LIARS] = max(value, -1e18)
    parts["bn.running_mean"][:LIARS] = max(value, -1e18)
    step = stepped("dsvd", parts).step
    assert deviation(step, parts, "bn.running_var") < 1.5
    assert deviation(step, parts, "bn.running_mean") < 1.5
    assert float(moved(model(), step).buffers["bn.running_var"].min()) >= 0


@pytest.mark.parametrize("name", ROBUST)
def test_huge_numbers_leave_the_model_finite(name):
    parts = honest()
    for value in parts.values():
        value[:4] = 1.8e19  # as much as the gate lets through
    outcome = stepped(name, parts)
    assert all_finite(moved(model(), outcome.step))
    if name not in ("bucketing", "foolsgold", "flame", "centered_clip"):
        assert deviation(outcome.step, parts, "w") < 3


@pytest.mark.parametrize("name", ["normclip", "geomedian"])
def test_no_claim_of_samples_counts_for_more_than_ten_clients(name):
    assert bounded(torch.tensor([1.0, 1.0, 1.0, 1e9]).double()).tolist() == [1.0, 1.0, 1.0, MOST]
    parts, wild, most = honest(), torch.ones(N).double(), torch.ones(N).double()
    wild[0], most[0] = 1e9, MOST
    claimed, allowed = (stepped(name, parts, weights) for weights in (wild, most))
    assert claimed.weights == allowed.weights


def test_a_large_odd_client_that_agrees_with_the_others_keeps_its_share():
    """It goes its own way three times as far as others do, and along with them as well."""
    parts = honest()
    for value in parts.values():
        centre = value[1:].mean(0)
        value[0] = centre + 3 * (value[0] - centre)
    rule, updates = AGGREGATORS["dsvd"](), matrix(parts)
    state = rule.init(updates.model)
    for _ in range(10):
        outcome = rule.finish(None, state, updates, MOMENT)
        state = outcome.state
    assert outcome.weights[0] > 0.5 / N
    assert outcome.metrics["shut_out"] == {}
