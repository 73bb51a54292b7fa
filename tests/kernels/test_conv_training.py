"""Training of convolutional networks by the kernels, against autograd in float64."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from training_jobs import finish

from shoal.kernels.conv_outputs import conv_outputs
from shoal.kernels.plan import ConvPlan
from shoal.kernels.recognition import plan_of
from shoal.kernels.training import DropoutKeys, training_job
from shoal.models.convolutional import cnn, cnn6, cnn_pfl, lenet, sigmoid_cnn
from shoal.models.layers import dropouts

ROWS = 70


class Network(NamedTuple):
    module: nn.Module
    plan: ConvPlan
    x: np.ndarray  # [ROWS, *shape]
    y: np.ndarray

    @property
    def start(self):
        return nn.utils.parameters_to_vector(self.module.parameters()).detach().numpy().copy()


def network(module, shape, seed=0):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    for part in module:
        if isinstance(part, nn.Conv2d | nn.Linear):
            part.reset_parameters()
    plan = plan_of(module, shape, "cross_entropy", {name: part.p for name, part in dropouts(module).items()})
    x = rng.normal(size=(ROWS, *shape)).astype(np.float32)
    return Network(module, plan, x, rng.integers(0, module[-1].out_features, ROWS))


def chain(shape, *layers, classes=4):
    """Convolutions [out, size, padding, pool], and a linear layer."""
    parts, (channels, *sides) = [], shape
    for out, size, padding, pool in layers:
        parts += [nn.Conv2d(channels, out, size, padding=padding), nn.ReLU()]
        parts += [nn.MaxPool2d(2)] if pool else []
        channels, sides = out, [(side + 2 * padding - size + 1) // (1 + pool) for side in sides]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels * math.prod(sides), classes))


def solve(net, steps, start=None, threads=1, lr=0.05, **options):
    """Clients with the same start, each with batches of these sizes, of rows in order."""
    clients = len(steps)
    start = net.start[None] if start is None else start
    sizes = [size for client in steps for size in client]
    rows = np.array([row % ROWS for size in sizes for row in range(size)], np.int64)
    out = np.full((clients, net.plan.params), np.nan, np.float32)
    change, losses = out.copy(), np.empty(clients)
    x = net.x.reshape(ROWS, -1)
    pointers = np.cumsum([0, *sizes]), np.cumsum([0, *map(len, steps)])
    with np.errstate(invalid="ignore"):
        rates = np.full(clients, lr, np.float32)
        job = training_job(net.plan, start, out, change, x, net.y, rows, *pointers, rates, losses, **options)
        finish(job, threads)
        assert np.array_equal(change, out - start, equal_nan=True)
        assert np.array_equal(job.sound, np.isfinite(np.square(change)).all(1))
    return out, losses


def by_autograd(net, sizes, dtype=torch.float64, lr=0.05, mu=0.0, shift=None, **options):
    """One client, in torch."""
    module = net.module.to(dtype)
    params, start = list(module.parameters()), torch.tensor(net.start).to(dtype)
    optimizer = torch.optim.SGD(params, lr, **options)
    losses = []
    for size in sizes:
        rows = np.arange(size) % ROWS
        outputs = module(torch.from_numpy(net.x[rows]).to(dtype))
        loss = nn.functional.cross_entropy(outputs, torch.from_numpy(net.y[rows]))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        more = mu * (nn.utils.parameters_to_vector(params).detach() - start)
        more += 0 if shift is None else torch.from_numpy(shift)
        for value, part in zip(params, more.split([value.numel() for value in params]), strict=True):
            value.grad += part.view_as(value)
        optimizer.step()
    found = nn.utils.parameters_to_vector(params).detach().numpy()
    module.float()
    nn.utils.vector_to_parameters(start.float(), params)
    return found, np.mean(losses)


def check(net, sizes, tolerance=1e-5, **options):
    kernel_options = {**options, "shift": options["shift"][None]} if "shift" in options else options
    (out,), (loss,) = solve(net, [sizes], **kernel_options)
    expected, mean = by_autograd(net, sizes, **options)
    for found, wanted in _by_tensor(net, out - net.start, expected - net.start):
        assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max() + 1e-8
    assert loss == pytest.approx(mean, rel=1e-5)


def _by_tensor(net, *vectors):
    ends = np.cumsum([value.numel() for value in net.module.parameters()])[:-1]
    return zip(*(np.split(vector, ends) for vector in vectors), strict=True)


SHAPES = {
    "1x1": ((3, 9, 7), [(5, 1, 0, True)]),
    "3x3": ((1, 8, 8), [(8, 3, 0, False), (16, 3, 1, True)]),
    "5x5 few": ((2, 17, 11), [(6, 5, 0, True), (9, 3, 1, True)]),
    "5x5 many": ((3, 12, 13), [(32, 5, 2, True), (64, 5, 2, True)]),
    "7x7": ((4, 15, 15), [(17, 7, 3, True), (20, 7, 2, False)]),
    "even": ((3, 11, 10), [(12, 4, 1, True), (24, 2, 0, False), (33, 3, 1, True)]),
    "wide": ((64, 6, 5), [(40, 3, 1, False), (7, 1, 0, False)]),
    "tall": ((1, 40, 4), [(5, 9, 4, True)]),
    # lines of 18, 10 and 8 positions, in vectors of 8, or of 16 with AVX-512
    "long strips": ((3, 13, 19), [(4, 3, 1, True), (9, 3, 0, False)]),
    "strips": ((2, 12, 14), [(5, 3, 0, True)]),
    "one strip": ((1, 14, 12), [(1, 5, 0, True)]),
    # five lines of 45 numbers, and 48 and 56 output channels: 32 with AVX-512, and the rest
    "broad": ((9, 10, 9), [(48, 5, 1, True), (55, 3, 0, False)]),
    "one pixel": ((2, 3, 3), [(3, 3, 0, False), (4, 1, 0, False)]),
}


@pytest.mark.parametrize("batch", [1, 13, 64])
@pytest.mark.parametrize("name", SHAPES)
def test_a_gradient_is_that_of_autograd(name, batch):
    shape, layers = SHAPES[name]
    check(network(chain(shape, *layers), shape), [batch], lr=1.0)


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(14, 22)), int(rng.integers(14, 22)))
    layers = [
        (int(rng.integers(1, 65)), int(rng.choice([1, 3, 5, 7])), int(rng.integers(3)), rng.random() < 0.5)
    ]
    layers += [
        (int(rng.integers(1, 33)), int(rng.choice([1, 3, 5])), int(rng.integers(3)), rng.random() < 0.5)
    ]
    check(network(chain(shape, *layers), shape, seed), [int(rng.integers(1, 33))], lr=1.0)


def test_strides_and_oblong_kernels():
    module = nn.Sequential(
        nn.Conv2d(3, 10, (3, 2), stride=(1, 2), padding=(1, 0)), nn.MaxPool2d(2), nn.ReLU(inplace=True),
        nn.Conv2d(10, 6, 3, padding="same"), nn.ReLU(), nn.Identity(), nn.Flatten(), nn.Linear(6 * 9 * 3, 4),
    )  # fmt: skip
    check(network(module, (3, 19, 13)), [11], lr=1.0)


def squashed():
    """A sigmoid above ReLU and below it, and before the linear layer."""
    return nn.Sequential(
        nn.Conv2d(2, 12, 5, stride=2, padding=2), nn.Sigmoid(),
        nn.Conv2d(12, 6, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 19, 2, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(19 * 4 * 3, 4),
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 13, 64])
def test_sigmoids_between_convolutions(batch):
    """Gradients that passed sigmoids are small: short steps would show little but the weights' rounding."""
    check(network(squashed(), (2, 15, 11)), [batch], lr=100.0)
    check(network(sigmoid_cnn((1, 9, 14), 4), (1, 9, 14)), [batch, 3], lr=10.0)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["pixel", "bias"])
