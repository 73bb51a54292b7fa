from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from training_jobs import finish

from shoal.core.task import LOSSES
from shoal.kernels.plan import LOSS_CODES, DensePlan
from shoal.kernels.recognition import plan_of
from shoal.kernels.training import training_job

EXTRAS = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "decay": {"weight_decay": 0.1},
    "proximal": {"mu": 0.5},
    "all": {"momentum": 0.5, "weight_decay": 0.01, "mu": 0.2},
}


class Problem(NamedTuple):
    plan: DensePlan
    start: np.ndarray
    x: np.ndarray
    y: np.ndarray
    index: np.ndarray
    step_ptr: np.ndarray
    client_ptr: np.ndarray
    lr: np.ndarray

    @property
    def clients(self):
        return len(self.lr)


def network(sizes):
    layers = [nn.Flatten()]
    for into, out in pairwise(sizes):
        layers += [nn.Linear(into, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make(sizes, loss, batches, seed=0, shared=True):
    """A problem with the given sizes of batches: a list for each client."""
    rng = np.random.default_rng(seed)
    plan = DensePlan(tuple(sizes), LOSS_CODES[loss])
    scale = 1 / np.sqrt(max(sizes))
    start = rng.normal(0, scale, (1 if shared else len(batches), plan.params)).astype(np.float32)
    x = rng.normal(size=(50, sizes[0])).astype(np.float32)
    y = (
        rng.normal(size=50).astype(np.float32)
        if loss == "squared_error"
        else rng.integers(0, max(sizes[-1], 2), 50) % sizes[-1]
    )
    steps = [size for client in batches for size in client]
    return Problem(
        plan, start, x, y, rng.integers(0, 50, sum(steps)), np.cumsum([0, *steps]),
        np.cumsum([0, *map(len, batches)]), rng.uniform(0.01, 0.1, len(batches)).astype(np.float32),
    )  # fmt: skip


def solve(problem, threads=1, **options):
    out = np.full((problem.clients, problem.plan.params), np.nan, np.float32)
    change, losses = np.full_like(out, np.nan), np.full(problem.clients, np.nan)
    plan, start, x, y, *schedule, lr = problem
    with np.errstate(invalid="ignore"):
        job = training_job(plan, start, out, change, x, y, *schedule, lr, losses, **options)
        finish(job, threads)
        assert np.array_equal(change, out - start, equal_nan=True)
        assert np.array_equal(job.sound, np.isfinite(np.square(out - start)).all(1))
    return out, losses


def reference(problem, loss, dtype, momentum=0.0, weight_decay=0.0, mu=0.0, shift=None):
    """The same in torch, with the gradients of autograd."""
    module = network(problem.plan.sizes).to(dtype)
    params = list(module.parameters())
    x = torch.from_numpy(problem.x).to(dtype)
    y = torch.from_numpy(problem.y)
    y = y.to(dtype) if loss == "squared_error" else y
    rows, means = [], []
    for client in range(problem.clients):
        row = problem.start[client if len(problem.start) > 1 else 0]
        nn.utils.vector_to_parameters(torch.tensor(row, dtype=dtype), params)
        start = [value.detach().clone() for value in params]
        more = None if shift is None else torch.from_numpy(shift[client]).to(dtype)
        optimizer = torch.optim.SGD(
            params, float(problem.lr[client]), momentum=momentum, weight_decay=weight_decay
        )
        losses = []
        for step in range(*problem.client_ptr[client : client + 2]):
            batch = problem.index[slice(*problem.step_ptr[step : step + 2])]
            objective = LOSSES[loss].each(module(x[batch]), y[batch]).sum(1).mean()
            losses.append(objective.item())
            near = sum((value - old).square().sum() for value, old in zip(params, start))
            optimizer.zero_grad()
            (objective + 0.5 * mu * near).backward()
            if more is not None:
                for value, part in zip(params, more.split([v.numel() for v in params])):
                    value.grad += part.view_as(value)
            optimizer.step()
        rows.append(nn.utils.parameters_to_vector(params).detach().numpy().copy())
        means.append(np.mean(losses) if losses else 0.0)
    return np.array(rows), np.array(means)


def check(problem, loss, **options):
    out, losses = solve(problem, **options)
    for dtype in (torch.float32, torch.float64):
        expected, means = reference(problem, loss, dtype, **options)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(losses, means, rtol=1e-5, atol=1e-6)


RAGGED = [[5, 5, 3], [1], [], [10, 4, 10], [2, 7]]


@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("loss", LOSS_CODES)
@pytest.mark.parametrize("hidden", [(), (9,), (40, 17), (16, 33, 5)])
def test_training_is_that_of_autograd(hidden, loss, extras):
    heads = 1 if loss == "squared_error" else 7
    problem = make((20, *hidden, heads), loss, RAGGED)
    check(problem, loss, **EXTRAS[extras])
    shift = np.random.default_rng(1).normal(0, 0.1, (len(RAGGED), problem.plan.params)).astype(np.float32)
    check(problem, loss, shift=shift, **EXTRAS[extras])


@pytest.mark.parametrize("extras", EXTRAS)
def test_layers_that_are_multiplied_in_pieces(extras):
    problem = make((1700, 150, 37, 7), "cross_entropy", [[10, 7], [3]])
    check(problem, "cross_entropy", **EXTRAS[extras])
    shift = np.random.default_rng(1).normal(0, 0.1, (2, problem.plan.params)).astype(np.float32)
    check(problem, "cross_entropy", shift=shift, **EXTRAS[extras])


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 8, 10, 11])
@pytest.mark.parametrize("inputs", [1, 15, 16, 17, 64])
def test_sizes_that_do_and_do_not_fill_vectors(inputs, heads):
    check(make((inputs, heads), "one_versus_all", [[3, 2, 1], [6]]), "one_versus_all")
    check(make((inputs, heads, 2), "cross_entropy", [[3, 2, 1], [6]]), "cross_entropy", momentum=0.5)


