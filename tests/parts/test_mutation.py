from collections import Counter

import numpy as np
import pytest
import torch
from toy import KEY

from shoal.core.types import Weights
from shoal.methods.fedqp import project
from shoal.parts.mutation import Mutants, Mutation, Turn, layers, projected, where_moved

KINDS = pytest.mark.parametrize("kind", ["fedmut", "gaussian", "mixed"])
SHAPES = {"a.weight": (4, 6), "a.bias": (4,), "b.weight": (3, 2), "scale": (1,)}
ALPHA, SIGMA = 3.0, 0.5


def values(name):
    draw = KEY.fold(name).torch()
    return {n: torch.randn(s, generator=draw, dtype=torch.float64) for n, s in SHAPES.items()}


NOW, BEFORE = values("now"), values("before")
DELTA = {name: NOW[name] - BEFORE[name] for name in NOW}


def drawn(kind="fedmut", clients=10, backward=-1.0, granularity="tensor", key=KEY):
    parts = layers(NOW, granularity)
    sizes = [sum(NOW[name].numel() for name in names) for names in parts]
    return Mutation(kind, ALPHA, SIGMA).draw(clients, sizes, backward, key)


def models(mutations, granularity="tensor"):
    parts = layers(NOW, granularity)
    norms = Turn.between(parts, NOW, BEFORE, BEFORE).norms.tolist()
    return Mutants(Weights(NOW, {}), BEFORE, parts, norms, mutations, KEY)


def mutation(model, names):
    return torch.cat([(model.params[name] - NOW[name]).reshape(-1) for name in names])


def delta_of(names):
    return torch.cat([DELTA[name].reshape(-1) for name in names])


def everywhere(mutations):
    return projected(mutations, np.ones(mutations.along.shape, bool))


@pytest.mark.parametrize("clients", [2, 4, 10])
def test_half_of_the_clients_forward_half_backward_in_each_layer(clients):
    along = drawn(clients=clients, backward=-0.75).along
    for column in along.T:
        assert Counter(column.tolist()) == {3.0: clients // 2, -2.25: clients // 2}


def test_layers_are_dealt_independently():
    along = drawn(clients=10).along
    assert len({tuple(column) for column in along.T}) == along.shape[1]


def test_the_odd_one_out_is_not_mutated_and_is_anybody():
    left = set()
    for i in range(40):
        mutations = drawn(clients=5, key=KEY.fold(i))
        (still,) = [j for j in range(5) if not mutations.along[j].any()]
        left.add(still)
    assert left == set(range(5))


@KINDS
def test_a_client_alone_is_sent_the_global_model(kind):
    (model,) = models(drawn(kind, clients=1))
    assert all(model.params[name] is NOW[name] for name in NOW)


@KINDS
def test_the_mean_of_the_models_is_the_global_one(kind):
    sent = models(drawn(kind))
    for name in NOW:
        mean = torch.stack([model.params[name] for model in sent]).mean(0)
        torch.testing.assert_close(mean, NOW[name], rtol=1e-12, atol=1e-12)


@KINDS
def test_mutations_as_their_names_say(kind):
    mutations = drawn(kind)
    for model, along in zip(models(mutations), mutations.along, strict=True):
        for index, names in enumerate(layers(NOW, "tensor")):
            found, delta = mutation(model, names), delta_of(names)
            forward = float(found @ delta / (delta @ delta))
            assert forward == pytest.approx(along[index])
            aside = float((found - forward * delta).norm() / delta.norm())
            if len(delta) == 1 or kind == "fedmut":
                assert (abs(forward), aside) == pytest.approx((ALPHA, 0))
            elif kind == "mixed":
                assert (abs(forward), aside) == pytest.approx((ALPHA, ALPHA * SIGMA))
            else:
                assert float(found.norm() / delta.norm()) == pytest.approx(ALPHA)
                assert aside > 0


@KINDS
@pytest.mark.parametrize("granularity", ["tensor", "module"])
def test_the_rule_for_two_numbers_is_the_projection_of_the_tensors(kind, granularity):
    mutations = drawn(kind, granularity=granularity)
    free, bound = models(mutations, granularity), models(everywhere(mutations), granularity)
    for before, after in zip(free, bound, strict=True):
        for names in layers(NOW, granularity):
            expected = project(mutation(before, names), delta_of(names))
            torch.testing.assert_close(mutation(after, names), expected, rtol=1e-9, atol=1e-12)
    assert bool((everywhere(mutations).active == (mutations.along < 0)).all())


def test_tensors_of_a_module_are_mutated_together():
    assert layers(NOW, "module") == (("a.weight", "a.bias"), ("b.weight",), ("scale",))
    for model in models(drawn(granularity="module"), "module"):
        signs = {name: float((model.params[name] - NOW[name]).sum() / DELTA[name].sum()) for name in DELTA}
        assert signs["a.weight"] == pytest.approx(signs["a.bias"])


def test_what_is_not_mutated_is_the_very_tensor():
    mutations = everywhere(drawn())
    for model, along in zip(models(mutations), mutations.along, strict=True):
        for name, coefficient in zip(NOW, along, strict=True):
            assert (model.params[name] is NOW[name]) == (coefficient == 0)


def test_a_model_is_the_same_whenever_it_is_asked_for():
    sent = models(drawn("mixed"))
    for first, second in zip(sent, sent[:], strict=True):
        assert all(torch.equal(first.params[name], second.params[name]) for name in NOW)
    assert len({float(model.params["a.weight"].sum()) for model in sent}) == 10
    assert sent[0].params["a.weight"] is not sent[0].params["a.weight"]  # made anew, and not kept


def test_a_layer_that_stood_still_stays():
    mutations = where_moved(everywhere(drawn("mixed")), np.array([1.0, 0.0, 2.0, 3.0]))
    for table in (mutations.along, mutations.across, mutations.active):
        assert not table[:, 1].any()
        assert table[:, 0].any()


def test_how_far_a_random_direction_leans():
    """The expected cosine by its closed form, and by drawing."""
    for size in (1, 2, 3, 50):
        shape = Mutation("gaussian", 1.0, 0.0)
        along = shape.draw(40_000, [size], -1.0, KEY).along
        assert np.abs(along).mean() == pytest.approx(shape.lean([size]), rel=0.01)
    assert Mutation("gaussian", 1.0, 0.0).lean([1, 3]) == pytest.approx((1 + 0.5) / 2)
    assert Mutation("mixed", 1.0, 0.5).lean([1, 3]) == 1


def test_the_turn_by_hand():
    """Steps (1, 0) then (3, 4): without two pushes of the first the second is (1, 4)."""
    now, new = torch.tensor([1.0, 0.0]), torch.tensor([4.0, 4.0])
    turn = Turn.between((("w",),), {"w": new}, {"w": now}, {"w": torch.zeros(2)})
    assert turn.norms.tolist() == [5.0]
    assert turn.cosine(np.array([1.0]), np.array([2.0])) == pytest.approx(1 / np.sqrt(17))
    assert turn.cosine(np.array([0.0]), np.array([2.0])) is None
