import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toy import KEY, blobs, play, played, same, setup, table

import shoal
from shoal import SpecError
from shoal.core.serialization import nbytes
from shoal.core.term import Step
from shoal.core.types import Cohort, Moment, Weights
from shoal.methods.fedgen import FedGen, FedGenReply
from shoal.parts.generator import Adam, faded, label_weights, new_generator, taught
from shoal.solver import compiled_sgd
from shoal.terms.generated import Generated, generate

QUICK = {"name": "fedgen", "steps": 3}


def diversity_loss(noise, features):
    apart = (noise[:, None] - noise).square().mean(2)
    return (-apart * (features[:, None] - features).abs().mean(2)).mean().exp()


def teacher_loss(outputs, y, shares):
    each = F.cross_entropy(outputs.flatten(0, 1), y.repeat(len(outputs)), reduction="none")
    return (shares[:, y] * each.view(len(outputs), -1)).sum(0).mean()


def doubled(shape, classes):
    """A model that does not end in a linear layer."""
    return nn.Sequential(nn.Linear(shape[0], classes), nn.Softplus())


# -- the parts


def test_shares_in_a_class_have_the_sum_1_or_nobody_holds_it():
    counts = torch.tensor([[3, 0, 5, -2], [1, 0, 0, 4]])
    found = label_weights(counts)
    assert found.tolist() == [[0.75, 0.0, 1.0, 0.0], [0.25, 0.0, 0.0, 1.0]]
    assert found.dtype == torch.float32


def test_diversity_by_hand():
    """Two of four pairs differ, by 4 in the noise and by 3 in the features: exp(-2 * 12 / 4)."""
    noise, features = torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [4.0]])
    assert diversity_loss(noise, features).item() == pytest.approx(math.exp(-6))


def test_diversity_is_1_for_features_that_are_all_the_same_and_never_more():
    noise = KEY.fold("noise").uniform((8, 3))
    assert diversity_loss(noise, torch.ones(8, 5)).item() == 1
    for scale in (0.01, 1.0, 30.0):
        assert 0 < diversity_loss(noise, scale * KEY.fold("features").uniform((8, 5))).item() < 1


def test_the_teachers_by_hand():
    """The first client holds the class and knows nothing, the second knows all but does not hold it."""
    outputs = torch.tensor([[[0.0, 0.0]], [[50.0, 0.0]]])
    shares = torch.tensor([[1.0, 0.5], [0.0, 0.5]])
    assert teacher_loss(outputs, torch.tensor([0]), shares).item() == pytest.approx(math.log(2))
    expected = 0.5 * math.log(2) + 0.5 * 50
    assert teacher_loss(outputs, torch.tensor([1]), shares).item() == pytest.approx(expected)


def network_of(generator):
    """The generator as an ordinary module, its layers named by what they are."""
    params, buffers = generator
    hidden, wide = params["fc1.weight"].shape
    first, norm, last = (
        nn.Linear(wide, hidden),
        nn.BatchNorm1d(hidden),
        nn.Linear(hidden, len(params["fc.bias"])),
    )
    first.load_state_dict({"weight": params["fc1.weight"], "bias": params["fc1.bias"]})
    last.load_state_dict({"weight": params["fc.weight"], "bias": params["fc.bias"]})
    statistics = {"running_mean": buffers["bn.mean"], "running_var": buffers["bn.var"]}
    shape = {"weight": params["bn.weight"], "bias": params["bn.bias"]}
    norm.load_state_dict({**shape, **statistics}, strict=False)
    return nn.Sequential(first, norm, nn.ReLU(), last)


def test_features_are_those_of_the_network_of_the_paper():
    generator = new_generator(3, 4, 8, 5, KEY)
    generator.buffers["bn.mean"].copy_(KEY.fold("mean").uniform((8,)))
    noise, y = KEY.fold("noise").uniform((6, 3)), torch.tensor([0, 3, 1, 1, 2, 0])
    expected = network_of(generator).eval()(torch.cat([noise, torch.eye(4)[y]], 1))
    torch.testing.assert_close(generate(generator, noise, y), expected)