def test_a_sigmoid_hides_what_is_not_finite_where_torch_does(where, strange):
    net = network(squashed(), (2, 15, 11))
    start = net.start[None].copy()
    if where == "pixel":
        net.x[1, 0, 4, 5] = strange
    else:
        start[0, 12 * 2 * 25 + 3] = strange  # 0 or 1 everywhere, unless it is nan
    (out,), _ = solve(net, [[3]], start)
    nn.utils.vector_to_parameters(torch.from_numpy(start[0]), net.module.parameters())
    with np.errstate(invalid="ignore"):
        expected, _ = by_autograd(net, [3], torch.float32)
    assert np.array_equal(np.isfinite(out), np.isfinite(expected))


EXTRAS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "decay": {"weight_decay": 0.1},
    "proximal": {"mu": 0.5},
    "all": {"momentum": 0.5, "weight_decay": 0.01, "mu": 0.2},
}


@pytest.mark.parametrize("extras", EXTRAS)
def test_ten_steps_with_all_that_a_step_can_add(extras):
    net = network(chain((2, 12, 12), (6, 5, 0, True), (18, 3, 1, False)), (2, 12, 12))
    sizes = [10, 10, 3, 10, 1, 7, 10, 10, 10, 2]
    check(net, sizes, tolerance=1e-4, lr=0.01, **EXTRAS[extras])
    shift = np.random.default_rng(1).normal(0, 0.1, net.plan.params).astype(np.float32)
    check(net, sizes, tolerance=1e-4, lr=0.01, shift=shift, **EXTRAS[extras])