def test_batches_and_layers_larger_than_a_block():
    check(make((100, 70, 10), "cross_entropy", [[65, 200], [64, 128]]), "cross_entropy")
    check(make((100, 70, 10), "cross_entropy", [[65, 200], [64, 128]]), "cross_entropy", mu=0.1)


def test_clients_may_start_from_weights_of_their_own():
    problem = make((20, 9, 7), "cross_entropy", RAGGED, shared=False)
    check(problem, "cross_entropy", mu=0.5)
    out, losses = solve(problem)
    assert np.array_equal(out[2], problem.start[2])  # no steps
    assert losses[2] == 0


@pytest.mark.parametrize("extras", EXTRAS)
def test_the_bits_of_a_client_do_not_depend_on_the_others(extras):
    problem = make((30, 21, 10), "cross_entropy", [[5, 3], [10], [1, 64, 2], [], [7] * 5], shared=False)
    options = EXTRAS[extras]
    out, losses = solve(problem, **options)
    for client in range(problem.clients):
        begin, end = problem.client_ptr[client : client + 2]
        step_ptr = problem.step_ptr[begin : end + 1]
        alone = problem._replace(
            start=problem.start[client : client + 1],
            index=problem.index[step_ptr[0] : step_ptr[-1]],
            step_ptr=step_ptr - step_ptr[0],
            client_ptr=np.array([0, end - begin]),
            lr=problem.lr[client : client + 1],
        )
        row, loss = solve(alone, **options)
        assert np.array_equal(row[0], out[client])
        assert loss[0] == losses[client]


@pytest.mark.parametrize("extras", EXTRAS)
def test_threads_give_the_same_bits(extras):
    problem = make((30, 21, 10), "cross_entropy", [[5, 3]] * 20, shared=False)
    expected, _ = solve(problem, **EXTRAS[extras])

    out, _ = solve(problem, 3, **EXTRAS[extras])
    assert np.array_equal(out, expected)


def test_extras_of_zero_are_no_extras():
    problem = make((30, 21, 10), "cross_entropy", RAGGED)
    out, losses = solve(problem)
    zeros = np.zeros((len(RAGGED), problem.plan.params), np.float32)
    for options in ({"mu": 0.0, "momentum": 0.0, "weight_decay": 0.0, "shift": zeros}, {"shift": -zeros}):
        again, means = solve(problem, **options)
        assert np.array_equal(again.view(np.int32), out.view(np.int32))
        assert np.array_equal(means, losses)
    with_momentum, _ = solve(problem, momentum=0.9)
    again, _ = solve(problem, momentum=0.9, mu=0.0, weight_decay=0.0, shift=zeros)
    assert np.array_equal(again.view(np.int32), with_momentum.view(np.int32))


@pytest.mark.parametrize("loss", LOSS_CODES)
@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["x", "start"])
def test_what_is_not_finite_shows_and_stays_with_its_client(where, strange, loss):
    heads = 1 if loss == "squared_error" else 3
    problem = make((20, 9, heads), loss, [[5, 5], [4, 2], [6]], shared=False)
    problem.index[:] = np.arange(len(problem.index))  # no sample is in two clients
    fine, losses = solve(problem)
    if where == "x":
        problem.x[problem.index[12], 3] = strange
    else:
        problem.start[1, 3] = strange
    out, means = solve(problem)
    assert np.isfinite(out).all(1).tolist() == [True, False, True]
    assert np.array_equal(out[[0, 2]], fine[[0, 2]])
    assert np.array_equal(means[[0, 2]], losses[[0, 2]])