def test_teaching_is_autograd_with_torchs_adam_on_the_losses_of_the_paper():
    """Also where Adam has made steps before."""
    generator, shares = new_generator(3, 4, 8, 5, KEY), torch.tensor([[1.0, 0.5, 0, 0.2], [0, 0.5, 1.0, 0.8]])
    heads = KEY.fold("heads").uniform((2, 4, 5)) - 0.5, KEY.fold("biases").uniform((2, 4))
    noise = KEY.fold("noise").uniform((10, 6, 3))
    y = torch.from_numpy(KEY.fold("y").numpy().integers(4, size=(10, 6)))
    network = network_of(generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=0.1)
    expected = []
    for eps, classes in zip(noise, y, strict=True):
        z = network(torch.cat([eps, torch.eye(4)[classes]], 1))
        outputs = z @ heads[0].mT + heads[1][:, None]
        teachers, diversity = teacher_loss(outputs, classes, shares), diversity_loss(eps, z)
        optimizer.zero_grad()
        (teachers + 0.7 * diversity).backward()
        optimizer.step()
        expected.append([teachers.item(), diversity.item()])
    adam, losses = Adam.fresh(generator.params), []
    for some in (slice(0, 4), slice(4, 10)):
        generator, adam, found = taught(
            generator, adam, noise[some], y[some], heads, shares, eta=0.7, lr=0.01, decay=0.1
        )
        losses += found.tolist()
    assert adam.steps == 10
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-4, atol=1e-6)
    after = dict(network_of(generator).state_dict())
    for name, value in network.state_dict().items():
        if "num_batches" not in name:
            torch.testing.assert_close(after[name], value, rtol=1e-3, atol=1e-4)


def test_initial_values_come_from_the_key():
    first, again, other = (new_generator(3, 4, 8, 5, key) for key in (KEY, KEY, KEY.fold(1)))
    assert same(first, again)
    assert not same(first, other)


def test_weights_fade_down_to_a_floor():
    assert faded(10.0, 0.98, 0) == 10
    assert faded(10.0, 0.98, 2) == pytest.approx(9.604)
    assert faded(10.0, 0.5, 100) == 1e-4
    assert faded(0.2, 1.0, 1000) == 0.2
    assert faded(0.0, 0.98, 3) == 0


# -- the client


def stepped(g_a, g_b, learned=(True, True, True, True)):
    """Gradients of the term at the initial model, and its value."""
    task = setup(QUICK).federation.task
    weights, x, y = task.init(KEY), blobs().x_train[:9], blobs().y_train[:9]
    params = {name: value.clone().requires_grad_() for name, value in weights.params.items()}
    outputs = task.forward(Weights(params, {}), x)[0]
    generator = new_generator(3, 4, 8, task.width, KEY)
    term = Generated(generator, torch.tensor(learned), g_a, g_b, draws=6, noise=3)
    loss = term.loss(Step(task, Weights(params, {}), weights, outputs, x, y, key=KEY.fold("step")))
    gradients = torch.autograd.grad(loss, list(params.values()), allow_unused=True, materialize_grads=True)
    return loss.item(), dict(zip(params, gradients, strict=True))


def test_generated_features_train_the_last_layer_only():
    loss, gradients = stepped(2.0, 0.0)
    assert loss > 0
    moved = {name for name, gradient in gradients.items() if gradient.abs().max() > 0}
    assert moved == {"3.weight", "3.bias"}
    assert stepped(1.0, 0.0)[0] == pytest.approx(loss / 2)


def test_agreement_trains_the_whole_model():
    loss, gradients = stepped(0.0, 2.0)
    assert loss > 0
    assert all(gradient.abs().max() > 0 for gradient in gradients.values())


def test_classes_that_the_generator_has_not_learned_lead_nobody():
    held = set(blobs().y_train[:9].tolist())
    others = tuple(label not in held for label in range(4))
    if any(others):
        assert stepped(0.0, 1.0, others)[0] == 0
    parts = [stepped(0.0, 1.0, tuple(label == only for label in range(4)))[0] for only in range(4)]
    assert all(part >= 0 for part in parts)


