from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import DENSE, own_models, play, same, setup

from shoal import SpecError
from shoal.core.types import Context, ModelMessage
from shoal.methods.fedrep import FedRep
from shoal.parts.layers import NO_LAYERS
from shoal.parts.submodels import body_task, features_data, head_task, some_epochs
from shoal.solver.outputs import features_of
from shoal.solver.sgd import Sgd


def client(made, number=0):
    key = made.federation.key.fold("batches")
    return made.side.data.train(number, made.federation.method.batching, key, full=False)


def test_the_epochs_are_divided():
    made = setup("fedrep", local={"epochs": 3, "batch": 8, "lr": 0.1})
    data = client(made)
    head, body = some_epochs(data, 0, 2, 3), some_epochs(data, 2, 3, 3)
    batches = [y.tolist() for _, y in data.train]
    assert [y.tolist() for _, y in head.train] + [y.tolist() for _, y in body.train] == batches
    assert len(list(head.train)) == 2 * len(list(body.train))


def test_the_head_alone_is_trained_as_in_the_whole_model():
    """One step of the head on its features is one step of the model, as far as the head is concerned."""
    made = setup("fedrep", local={"epochs": 2, "batch": 500, "lr": 0.1})
    task, method, data = made.federation.task, made.federation.method, client(made)
    start, context = task.init(made.federation.key), Context(0, 0, {}, made.federation.key)
    first = some_epochs(data, 0, 1, 2)
    whole = method.local.train(task, start, first, context).weights.params
    course = method.client_training(task, NO_LAYERS, ModelMessage(start), data, context)
    asked = next(course)
    head = method.local.train(asked.task, asked.weights, asked.data, context).weights.params
    assert torch.allclose(head["weight"], whole["3.weight"], atol=1e-6)
    assert torch.allclose(head["bias"], whole["3.bias"], atol=1e-6)


@pytest.mark.parametrize("task", [DENSE, {"dataset": "mnist5k", "model": "lenet"}])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_last_layer_is_held(task, momentum):
    """By the kernels as by torch, weight decay and momentum included."""
    made = setup("fedrep", task=task)
    base, data = made.federation.task, client(made)
    local = replace(made.federation.method.local, momentum=momentum, weight_decay=0.01, lr=0.005)
    start, context = base.init(made.federation.key), Context(0, 0, {}, made.federation.key)
    body = body_task(base)
    assert local.fits(body, ())
    found = local.train(body, start, data, context).update(start).params
    wanted = local.train(replace(body, plan=None), start, data, context).update(start).params
    for name, value in wanted.items():
        assert torch.allclose(found[name], value, atol=2e-5), name
        assert bool(found[name].any()) == bool(value.any()) == (name not in base.head_names)


def test_features_and_head_are_the_model():
    made = setup("fedrep")
    task, data = made.federation.task, client(made)
    weights = task.init(made.federation.key)
    features = features_data(task, weights, data).all.x
    own = {name.removeprefix("3."): value for name, value in weights.params.items() if name[0] == "3"}
    outputs = head_task(task).forward(weights._replace(params=own), features)[0]
    assert torch.allclose(outputs, task.forward(weights, data.all.x)[0], atol=1e-6)


def test_features_by_the_kernels_are_those_by_torch():
    made = setup("fedrep", task={"dataset": "mnist5k", "model": "lenet"})
    task, x = made.federation.task, client(made).all.x
    weights = task.init(made.federation.key)
    assert torch.allclose(features_of(task, weights, x), task.features(weights, x), atol=1e-6)


def test_heads_differ_and_the_representation_does_not():
    first, second = own_models("fedrep", 2, selector="all")[:2]
    assert torch.equal(first[0]["0.weight"], second[0]["0.weight"])
    assert not torch.equal(first[0]["3.weight"], second[0]["3.weight"])
    assert not same(own_models("fedrep"), own_models("fedper"))


def test_the_body_is_trained_with_the_new_head():
    made = setup("fedrep", selector="all")
    before = play(made, 0).state.model.params["0.weight"]
    assert not np.allclose(before, play(made, 1).state.model.params["0.weight"])


def test_too_many_body_epochs_are_named():
    with pytest.raises(SpecError, match=r"body_epochs must be 1 to 2, the epochs of \[local\], got 3"):
        FedRep(body_epochs=3, local=Sgd(epochs=2))
