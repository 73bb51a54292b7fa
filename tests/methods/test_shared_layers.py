"""Methods that share some layers: fedper, fedfina, fedlg, partialfed."""

import pytest
import torch
from toy import BATCH_NORM, own_models, play, same, setup

from shoal import SpecError
from shoal.core.task import Task
from shoal.models.resnet import resnet18_imagenet
from shoal.parts.layer_scores import ranked
from shoal.parts.layers import AllButLast, LastStage, Matching, sizes_of, whole_layers


def resnet():
    return Task(lambda: resnet18_imagenet((3, 32, 32), 10), "cross_entropy", 10, last="fc.")


@pytest.mark.parametrize(
    ("choice", "count"),
    [
        (LastStage(), 8_257_536),  # FedFina
        (Matching(("layer*.1.conv1.weight",)), 3_133_440),  # ParFed
        (Matching(("layer4.1.conv*.weight", "layer2.0.conv1.weight")), 4_792_320),  # FedLG
        (AllButLast(0), 11_181_642),  # FedAvg
        (AllButLast(1), 11_181_642 - 5_130),
    ],
)
def test_what_travels_of_resnet18(choice, count):
    """The figures of GENE-FL's traffic table."""
    sizes = sizes_of(resnet())
    assert sum(sizes[name] for name in choice.names(resnet())) == count


def test_last_stage_of_other_models():
    task = setup(task={"dataset": "mnist5k", "model": "lenet"}).federation.task
    assert LastStage().names(task) == ["conv2.weight"]
    task = setup(task={"dataset": "mnist5k", "model": "mlp"}).federation.task
    assert [tuple(task.shapes[name]) for name in LastStage().names(task)] == [(200, 784), (200, 200)]


@pytest.mark.parametrize(
    ("method", "shared"),
    [
        ("fedper", {"0.weight", "0.bias", "1.weight", "1.bias"}),
        ("fedfina", {"0.weight"}),
        ({"name": "fedlg", "layers": ["3.*"]}, {"3.weight", "3.bias"}),
        ({"name": "partialfed", "load": ["0.bias"], "upload": "loaded"}, {"0.bias"}),
    ],
)
def test_only_chosen_layers_travel(method, shared):
    made = setup(method, task=BATCH_NORM, selector="all")
    progress = play(made, 2)
    assert set(progress.state.model.params) == shared
    memory = made.federation.engine.memory(0, progress.accepted[0]).method
    assert set(memory.params) == {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"} - shared


def test_bytes_are_those_of_the_shared_layers():
    """12 x 10 weights and 12 biases of 4 bytes less than FedAvg's, apart from names and shapes."""
    up = {}
    for method in ("fedavg", "fedper", "partialfed"):
        from shoal.loop import advance, start

        federation = setup(method, selector="all").federation
        _, record = advance(federation, start(federation))
        up[method] = record.bytes_up
    saved = (up["fedavg"] - up["fedper"]) / 8
    assert 4 * (4 * 12 + 4) < saved < 4 * (4 * 12 + 4) + 200  # the last layer, and its part of the header
    assert up["partialfed"] == pytest.approx(up["fedavg"], rel=0.01)


def test_partialfed_keeps_what_it_does_not_load():
    shared, other = own_models("partialfed", 2, selector="all")[:2]
    assert torch.equal(shared[0]["0.weight"], other[0]["0.weight"])
    assert not torch.equal(shared[0]["3.weight"], other[0]["3.weight"])


def test_partialfed_learns_what_to_load():
    """A layer is loaded where that lowers the loss: s moves against its gradient."""
    made = setup({"name": "partialfed", "strategy": "adaptive"}, selector="all")
    progress = play(made, 3)
    logits = [made.federation.engine.memory(c, v).method.logits for c, v in progress.accepted.items()]
    assert any(bool((s < 0).any()) for s in logits)
    assert any(bool((s > 0).any()) for s in logits)
    assert not same(own_models({"name": "partialfed", "strategy": "adaptive"}), own_models("partialfed"))


def test_activity_ranks_what_moves_least_first():
    before = {"a": torch.zeros(4), "b": torch.zeros(4), "c": torch.zeros(2)}
    after = {
        "a": torch.tensor([1.0, 1.0, 0.0, 0.0]),
        "b": torch.tensor([1.0, 0.0, 0.0, 4e-4]),
        "c": torch.tensor([-1.0, 1.0]),
    }
    assert ranked("activity", before, after) == ["b", "a", "c"]


def test_a_layer_has_its_bias_and_its_norm():
    params = dict.fromkeys(["0.weight", "3.weight"], torch.zeros(2, 2)) | {"0.bias": torch.zeros(2)}
    order = ["0.weight", "0.bias", "3.weight"]
    assert whole_layers({name: params[name] for name in order}) == [["0.weight", "0.bias"], ["3.weight"]]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ({"name": "fedfina", "layers": ["conv9.*"]}, r"the layers 'conv9.\*' are not in this model"),
        ({"name": "fedper", "layers": 2}, "layers must be 0 to 1"),
        ({"name": "fedper", "layers": -1}, "layers must be at least 0"),
        ({"name": "partialfed", "strategy": "adaptive", "load": ["0.*"]}, "each client chooses its layers"),
        ({"name": "fedlg", "budget": 0.0}, "budget must be a share"),
    ],
)
def test_mistakes_are_named(method, reason):
    with pytest.raises(SpecError, match=reason):
        setup(method)
