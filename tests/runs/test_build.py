"""What users bring along is checked before anything runs."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from toy import KEY, blobs, net, same, setup, spec, table

import shoal
from shoal import Spec, SpecError, StageError
from shoal.core.serialization import to_bytes
from shoal.loop import start
from shoal.methods.clusamp import CluSamp
from shoal.methods.fedavg import FedAvg
from shoal.runs.build import Samples, build, client_side, make_task, server_side
from shoal.selectors.clustered import Clustered
from shoal.selectors.uniform import Uniform


def unlike(**changes):
    def load():
        return replace(blobs(), **changes)

    return load


def untyped(*, n=5):
    return blobs()


def demanding(path):
    return blobs()


def broken():
    raise OSError("disk on fire")


def narrow(shape):
    return net(shape, 4)


CASES = {
    "lists": (unlike(x_train=[[0.0] * 10] * 320), "x_train of data set blobs must be a tensor, got list"),
    "arrays": (unlike(y_test=[1, 2]), "y_test of data set blobs must be a tensor of torch.int64, got list"),
    "lengths": (unlike(y_train=torch.zeros(3).long()), "has 320 samples and 3 labels"),
    "nothing": (
        unlike(x_test=torch.zeros(0, 10), y_test=torch.zeros(0).long()),
        "has 0 samples and 0 labels",
    ),
    "labels": (unlike(classes=3), "labels of data set blobs must be 0 to 2, got 0 to 3"),
    "untyped": (untyped, "the option n of untyped needs a type annotation"),
    "demanding": (demanding, "must take nothing but keyword options"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_data_sets(name, monkeypatch):
    loader, message = CASES[name]
    monkeypatch.setattr("toy.blobs", loader)
    with pytest.raises(SpecError, match=message):
        shoal.run(table())


def test_bad_models(monkeypatch):
    monkeypatch.setattr("toy.net", narrow)
    with pytest.raises(SpecError, match="narrow must take shape, classes and keyword options"):
        shoal.run(table())
    monkeypatch.setattr("toy.net", lambda shape, classes: "a model")
    with pytest.raises(SpecError, match="returned a str, not a module"):
        shoal.run(table())


def test_errors_in_a_users_function_name_it(monkeypatch):
    monkeypatch.setattr("toy.blobs", broken)
    with pytest.raises(StageError, match=r"task.dataset: broken failed.*disk on fire"):
        shoal.run(table())


def test_batch_norm_needs_two_samples():
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"}
    with pytest.raises(SpecError, match="batch must be at least 2 for a model with BatchNorm, got 1"):
        shoal.run(table(task=task, local={"batch": 1}))


def test_a_run_that_failed_before_its_first_round_leaves_its_place_free(tmp_path):
    bad = table(attack={"name": "label_flip", "fraction": 1.0}, partition={"kind": "iid", "clients": 8})
    bad["task"] = {"dataset": "toy:line", "model": "linear"}
    with pytest.raises(SpecError, match="label_flip needs class labels"):
        shoal.run(bad, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_clients_that_exist_have_a_model():
    result = shoal.run(table(rounds=1))
    with pytest.raises(SpecError, match="there is no client 8; ids are 0 to 7"):
        result.model(client=8)


# ---- samples of any number format


def tokens() -> shoal.Dataset:
    """Which of two words comes more often, in sentences of seven words out of twenty."""
    draw = KEY.fold("tokens").numpy()
    x = torch.from_numpy(draw.integers(20, size=(400, 7)))
    y = ((x == 3).sum(1) > (x == 5).sum(1)).long()
    return shoal.Dataset("tokens", x[:320], y[:320], x[320:], y[320:], classes=2)


class Bag(nn.Module):
    """The mean of the words' vectors, and a linear layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.words, self.drop, self.out = nn.Embedding(20, 8), nn.Dropout(0.1), nn.Linear(8, classes)

    def forward(self, x):
        return self.out(self.drop(self.words(x).mean(1)))


