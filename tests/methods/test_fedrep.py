import numpy as np
import pytest
import torch
from toy import own_models, play, same, setup

from shoal import SpecError
from shoal.core.types import Context
from shoal.methods.fedrep import FedRep
from shoal.parts.submodels import features_data, head_task, some_epochs
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
    head = method._head(task, start, data, context)
    assert torch.allclose(head["3.weight"], whole["3.weight"], atol=1e-6)
    assert torch.allclose(head["3.bias"], whole["3.bias"], atol=1e-6)


def test_features_and_head_are_the_model():
    made = setup("fedrep")
    task, data = made.federation.task, client(made)
    weights = task.init(made.federation.key)
    features = features_data(task, weights, data).all.x
    own = {name.removeprefix("3."): value for name, value in weights.params.items() if name[0] == "3"}
    outputs = head_task(task).forward(weights._replace(params=own), features)[0]
    assert torch.allclose(outputs, task.forward(weights, data.all.x)[0], atol=1e-6)


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
