import numpy as np
import pytest
import torch
from torch import nn
from toy import KEY, play, played, same, setup

from shoal import SpecError
from shoal.core.gate import contents
from shoal.core.task import Task
from shoal.core.types import Cohort, Context, ModelMessage, ModelUpdate, Moment, Reply, Weights
from shoal.loop import advance, start
from shoal.methods.fedlp import FedLP
from shoal.parts.layers import LayersUpdate
from shoal.parts.submodels import cut_task, first_layers

MOMENT = Moment(0, 0, True, KEY)


def reply(update, samples):
    return Reply(ModelUpdate(Weights(update, {})), torch.tensor(samples, dtype=torch.float64), {})


def test_layers_are_averaged_over_those_who_sent_them():
    """The first layer from two clients with 1 and 3 samples, the second from one, the third from nobody."""
    task = Task(
        lambda: nn.Sequential(nn.Linear(1, 1, False), nn.Linear(1, 1, False), nn.Linear(1, 1, False)),
        "squared_error",
        0,
    )
    method = FedLP()
    state = method.init(task, KEY)
    before = [float(value) for value in state.model.params.values()]
    cohort = Cohort((0, 1), {}, 2)
    sent = method.dispatch(task, state, cohort, MOMENT)
    acc = method.begin(state, cohort)
    one = torch.ones(1, 1)
    acc = method.fold(acc, 0, sent, reply({"0.weight": one}, 1))
    acc = method.fold(acc, 1, sent, reply({"0.weight": 5 * one, "1.weight": 2 * one}, 3))
    after = [float(value) for value in method.finish(task, state, acc, MOMENT)[0].model.params.values()]
    assert np.subtract(after, before).tolist() == pytest.approx([4.0, 2.0, 0.0], abs=1e-6)


def test_the_expected_traffic_is_that_of_the_paper():
    """Whole models go down and a share p of the layers comes up: (1 + p) / 2 of FedAvg's bytes."""
    federation = setup({"name": "fedlp", "p": 0.3, "granularity": "tensor"}, selector="all").federation
    method, model = federation.method, start(federation).state.model
    sizes = {name: value.numel() for name, value in model.params.items()}
    total = sum(sizes.values())
    drawn = [sum(sizes[name] for name in method._drawn(model, KEY.fold(i))) / total for i in range(4000)]
    spread = np.sqrt(0.3 * 0.7 * sum(n**2 for n in sizes.values())) / total
    assert np.mean(drawn) == pytest.approx(0.3, abs=4 * spread / np.sqrt(4000))


def test_a_layer_is_sent_whole_or_not_at_all():
    federation = setup("fedlp", task={"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"}).federation
    model = start(federation).state.model
    first, second = {"0.weight", "0.bias", "1.weight", "1.bias"}, {"3.weight", "3.bias"}
    found = {frozenset(federation.method._drawn(model, KEY.fold(i))) for i in range(50)}
    assert found == {frozenset(), frozenset(first), frozenset(second), frozenset(first | second)}


def test_a_layer_that_the_model_lacks_is_refused():
    task = Task(lambda: nn.Linear(1, 1, False), "squared_error", 0)
    sent = ModelMessage(Weights({"weight": torch.ones(1, 1)}, {}))
    expected = FedLP().expects(task, sent)
    assert contents(sent, reply({"weight": torch.ones(1, 1)}, 1), expected) == ""
    assert contents(sent, reply({}, 1), expected) == ""
    strange = contents(sent, reply({"9.weight": torch.ones(1, 1)}, 1), expected)
    assert strange == "its update.params has an extra 9.weight"


def test_what_is_drawn_is_what_is_sent():
    method = FedLP()
    update = Weights({"a.weight": torch.ones(2, 2), "b.weight": torch.ones(2, 2)}, {"b.count": torch.ones(1)})
    sent = method.upload(Reply(LayersUpdate(update, ("b.weight",)), None, {}), {}).payload.update
    assert set(sent.params) == {"b.weight"}
    assert set(sent.buffers) == {"b.count"}


def test_bytes_come_down_with_p():
    up = {}
    for p in (0.2, 1.0):
        federation = setup({"name": "fedlp", "p": p}, selector="all").federation
        progress, total = start(federation), 0
        for _ in range(5):
            progress, record = advance(federation, progress)
            total += record.bytes_up
        up[p] = total
    assert up[0.2] < 0.6 * up[1.0]


# ---- clients that hold the first layers only


def test_first_layers_of_lenet():
    task = setup(task={"dataset": "mnist5k", "model": "lenet"}).federation.task
    assert first_layers(task, 2) == ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"]
    assert first_layers(task, 5) == list(task.shapes)
    cut = cut_task(task, 2)
    assert cut.shapes["exit.weight"] == (10, 16 * 4 * 4)
    assert cut.plan is not None


def test_a_cut_model_computes_its_layers_and_an_exit():
    task = setup().federation.task
    cut, whole = cut_task(task, 1), task.init(KEY)
    end = {f"exit.{name}": value for name, value in cut.init(KEY).params.items() if name.startswith("exit")}
    end = {name.removeprefix("exit."): value for name, value in end.items()}
    x = torch.ones(3, 10)
    params = {**{n: whole.params[n] for n in ("0.weight", "0.bias")}, **end}
    inside = (x @ whole.params["0.weight"].T + whole.params["0.bias"]).relu()
    expected = inside @ end["exit.weight"].T + end["exit.bias"]
    assert torch.allclose(cut.forward(Weights(params, {}), x)[0], expected, atol=1e-6)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_weak_clients_hold_and_send_the_first_layer(norm):
    """Even ids have one layer, odd ids both; the second layer is that of the odd ones."""
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    made = setup({"name": "fedlp", "p": 1.0, "depths": [1, 2]}, selector="all", task=task)
    federation = made.federation
    state, cohort = start(federation).state, Cohort((0, 1), {}, 8)
    message = federation.method.dispatch(federation.task, state, cohort, MOMENT)
    weak, strong = (set(row.params) for row in message.model.rows)
    assert weak == strong - {"3.weight", "3.bias"}
    data = made.side.data.train(0, federation.method.batching, KEY, full=norm == "batch")
    context = Context(0, 0, {}, KEY)
    sent = message._replace(model=message.model.rows[0])
    memory, answer = federation.method.client_update(federation.task, Weights({}, {}), sent, data, context)
    assert set(memory.params) == {"exit.weight", "exit.bias"}
    assert set(answer.payload.update.params) == weak
    again, _ = federation.method.client_update(federation.task, memory, sent, data, context)
    assert not same(memory, again)
    assert play(made, 2).state.model.params.keys() == state.model.params.keys()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"p": 0.0}, r"p must be a probability in \(0, 1\], got 0"),
        ({"depths": [0, 1]}, "depths must be at least 1"),
        ({"depths": [1, 3]}, "depths must be at most 2, the model's, got 3"),
    ],
)
def test_mistakes_are_named(fields, reason):
    with pytest.raises(SpecError, match=reason):
        played({"name": "fedlp", **fields}, 1)