def test_the_models_of_the_catalogue_have_plans_and_train():
    for model, shape in ((lenet, (3, 32, 32)), (lenet, (1, 28, 28)), (cnn, (1, 28, 28))):
        check(network(model(shape, 10), shape), [5], tolerance=2e-5)
    for model in (cnn_pfl, cnn6):
        module = model((3, 32, 32), 10)
        net = network(module, (3, 32, 32))
        assert net.plan.params == sum(value.numel() for value in module.parameters())
        found = conv_outputs(net.plan, net.start, net.x.reshape(ROWS, -1), np.arange(4))
        wanted = module.eval()(torch.from_numpy(net.x[:4])).detach().numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def keys(net, clients):
    words = np.arange(2 * clients, dtype=np.uint64).reshape(clients, 2)
    return DropoutKeys(words, np.arange(len(net.plan.drops), dtype=np.uint64))


@pytest.mark.parametrize("extras", EXTRAS)
def test_the_bits_of_a_client_do_not_depend_on_the_others(extras):
    net = network(chain((2, 12, 12), (6, 5, 0, True), (18, 3, 1, False)), (2, 12, 12))
    steps = [[5, 3], [10], [1, 64, 2], [], [7] * 5]
    start = net.start + np.random.default_rng(0).normal(0, 0.01, (5, net.plan.params)).astype(np.float32)
    out, losses = solve(net, steps, start, **EXTRAS[extras])
    for client, own in enumerate(steps):
        row, loss = solve(net, [own], start[client : client + 1], **EXTRAS[extras])
        assert np.array_equal(row[0], out[client])
        assert loss[0] == losses[client]

    again, _ = solve(net, steps, start, 2, **EXTRAS[extras])
    assert np.array_equal(again, out)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["pixel", "last pixel", "weight", "bias", "second layer"])
def test_what_is_not_finite_shows_as_in_torch_and_stays_with_its_client(where, strange):
    net = network(chain((2, 11, 11), (6, 3, 1, True), (9, 3, 1, True)), (2, 11, 11))
    start = np.tile(net.start, (3, 1))
    fine, _ = solve(net, [[3], [4], [3]], start)
    if where.endswith("pixel"):  # the pool leaves out the last line and column
        net.x[3, 0, *((10, 10) if where == "last pixel" else (4, 5))] = strange
    else:
        start[1, {"weight": 3, "bias": 6 * 2 * 9 + 2, "second layer": 6 * 2 * 9 + 6 + 40}[where]] = strange
    out, _ = solve(net, [[3], [4], [3]], start)
    assert np.array_equal(out[[0, 2]], fine[[0, 2]])
    nn.utils.vector_to_parameters(torch.from_numpy(start[1]), net.module.parameters())
    with np.errstate(invalid="ignore"):
        expected, _ = by_autograd(net, [4], torch.float32)
    assert not np.isfinite(out[1]).all()
    first = slice(6 * 2 * 9)
    assert np.isfinite(out[1][first]).all() == np.isfinite(expected[first]).all()
    if where.endswith("pixel"):
        assert np.array_equal(np.isfinite(out[1]), np.isfinite(expected))