@pytest.mark.parametrize("loss", ["cross_entropy", "one_versus_all"])
def test_large_outputs_do_not_overflow(loss):
    problem = make((1, 3), loss, [[4]])
    problem.start[:] = [[1e4, -1e4, 0, 0, 0, 0]]
    problem.x[:] = np.random.default_rng(0).choice([-1, 1], problem.x.shape)
    out, losses = solve(problem)
    assert np.isfinite(out).all()
    assert losses[0] > 1000
    check(problem, loss)


def test_a_label_that_is_no_class_shows():
    problem = make((4, 3), "cross_entropy", [[2], [2]])
    problem.y[problem.index[0]] = 3
    assert np.isnan(solve(problem)[1][0])


def test_inputs_may_be_read_only():
    problem = make((20, 9, 7), "cross_entropy", RAGGED)
    expected, _ = solve(problem)
    for array in problem[1:]:
        array.flags.writeable = False
    assert np.array_equal(solve(problem)[0], expected)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start", np.zeros((3, 5), np.float32)),
        ("x", np.zeros((50, 19), np.float32)),
        ("y", np.zeros(49, np.int64)),
        ("index", np.zeros(3, np.int64)),
        ("index", np.full(57, 50)),
        ("index", np.full(57, -1)),
        ("step_ptr", np.array([0, 3, 3])),
        ("client_ptr", np.array([0, 1, 0, 2, 3, 4])),
        ("lr", np.zeros(4, np.float32)),
    ],
)
def test_what_would_leave_the_arrays_is_refused(field, value):
    problem = make((20, 7), "cross_entropy", RAGGED)
    with pytest.raises(ValueError, match=r"shape|rows|must go up|samples"):
        solve(problem._replace(**{field: value}))


def test_a_step_without_samples_is_refused():
    with pytest.raises(ValueError, match="step 1 has no samples"):
        solve(make((20, 7), "cross_entropy", [[3, 0]]))


def test_clients_are_taken_in_their_order_and_once():
    problem = make((20, 7), "cross_entropy", [[3], [2, 2], [1]])
    out, change = (np.zeros((3, problem.plan.params), np.float32) for _ in range(2))
    plan, start, x, y, *schedule, lr = problem
    job = training_job(plan, start, out, change, x, y, *schedule, lr, np.empty(3))
    assert [job.done(client) for client in range(3)] == [False, False, False]
    assert job.work(2) == 2
    assert [job.done(client) for client in range(3)] == [True, True, False]
    assert out[:2].all(1).all()
    assert not out[2].any()
    assert job.work() == 1
    assert job.work() == 0
    assert job.done(2)


def relu_first():
    return nn.Sequential(nn.ReLU(), nn.Linear(4, 2))


def tied():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second)


def twice():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


def frozen():
    module = nn.Sequential(nn.Linear(4, 2))
    module[0].bias.requires_grad_(False)
    return module


def hooked():
    module = nn.Sequential(nn.Linear(4, 2))
    module[0].register_forward_hook(lambda *_: None)
    return module


class Other(nn.Linear):
    pass


@pytest.mark.parametrize(
    ("module", "shape", "sizes"),
    [
        (network((12, 5, 3)), (3, 4), (12, 5, 3)),
        (network((12, 3)), (12,), (12, 3)),
        (nn.Linear(4, 1), (4,), (4, 1)),
        (nn.Sequential(nn.Identity(), nn.Linear(4, 2), nn.Identity()), (4,), (4, 2)),
        (
            nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Linear(3, 2)),
            (2, 2),
            (4, 3, 2),
        ),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Linear(3, 2)), (4,), (4, 3, 2)),
    ],
)
def test_plans_of_perceptrons(module, shape, sizes):
    plan = plan_of(module, shape, "cross_entropy")
    assert plan == DensePlan(sizes, 0)
    assert plan.params == sum(value.numel() for value in module.parameters())


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(),
        nn.Flatten(),
        nn.Sequential(nn.Linear(4, 2, bias=False)),
        nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.ReLU(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(5, 2)),
        nn.Sequential(Other(4, 2)),
        nn.Sequential(nn.Linear(4, 2)).double(),
        relu_first(),
        tied(),
        twice(),
        frozen(),
        hooked(),
    ],
)
def test_other_modules_have_no_plan(module):
    assert plan_of(module, (4,), "cross_entropy") is None


def test_shapes_and_losses_without_a_plan():
    assert plan_of(nn.Sequential(nn.Linear(4, 2)), (2, 4), "cross_entropy") is None
    assert plan_of(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (2, 4), "cross_entropy") is None
    assert plan_of(nn.Sequential(nn.Linear(4, 2)), (4,), "hinge") is None