def test_the_term_is_active_only_where_it_adds_something():
    generator, some, none = new_generator(3, 4, 8, 5, KEY), torch.tensor([True, False]), torch.zeros(2).bool()
    assert Generated(generator, some, 1.0, 0.0, 4, 3).active
    assert Generated(generator, some, 0.0, 1.0, 4, 3).active
    assert not Generated(generator, some, 0.0, 0.0, 4, 3).active
    assert not Generated(generator, none, 1.0, 1.0, 4, 3).active


def weighed(monkeypatch, local, **options):
    """The g_a and the draws of each client's term in the second round."""
    found = []

    def spy(generator, learned, g_a, g_b, draws, noise):
        found.append((g_a, draws))
        return Generated(generator, learned, g_a, g_b, draws, noise)

    monkeypatch.setattr("shoal.methods.fedgen.Generated", spy)
    iid = {"kind": "iid", "clients": 8}  # 40 samples each
    played({**QUICK, **options}, 2, local=local, partition=iid)
    assert len(found) == 8  # four clients, two rounds
    return set(found[4:])


@pytest.mark.parametrize(("batch", "draws"), [(1, 1), (8, 8), (32, 32), (1000, 40)])
def test_by_default_the_batch_does_not_change_the_weight(batch, draws, monkeypatch):
    local = {"lr": 0.1, "batch": batch, "epochs": 1}
    assert weighed(monkeypatch, local) == {(0.98, draws)}


def test_draws_that_are_given_weigh_as_the_authors_do(monkeypatch):
    local = {"lr": 0.1, "batch": 8, "epochs": 1}
    assert weighed(monkeypatch, local, draws=32) == {(0.98 * 4, 32)}


# -- the server


def test_the_generator_learns_what_the_clients_know():
    made = setup({"name": "fedgen", "steps": 150, "hidden": 32}, selector="all")
    federation = made.federation
    task, method = federation.task, federation.method
    progress = play(made, 3)
    state = progress.state
    assert state.learned.tolist() == [True] * 4
    assert state.adam.steps == 450
    y = torch.arange(4).repeat(25)
    noise = KEY.fold("test").uniform((100, method.noise))
    features = generate(state.generator, noise, y)
    right = task.head(state.model.params, features).argmax(1) == y
    assert right.double().mean() > 0.95
    untrained = method.init(task, KEY).generator
    features = generate(untrained, noise, y)
    assert (task.head(state.model.params, features).argmax(1) == y).double().mean() < 0.6


def after_teaching(counts):
    made = setup(QUICK)
    task, method = made.federation.task, made.federation.method
    state = method.init(task, KEY)
    model = task.init(KEY).params
    heads = {name: torch.stack([model[name]] * len(counts)) for name in task.head_names}
    before = {name: value.clone() for name, value in heads.items()}
    after, metrics = method.taught(task, state, heads, torch.tensor(counts), KEY)
    assert same(heads, before)
    return state, after, metrics


def test_teaching_leaves_the_clients_models_alone_and_marks_what_was_learned():
    state, after, metrics = after_teaching([[4, 0, 1, 0], [2, 0, 0, 2]])
    assert after.learned.tolist() == [True, False, False, True]  # one sample of a class is not enough
    assert same(after.model, state.model)
    assert not same(after.generator, state.generator)
    assert metrics["generator_loss"] > 0
    assert 0 < metrics["diversity_loss"] <= 1


def test_with_nothing_to_learn_from_the_generator_stays():
    state, after, metrics = after_teaching([[1, 0, 1, 0], [0, 1, 1, 1]])
    assert same(state, after)
    assert metrics == {}


def test_teachers_are_the_clients_last_layers():
    made = setup(QUICK)
    method, state = made.federation.method, made.federation.method.init(made.federation.task, KEY)
    moment = Moment(0, 0, True, KEY)
    message = method.dispatch(made.federation.task, state, Cohort((5,), {}, 8), moment)
    update = Weights({name: torch.ones_like(value) for name, value in state.model.params.items()}, {})
    payload = FedGenReply(update, torch.tensor([1, 2, 3, 4]))
    answer = shoal.core.types.Reply(payload, torch.tensor(3.0, dtype=torch.float64), {})
    acc = method.fold(method.begin(state, Cohort((5,), {}, 8)), 5, message, answer)
    (teacher,) = acc.teachers
    assert teacher.client == 5
    assert list(teacher.head) == ["3.weight", "3.bias"]
    assert torch.equal(teacher.head["3.bias"], state.model.params["3.bias"] + 1)
    assert teacher.label_counts.tolist() == [1, 2, 3, 4]