def test_a_dead_network_does_not_hide_what_is_not_finite():
    net = network(chain((1, 6, 6), (3, 3, 0, True)), (1, 6, 6))
    start = net.start[None].copy()
    start[0, :27] = -np.abs(start[0, :27])
    net.x[:] = np.abs(net.x)
    net.x[0, 0, 2, 2] = np.inf  # all that sees it is minus infinity, and 0 after ReLU
    assert np.isnan(solve(net, [[1]], start)[0][0, :27]).any()


def test_outputs_are_those_of_the_model():
    net = network(chain((2, 12, 12), (6, 5, 0, True), (18, 3, 1, False)), (2, 12, 12))
    rows = np.concatenate([np.arange(ROWS), [3, 3, 60]])
    found = conv_outputs(net.plan, net.start, net.x.reshape(ROWS, -1), rows)
    wanted = net.module(torch.from_numpy(net.x[rows])).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    assert conv_outputs(net.plan, net.start, net.x.reshape(ROWS, -1), rows[:0]).shape == (0, 4)
    with pytest.raises(ValueError, match="rows must be"):
        conv_outputs(net.plan, net.start, net.x.reshape(ROWS, -1), np.array([ROWS]))


def test_dropout_needs_keys():
    module = cnn_pfl((3, 8, 8), 4)
    net = network(module, (3, 8, 8))
    with pytest.raises(ValueError, match="needs keys"):
        solve(net, [[2]])
    out, _ = solve(net, [[3, 2], [3, 2]], dropout=keys(net, 2))
    assert not np.array_equal(out[0], out[1])  # each client has its own


def flat_after(*layers, features=16 * 9):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


CONV = nn.Conv2d(2, 16, 3)


@pytest.mark.parametrize(
    "module",
    [
        flat_after(nn.Conv2d(2, 16, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        flat_after(nn.Conv2d(2, 16, 3, groups=2), nn.ReLU(), nn.MaxPool2d(2)),
        flat_after(nn.Conv2d(2, 16, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.MaxPool2d(2)),
        flat_after(nn.Conv2d(2, 16, 2, dilation=2), nn.ReLU(), nn.MaxPool2d(2)),
        flat_after(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        flat_after(CONV, nn.MaxPool2d(2)),
        flat_after(CONV, nn.Tanh(), nn.MaxPool2d(2)),
        flat_after(CONV, nn.Sigmoid(), nn.MaxPool2d(2)),
        flat_after(CONV, nn.Sigmoid(), nn.ReLU(), features=16 * 36),
        nn.Sequential(CONV, nn.Sigmoid(), nn.Flatten(), nn.Linear(16 * 36, 5), nn.Sigmoid(), nn.Linear(5, 3)),
        flat_after(CONV, nn.ReLU(), nn.AvgPool2d(2)),
        flat_after(CONV, nn.ReLU(), nn.MaxPool2d(3, 2)),
        flat_after(CONV, nn.ReLU(), nn.MaxPool2d(2, padding=1)),
        flat_after(CONV, nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
        flat_after(CONV, nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        flat_after(CONV, nn.ReLU(), nn.MaxPool2d(2), nn.MaxPool2d(2), features=16),
        nn.Sequential(CONV, nn.ReLU(), nn.MaxPool2d(2), nn.Linear(3, 3)),
        nn.Sequential(CONV, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        flat_after(nn.Conv2d(2, 16, 9, padding=0), nn.ReLU(), features=16),
    ],
)
def test_other_modules_have_no_plan(module):
    assert plan_of(module, (2, 8, 8), "cross_entropy") is None
