import pytest
import torch
from torch import nn
from toy import KEY, own_models, played, setup

from shoal import SpecError
from shoal.core.task import Task
from shoal.core.types import Cohort, Context, ModelUpdate, Moment, Reply, Weights
from shoal.loop import advance, start
from shoal.methods.fedlps import FedLPS
from shoal.models.resnet import resnet18_imagenet
from shoal.parts.channels import channel_groups, pruned, strongest
from shoal.parts.pruned_models import enlarged, smaller

MOMENT = Moment(0, 0, True, KEY)
LENET = {"dataset": "mnist5k", "model": "lenet"}


def pairs(task):
    return [(group.producer, group.consumer, group.spread) for group in channel_groups(task)]


def test_channels_of_lenet():
    """Each layer but the last; after flattening a channel has 4 x 4 inputs of the next layer."""
    assert pairs(setup(task=LENET).federation.task) == [
        ("conv1.weight", "conv2.weight", 1),
        ("conv2.weight", "fc1.weight", 16),
        ("fc1.weight", "fc2.weight", 1),
        ("fc2.weight", "fc.weight", 1),
    ]


def test_channels_that_a_skip_connection_reads_stay():
    task = Task(
        lambda: resnet18_imagenet((3, 32, 32), 10), "cross_entropy", 10, last="fc.", shape=(3, 32, 32)
    )
    found = channel_groups(task)
    blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3, 4) for block in (0, 1)]
    assert [group.producer for group in found] == [f"{block}.conv1.weight" for block in blocks]
    assert [group.consumer for group in found] == [f"{block}.conv2.weight" for block in blocks]
    assert {"layer1.0.bn1.weight", "layer1.0.bn1.running_var"} <= set(found[0].vectors)


def test_the_strongest_channels_are_left():
    task = Task(
        lambda: nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)), "squared_error", 0, shape=(2,)
    )
    model = task.init(KEY)
    rows = torch.tensor([[1.0, -1.0], [0.5, 0.0], [0.0, 3.0], [-1.0, 1.5]])
    model = model._replace(params={**model.params, "0.weight": rows})
    groups = channel_groups(task)
    kept = pruned(groups, strongest(groups, model), 0.5)
    assert kept["0.weight"].rows.tolist() == kept["0.bias"].rows.tolist() == [0, 0, 1, 1]
    assert kept["2.weight"].columns.tolist() == [0, 0, 1, 1]
    small = smaller(model, kept)
    assert {name: tuple(v.shape) for name, v in small.params.items()} == {
        "0.weight": (2, 2), "0.bias": (2,), "2.weight": (1, 2), "2.bias": (1,),
    }  # fmt: skip
    whole = enlarged(small, kept).params["0.weight"]
    assert torch.equal(whole, rows * torch.tensor([[0.0], [0.0], [1.0], [1.0]]))


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_zeros_train_as_if_they_were_not_there(norm):
    """A model with zeros for its pruned channels ends where the smaller model ends."""
    made = setup(
        {"name": "fedlps", "ratios": [0.5]}, task={"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    )
    federation = made.federation
    task, state = federation.task, start(federation).state
    message = federation.method.dispatch(task, state, Cohort((0,), {}, 8), MOMENT)
    sent = message._replace(model=message.model.rows[0], kept=message.kept.rows[0])
    data = made.side.data.train(0, federation.method.batching, KEY, full=norm == "batch")
    context = Context(0, 0, {}, KEY)
    _, reply = federation.method.client_update(task, (), sent, data, context)
    update = federation.method.upload(reply, {}).payload.update

    middle = nn.BatchNorm1d if norm == "batch" else nn.Identity
    little = Task(
        lambda: nn.Sequential(nn.Linear(10, 6), middle(6), nn.ReLU(), nn.Linear(6, 4)), "cross_entropy", 4,
        batch_norms=("1",) if norm == "batch" else (),
    )  # fmt: skip
    trained = federation.method.local.train(little, sent.model, data, context)
    for name, value in trained.update(sent.model).params.items():
        assert torch.allclose(update.params[name], value, atol=1e-5), name
    full = reply.payload.update.params
    assert int((full["0.weight"] != 0).any(1).sum()) == 6


def test_a_smaller_model_is_smaller_on_the_wire():
    """LeNet without four fifths of its channels: 1, 3, 24 and 17 of 6, 16, 120 and 84 are left."""
    found = {}
    for ratio in (0.0, 0.8):
        federation = setup(
            {"name": "fedlps", "ratios": [ratio]}, task=LENET, selector={"count": 2}
        ).federation
        progress = start(federation)
        cohort = Cohort((0,), {}, 8)
        sent = federation.method.dispatch(federation.task, progress.state, cohort, MOMENT).model.rows[0]
        found[ratio] = sum(value.numel() for value in sent.params.values())
        _, record = advance(federation, progress)
        found[f"up {ratio}"], found[f"down {ratio}"] = record.bytes_up, record.bytes_down
    left = (25 + 1) + (3 * 25 + 3) + (24 * 3 * 16 + 24) + (17 * 24 + 17) + (10 * 17 + 10)
    assert found[0.8] == left
    assert found["up 0.8"] < 0.08 * found["up 0.0"]
    assert found["down 0.8"] < 0.08 * found["down 0.0"]


@pytest.mark.parametrize(("aggregate", "expected"), [("holders", 6.0), ("zeros", 3.0)])
def test_a_weight_is_averaged_over_those_who_hold_it(aggregate, expected):
    """Of two clients with 1 sample each, one holds channel 0 and moves it from 4 by 2."""
    task = Task(
        lambda: nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)),
        "squared_error",
        0,
        shape=(1,),
    )
    method = FedLPS(ratios=(0.5, 0.0), aggregate=aggregate)
    state = method.init(task, KEY)
    params = {"0.weight": torch.tensor([[4.0], [5.0]]), "2.weight": torch.tensor([[1.0, 1.0]])}
    averaged = state.averaged._replace(model=Weights(params, {}))
    state = state._replace(averaged=averaged)
    cohort = Cohort((0, 1), {}, 2)
    message = method.dispatch(task, state, cohort, MOMENT)
    acc = method.begin(state, cohort)
    for client, change in ((0, [[0.0]]), (1, [[2.0], [0.0]])):
        sent = message._replace(model=message.model.rows[client], kept=message.kept.rows[client])
        update = {"0.weight": torch.tensor(change), "2.weight": torch.zeros(1, len(change))}
        one = torch.tensor(1.0, dtype=torch.float64)
        reply = method.received(Reply(ModelUpdate(Weights(update, {})), one, {}), sent)
        acc = method.fold(acc, client, sent, reply)
    after = method.finish(task, state, acc, MOMENT)[0].model.params["0.weight"]
    assert after.flatten().tolist() == [expected, 5.0]