# -- the whole


def test_the_generators_bytes_and_the_label_counts_are_counted():
    plain, made = shoal.run(table("fedavg", rounds=1)), shoal.run(table(QUICK, rounds=1))
    generator = played(QUICK, 1).state.generator
    floats = sum(value.numel() for part in generator for value in part.values())
    assert made.bytes_down - plain.bytes_down >= 4 * 4 * floats  # to four clients, four bytes each
    assert made.bytes_down - plain.bytes_down <= 4 * (nbytes(generator) + 200)
    assert 4 * 4 * 8 <= made.bytes_up - plain.bytes_up <= 4 * (4 * 8 + 100)


def test_the_run_keeps_the_generator(tmp_path):
    result = shoal.run(table(QUICK, rounds=1), tmp_path / "run")
    from safetensors import safe_open

    with safe_open(tmp_path / "run" / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert "generator/fc1.weight" in names
    assert "0.weight" in names
    assert result.model()(blobs().x_test).shape == (160, 4)
    assert {"generator_loss", "diversity_loss"} <= result.records[0].keys()


def test_the_authors_32_draws_are_the_default_at_their_batch():
    changes = {"local": {"lr": 0.1, "batch": 32, "epochs": 1}, "partition": {"kind": "iid", "clients": 8}}
    assert same(played(QUICK, **changes).state, played({**QUICK, "draws": 32}, **changes).state)


def test_clients_of_a_block_are_trained_in_one_call(monkeypatch):
    """Although each has a generator of its own, and draws as many features as it has samples."""
    sizes, train = [], compiled_sgd.train

    def counted(rule, task, starts, *rest):
        sizes.append(len(starts))
        return train(rule, task, starts, *rest)

    monkeypatch.setattr(compiled_sgd, "train", counted)
    played(QUICK, 2, engine={"mode": "block"})
    assert sizes == [4, 4]


@pytest.mark.parametrize("seed", [3, 4])
def test_the_defaults_learn_at_once(seed):
    """The authors' g_a = g_b = 10 with 32 draws stay at 10 % here: a tenth of the digits."""
    tables = {
        **{"seed": seed, "rounds": 3, "task": {"dataset": "digits", "model": "mlp"}},
        **{"partition": {"kind": "dirichlet", "clients": 20, "beta": 0.5}, "selector": {"count": 5}},
        **{"local": {"lr": 0.1}, "evaluate": {"every": 0, "clients": 0}},
    }
    plain, made = (shoal.run({**tables, "method": name}).final_accuracy for name in ("fedavg", "fedgen"))
    assert made > plain > 0.2


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"dataset": "toy:line", "model": "linear"}, "fedgen needs a classifier with the loss cross_entropy"),
        (
            {"dataset": "toy:blobs", "model": "logistic_ova"},
            "fedgen needs a classifier with the loss cross_entropy, got one_versus_all",
        ),
        (
            {"dataset": "toy:blobs", "model": "toy:doubled"},
            "fedgen needs a model that ends in a linear layer; end it with nn.Linear",
        ),
    ],
)
def test_tasks_that_it_cannot_learn_are_refused(task, message, monkeypatch):
    monkeypatch.setattr("toy.doubled", doubled, raising=False)
    with pytest.raises(SpecError, match=message):
        shoal.run(table(QUICK, task=task, partition={"kind": "iid", "clients": 8}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"g_a": -1.0}, "g_a must be >= 0, got -1"),
        ({"g_b": math.inf}, "g_b must be >= 0, got inf"),
        ({"decay": 0.0}, r"decay must be in \(0, 1\], got 0"),
        ({"generator_lr": 0.0}, "generator_lr must be > 0, got 0"),
        ({"draws": 1}, "draws must be at least 2, got 1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"noise": 0}, "noise must be at least 1, got 0"),
    ],
)
def test_bad_values(options, message):
    with pytest.raises(SpecError, match=message):
        FedGen(**options)