def bag(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Bag(classes)


def doubles() -> shoal.Dataset:
    given = blobs()
    return replace(given, x_train=given.x_train.double(), x_test=given.x_test.double())


def test_samples_may_be_whole_numbers():
    task = {"dataset": f"{__name__}:tokens", "model": f"{__name__}:bag"}
    local = {"lr": 0.5, "batch": 8, "epochs": 2}
    result = shoal.run(table(task=task, rounds=12, selector="all", local=local))
    assert result.final_accuracy > 0.8


def test_samples_may_be_doubles():
    task = {"dataset": f"{__name__}:doubles", "model": "toy:net"}
    result = shoal.run(table(task=task, rounds=8, selector="all"))
    assert result.final_accuracy == pytest.approx(
        shoal.run(table(rounds=8, selector="all")).final_accuracy, abs=0.05
    )


# ---- what is not trained


def test_what_is_frozen_neither_trains_nor_travels():
    task = {"dataset": "toy:blobs", "model": "toy:net", "frozen": ["0.*"]}
    part = shoal.run(table(task=task))
    assert part.bytes_up < 0.6 * shoal.run(table()).bytes_up
    before = build(spec(task=task)).federation.task.frozen
    assert set(before) == {"0.weight", "0.bias"}
    after = part.model().state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    whole = setup().federation
    first = whole.task.init(whole.model_key).params
    assert torch.equal(first["0.weight"], before["0.weight"])  # the same as in a run that trains it
    assert not torch.equal(after["3.weight"], first["3.weight"])


def half_trained(shape: tuple[int, ...], classes: int) -> nn.Module:
    module = net(shape, classes)
    module[0].requires_grad_(False)
    return module


def test_parameters_that_need_no_gradient_are_frozen_too():
    by_name = shoal.run(table(task={"dataset": "toy:blobs", "model": "toy:net", "frozen": ["0.*"]}))
    by_torch = shoal.run(table(task={"dataset": "toy:blobs", "model": f"{__name__}:half_trained"}))
    assert by_torch.weights_sha256 == by_name.weights_sha256


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        (["first.*"], "'first.*' matches no parameter of the model, which has 0.weight"),
        (["*"], "leaves no parameter to train"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(frozen, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        setup(task={"dataset": "toy:blobs", "model": "toy:net", "frozen": frozen})


# ---- seeds of their own


def test_seeds_vary_one_thing_at_a_time():
    def parts(**changes):
        made = setup(**changes)
        federation = made.federation
        held = [made.shards.indices(client).tolist() for client in range(8)]
        model = federation.task.init(federation.model_key)
        return held, to_bytes(model), federation.key

    one = parts()
    for place, name in enumerate(("partition", "model", "order")):
        other = parts(seeds={name: 99})
        assert [a == b for a, b in zip(one, other, strict=True)] == [i != place for i in range(3)]
    assert parts(seeds={"partition": 3, "model": 3, "order": 3}) == one  # the toy's seed


# ---- goals


@pytest.mark.parametrize(
    ("evaluate", "message"),
    [
        ({"stop_at": 50}, "evaluate.stop_at must be an accuracy in (0, 1], got 50; for 50 % write 0.5"),
        ({"stop_at": 0}, "evaluate.stop_at must be an accuracy in (0, 1], got 0"),
        ({"stop_at": 0.5, "every": 0}, "stop_at = 0.5 needs evaluations during the run, but every = 0"),
    ],
)
def test_a_goal_that_cannot_be_reached_is_refused(evaluate, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        shoal.run(table(evaluate={"every": 1, **evaluate}))


def test_a_run_ends_at_its_goal():
    result = shoal.run(table(rounds=30, selector="all", evaluate={"every": 2, "stop_at": 0.6}))
    assert result.rounds < 30
    assert result.rounds % 2 == 0
    assert result.final_accuracy >= 0.6
    assert all(record["accuracy"] is None or record["accuracy"] < 0.6 for record in result.records[:-1])


# ---- a method brings its selector


def test_a_method_brings_its_selector_from_python_too():
    assert isinstance(Spec(method=CluSamp()).selector, Clustered)
    assert isinstance(Spec(method=FedAvg()).selector, Uniform)
    assert isinstance(Spec(method=CluSamp(), selector=Uniform(count=3)).selector, Uniform)


# ---- a client has its own data only, a server none


def test_client_and_server_are_built_apart():
    """The server's half is made without a sample, the client's without anybody else's."""
    chosen = spec("scaffold")
    samples = Samples("blobs", (10,), torch.float32, 4)
    server = server_side(chosen, make_task(chosen, samples), setup().federation.engine, 8)
    whole = setup("scaffold").federation
    assert same(start(server).state, start(whole).state)
    client = client_side(chosen, make_task(chosen, samples), setup().side.data)
    assert same(client.fresh, setup("scaffold").side.fresh)
    with pytest.raises(SpecError, match="needs clean samples at the server, and this one has none"):
        server_side(spec("fltrust"), make_task(chosen, samples), setup().federation.engine, 8)
