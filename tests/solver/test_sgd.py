import pytest
import torch
from toy import KEY, setup

from shoal import SpecError
from shoal.core.data import Batching
from shoal.core.types import Context
from shoal.solver.sgd import Sgd


def trained(solver, shift=None, task=None, round=0):
    made = setup(task=task) if task else setup()
    weights = made.federation.task.init(KEY)
    data = made.side.data.train(1, solver.batching, KEY, full=bool(made.federation.task.batch_norms))
    context = Context(round, 0, {}, KEY)
    return (
        weights,
        data,
        made.federation.task,
        solver.train(made.federation.task, weights, data, context, shift=shift),
    )


MODELS = {
    "none": {"dataset": "toy:blobs", "model": "toy:net", "norm": "none"},
    "batch": {"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"},
    "two layouts": {"dataset": "toy:stripes", "model": "toy:narrowing_cnn"},
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.01}]
)
def test_equals_torchs_own_optimiser(options, model):
    solver = Sgd(lr=0.1, batch=7, epochs=2, **options)
    weights, data, task, result = trained(solver, task=MODELS[model])
    assert task.channels_last == ({"0"} if model == "two layouts" else set())
    module = task.module(weights).train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, **options)
    losses = []
    for x, y in data.train:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    for name, value in module.state_dict().items():
        mine = {**result.weights.params, **result.weights.buffers}[name]
        torch.testing.assert_close(mine, value, rtol=1e-5, atol=1e-6)
    assert result.steps == len(losses)
    assert result.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_a_shift_is_added_to_every_gradient():
    """One step of plain descent with a shift is the plain step minus lr times the shift."""
    solver = Sgd(lr=0.1, batch=10**6, epochs=1)
    weights, _, _, plain = trained(solver)
    ones = {name: torch.ones_like(value) for name, value in weights.params.items()}
    _, _, _, shifted = trained(solver, shift=ones)
    for name, value in plain.weights.params.items():
        torch.testing.assert_close(shifted.weights.params[name], value - 0.1)


def test_the_rate_decays_by_rounds():
    assert Sgd(lr=0.1).rate(100) == 0.1
    solver = Sgd(lr=0.1, schedule="exponential", decay=0.5)
    assert [solver.rate(r) for r in range(3)] == [0.1, 0.05, 0.025]
    _, _, _, early = trained(solver)
    weights, _, _, late = trained(solver, round=30)
    moved = [
        max(float((t.weights.params[n] - w).abs().max()) for n, w in weights.params.items())
        for t in (early, late)
    ]
    assert moved[1] < 1e-6 < moved[0]


def test_batching():
    assert Sgd(batch=4, epochs=2).batching == Batching(4, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr must be > 0, got 0"),
        ({"lr": float("nan")}, "lr must be > 0, got nan"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0, got -1"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"epochs": -2}, "epochs must be at least 1, got -2"),
        ({"decay": 0.0}, r"decay must be in \(0, 1\], got 0"),
    ],
)
def test_bad_values(options, message):
    with pytest.raises(SpecError, match=message):
        Sgd(**options)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_half_the_bits_of_a_product_keep_the_weights_in_float32(norm):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    _, _, _, full = trained(Sgd(lr=0.1, batch=7, epochs=2), task=task)
    _, _, _, half = trained(Sgd(lr=0.1, batch=7, epochs=2, precision="bfloat16"), task=task)
    for name, value in full.weights.params.items():
        found = half.weights.params[name]
        assert found.dtype == torch.float32
        assert not torch.equal(found, value)
        torch.testing.assert_close(found, value, rtol=0.1, atol=0.03)


def test_images_train_in_half_the_bits():
    made = setup(task={"dataset": "digits", "model": "cnn"})
    solver = Sgd(lr=0.05, batch=8, epochs=1, precision="bfloat16")
    data = made.side.data.train(1, solver.batching, KEY, full=False)
    start = made.federation.task.init(KEY)
    result = solver.train(made.federation.task, start, data, Context(0, 0, {}, KEY))
    assert all(v.dtype == torch.float32 and v.isfinite().all() for v in result.weights.params.values())
    assert all(v.is_contiguous() for v in result.weights.params.values())