def test_what_a_codec_has_rounded_counts_from_where_it_is():
    """A client that was sent 4.5 for 4 and moves it by 1 has moved the server's number by 1.5."""
    task = Task(
        lambda: nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)),
        "squared_error",
        0,
        shape=(1,),
    )
    method = FedLPS(ratios=(0.5,))
    state = method.init(task, KEY)
    params = {"0.weight": torch.tensor([[1.0], [4.0]]), "2.weight": torch.tensor([[1.0, 1.0]])}
    state = state._replace(averaged=state.averaged._replace(model=Weights(params, {})))
    cohort = Cohort((0, 1), {}, 2)
    message = method.dispatch(task, state, cohort, MOMENT)
    acc = method.begin(state, cohort)
    for client in (0, 1):
        rounded = Weights({"0.weight": torch.tensor([[4.5]]), "2.weight": torch.tensor([[1.0]])}, {})
        sent = message._replace(model=rounded, kept=message.kept.rows[client])
        update = {"0.weight": torch.tensor([[1.0]]), "2.weight": torch.zeros(1, 1)}
        one = torch.tensor(1.0, dtype=torch.float64)
        reply = method.received(Reply(ModelUpdate(Weights(update, {})), one, {}), sent)
        acc = method.fold(acc, client, sent, reply)
    after = method.finish(task, state, acc, MOMENT)[0].model.params["0.weight"]
    assert after.flatten().tolist() == [1.0, 5.5]


def test_every_client_has_a_model_of_its_size():
    models = own_models({"name": "fedlps", "ratios": [0.0, 0.5]}, 2, selector="all")
    left = [int((params["0.weight"] != 0).any(1).sum()) for params, _ in models]
    assert left == [12, 6] * 4


@pytest.mark.parametrize("ratios", [[], [1.0], [-0.1]])
def test_wrong_ratios_are_named(ratios):
    with pytest.raises(SpecError, match=r"ratios must be shares in \[0, 1\)"):
        played({"name": "fedlps", "ratios": ratios})


def test_a_model_without_hidden_channels_is_refused():
    with pytest.raises(SpecError, match="no channel of this model that can be removed"):
        setup("fedlps", task={"dataset": "toy:blobs", "model": "logistic_ova"})
