"""Training in number formats of fewer bits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import KEY, after, same, setup, spec
from wire import over_the_wire

from shoal import SpecError
from shoal.core.types import Context
from shoal.kernels.formats import FORMATS, WEIGHTS, round_either, round_nearest
from shoal.kernels.philox import uniforms
from shoal.runs.build import build
from shoal.solver import torch_sgd
from shoal.solver.formats import StepRounding, rounded
from shoal.solver.sgd import Sgd
from shoal.spec import from_table

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "e5m2": torch.float8_e5m2}
SHORT = pytest.mark.parametrize("name", DTYPES)
IMAGES = {"dataset": "toy:stripes", "model": "toy:small_cnn", "dropout": True}
LOCAL = {"lr": 0.05, "batch": 8, "epochs": 2, "momentum": 0.5}


def on_grid(values, name):
    return torch.equal(values, values.to(DTYPES[name]).float())


@SHORT
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), scale=st.integers(-30, 14))
def test_the_nearest_is_that_of_torch(name, seed, scale):
    x = (KEY.fold(seed).numpy().normal(size=700) * 2.0**scale).astype(np.float32)
    largest = float(FORMATS[name].largest)
    expected = torch.from_numpy(x).clamp(-largest, largest).to(DTYPES[name]).float()
    round_nearest(x, *FORMATS[name])
    assert np.array_equal(x, expected.numpy())


@SHORT
def test_either_neighbour_is_right_on_average_and_the_grid_stays(name):
    for value in (1.1, -3.3, 1.7 * 2.0**-15, 5e4):
        x = np.full(50_000, value, np.float32)
        round_either(x, *FORMATS[name], *KEY.words, 0, WEIGHTS, 0)
        below, above = x.min(), x.max()
        assert len(np.unique(x)) == 2
        assert below < value < above
        assert x.mean(dtype=np.float64) == pytest.approx(value, abs=float(5 * (above - below) / 2 / 220))
        again = x.copy()
        round_either(again, *FORMATS[name], *KEY.words, 1, WEIGHTS, 0)
        assert np.array_equal(again, x)


@SHORT
def test_numbers_that_are_too_large_are_cut_and_others_stay_visible(name):
    largest = FORMATS[name].largest
    strange = np.array([np.inf, -np.inf, np.nan, largest, -largest, 3.4e38, -3.4e38], np.float32)
    near, either = strange.copy(), strange.copy()
    round_nearest(near, *FORMATS[name])
    round_either(either, *FORMATS[name], *KEY.words, 0, WEIGHTS, 0)
    expected = np.array([np.inf, -np.inf, np.nan, largest, -largest, largest, -largest], np.float32)
    assert np.array_equal(near, expected, equal_nan=True)
    assert np.array_equal(either, expected, equal_nan=True)


def test_a_draw_depends_on_the_place_of_a_number_and_not_on_the_call():
    x = KEY.numpy().normal(size=3000).astype(np.float32)
    whole, first, rest = x.copy(), x[:777].copy(), x[777:].copy()
    round_either(whole, *FORMATS["e5m2"], *KEY.words, 4, WEIGHTS, 0)
    round_either(first, *FORMATS["e5m2"], *KEY.words, 4, WEIGHTS, 0)
    round_either(rest, *FORMATS["e5m2"], *KEY.words, 4, WEIGHTS, 777)
    assert np.array_equal(whole, np.concatenate([first, rest]))
    other = x.copy()
    round_either(other, *FORMATS["e5m2"], *KEY.words, 5, WEIGHTS, 0)
    assert not np.array_equal(whole, other)


def test_a_stream_is_drawn_as_before():
    """Dropout's numbers: the counter's other words are 0 there."""
    drawn = uniforms(*KEY.words, 1000)
    words = np.random.Generator(np.random.Philox(key=KEY.array)).bit_generator.random_raw(250)
    quarters = (words[:, None] >> (16 * np.arange(4, dtype=np.uint64))) & np.uint64(0xFFFF)
    assert np.array_equal(drawn, (quarters.reshape(-1) * 2.0**-16).astype(np.float32))


# ---- training


def trained(name, by_torch=False, task=None, **options):
    made = setup(**({"task": task} if task else {}))
    task, solver = made.federation.task, Sgd(lr=0.05, batch=7, epochs=2, format=name, **options)
    start = task.init(KEY.fold("start"))
    data = made.side.data.train(1, solver.batching, KEY.fold("batches"), full=False)
    context = Context(0, 0, {}, KEY.fold("client"))
    if not by_torch:
        return start, solver.train(task, start, data, context)
    noise, begin = context.key.fold("noise"), rounded(start, name)
    rounding = StepRounding.of(name, solver.rounding == "stochastic", noise)
    rule = solver._rule(0)
    return start, torch_sgd.train(rule, task, begin, data, noise, (), None, torch.float32, rounding)


@SHORT
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.01}], ids=["plain", "momentum"])
@pytest.mark.parametrize("rounding", ["stochastic", "nearest"])
@pytest.mark.parametrize("task", [None, IMAGES], ids=["hidden layer", "convolutions"])
def test_kernels_and_torch_round_alike(name, options, rounding, task):
    """But for numbers so near to a boundary that the last bits of a sum decide."""
    start, by_kernels = trained(name, rounding=rounding, task=task, **options)
    _, by_torch = trained(name, by_torch=True, rounding=rounding, task=task, **options)
    same_numbers = total = 0
    for field, value in by_kernels.weights.params.items():
        other = by_torch.weights.params[field]
        assert on_grid(value, name)
        assert on_grid(other, name)
        same_numbers += int((value == other).sum())
        total += value.numel()
    assert same_numbers >= 0.9 * total
    begin = rounded(start, name).params
    for done in (by_kernels, by_torch):
        for field, change in done.update(start).params.items():
            assert torch.equal(change, done.weights.params[field] - begin[field])


def test_float32_is_no_format():
    _, plain = trained("float32", momentum=0.5)
    _, nearest = trained("float32", momentum=0.5, rounding="nearest")
    assert same(plain.weights, nearest.weights)
    assert rounded(plain.weights, "float32") is plain.weights


@pytest.mark.parametrize("norm", ["none", "batch"])  # kernels, and torch
def test_every_mode_has_the_same_bits(norm):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    local = {**LOCAL, "format": "e5m2"}
    one_by_one = after(setup(task=task, local=local, engine={"mode": "serial"}), 2)
    for mode in ("block", "workers"):
        assert same(after(setup(task=task, local=local, engine={"mode": mode, "workers": 2}), 2), one_by_one)
    assert same(after(over_the_wire(spec(task=task, local=local)), 2), one_by_one)
    assert not same(one_by_one, after(setup(task=task, local=LOCAL), 2))


def test_a_client_may_have_a_format_of_its_own():
    """A cohort of several formats, in one block, has the bits of each client alone."""
    chosen = {"selector": "protocol_probes:FormatById", "local": LOCAL}
    mixed = after(setup(**chosen, engine={"mode": "block"}), 2)
    assert same(mixed, after(setup(**chosen, engine={"mode": "serial"}), 2))
    assert same(mixed, after(over_the_wire(spec(**chosen)), 2))
    assert not same(mixed.state, after(setup(local=LOCAL, selector="all"), 2).state)


def test_a_strange_format_is_refused():
    made = setup()
    task, solver = made.federation.task, Sgd()
    data = made.side.data.train(1, solver.batching, KEY, full=False)
    with pytest.raises(SpecError, match=r"format must be one of float32, .* got 'int8'"):
        solver.train(task, task.init(KEY), data, Context(0, 0, {"format": "int8"}, KEY))
    with pytest.raises(SpecError, match=r"local.format must be one of float32, .* got 'half'"):
        spec(local={"format": "half"})


def test_small_steps_are_not_lost_in_a_chain_of_clients():
    """mnist5k, mlp, lr 0.01: 8 bits with random rounding learn as 32 do, rounding to the nearest does not."""
    tables = {"task": {"model": "mlp"}, "partition": {"kind": "iid", "clients": 40}, "local": {"batch": 10}}
    made = build(from_table(tables))
    task, dataset = made.federation.task, made.dataset

    def accuracy(name, rounding):
        weights = task.init(KEY)
        solver = Sgd(lr=0.01, momentum=0.5, epochs=1, format=name, rounding=rounding)
        for leg in range(60):
            context = Context(0, leg, {}, KEY.fold("leg", leg))
            data = made.side.data.train(leg % 40, solver.batching, context.key.fold("batches"), full=False)
            weights = solver.train(task, weights, data, context).weights
        return float((task.forward(weights, dataset.x_test)[0].argmax(1) == dataset.y_test).float().mean())

    single, chosen, nearest = (
        accuracy("float32", "nearest"),
        accuracy("e5m2", "stochastic"),
        accuracy("e5m2", "nearest"),
    )
    assert single > 0.75
    assert chosen > single - 0.03
    assert nearest < single - 0.10
