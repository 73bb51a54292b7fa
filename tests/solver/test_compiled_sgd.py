"""What the kernels add to a loss, against the same in torch with the gradients of autograd."""

import pytest
import torch
from toy import KEY, setup

from shoal.core.control import next_controls
from shoal.core.data import Block
from shoal.core.training import Start
from shoal.core.types import Context
from shoal.parts.generator import new_generator
from shoal.solver import torch_sgd
from shoal.solver.losses import mean_loss
from shoal.solver.sgd import Sgd
from shoal.terms.closeness import Closeness
from shoal.terms.generated import Generated
from shoal.terms.not_true import NotTrue
from shoal.terms.proximal import Proximal

LEARNED = torch.tensor([True, False, True, True])
LINEAR = {"dataset": "toy:blobs", "model": "linear"}
IMAGES = {"dataset": "toy:stripes", "model": "toy:small_cnn"}


def block_trained(solver, *args):
    """The results of a block, once all of its clients are trained."""
    done = solver.train_block(*args)
    done.wait(None)
    return done


def features(task, g_a=0.7, g_b=0.4):
    return Generated(new_generator(3, 4, 8, task.width, KEY), LEARNED, g_a, g_b, draws=5, noise=3)


def both(terms_of, options=None, task=None, shift=False):
    """The trained weights of a client: by the kernels, and by torch."""
    made = setup(**({"task": task} if task else {}))
    task, solver = made.federation.task, Sgd(lr=0.1, batch=7, epochs=2, **(options or {}))
    terms, start = terms_of(task), task.init(KEY.fold("start"))
    data = made.side.data.train(1, solver.batching, KEY.fold("batches"), full=False)
    context = Context(0, 0, {}, KEY.fold("client"))
    assert solver.fits(task, terms)
    more = {name: 0.1 * torch.ones_like(value) for name, value in start.params.items()} if shift else None
    by_kernels = solver.train(task, start, data, context, terms, more)
    noise = context.key.fold("noise")
    by_torch = torch_sgd.train(solver._rule(0), task, start, data, noise, terms, more, torch.float32)
    assert by_kernels.loss.item() == pytest.approx(by_torch.loss.item(), rel=1e-4)
    return by_kernels.weights.params, by_torch.weights.params, start.params


CASES = {
    "not true": lambda task: (NotTrue(2.0, 1.0),),
    "not true, warm": lambda task: (NotTrue(1.5, 3.0),),
    "generated": lambda task: (features(task),),
    "generated, without agreement": lambda task: (features(task, g_b=0.0),),
    "agreement alone": lambda task: (features(task, g_a=0.0),),
    "all": lambda task: (Proximal(0.3), NotTrue(1.0, 2.0), features(task)),
}


@pytest.mark.parametrize("task", [None, LINEAR, IMAGES], ids=["hidden layer", "linear", "convolutions"])
@pytest.mark.parametrize("name", CASES)
def test_terms_are_those_of_autograd(name, task):
    found, expected, _ = both(CASES[name], task=task)
    plain, _, _ = both(lambda task: (), task=task)
    assert any((found[name] - plain[name]).abs().max() > 1e-3 for name in found)  # the term does something
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("task", [None, IMAGES], ids=["hidden layer", "convolutions"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.1}])
def test_a_shift_goes_with_terms_and_without(options, task):
    for terms in (lambda task: (), CASES["all"]):
        found, expected, _ = both(terms, options, task, shift=True)
        for name in found:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("task", [None, IMAGES], ids=["hidden layer", "convolutions"])
def test_what_a_shift_is_less_is_subtracted_and_unwanted_weights_are_left_out(task):
    made = setup(**({"task": task} if task else {}))
    task, solver = made.federation.task, Sgd(lr=0.1, batch=7, epochs=2)
    weights = task.init(KEY.fold("start"))
    shift, less = (task.init(KEY.fold(name)).params for name in ("shift", "less"))
    data = [made.side.data.train(i, solver.batching, KEY.fold(i), full=False) for i in (1, 2)]
    two = [Start(weights, (), shift, less, only_update=True), Start(weights, (), shift, only_update=True)]
    whole = [Start(weights, (), two[0].whole_shift), Start(weights, (), shift)]
    block, keys = Block.of(data), [KEY.fold("noise", i) for i in (1, 2)]
    found, expected = (block_trained(solver, task, starts, block, keys, 0, 1) for starts in (two, whole))
    assert not found.weights
    assert len(expected.weights) == 2
    assert all(torch.equal(found.change.params[n], expected.change.params[n]) for n in weights.params)
    assert any((found.change.params[n][0] != found.change.params[n][1]).any() for n in weights.params)


@pytest.mark.parametrize("task", [None, IMAGES], ids=["hidden layer", "convolutions"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_control_variates_follow_from_the_update(momentum, task):
    made = setup(**({"task": task} if task else {}))
    task, solver = made.federation.task, Sgd(lr=0.1, momentum=momentum, batch=7, epochs=2)
    weights, common = task.init(KEY.fold("start")), task.init(KEY.fold("common")).params
    before = [task.init(KEY.fold("own", i)).params for i in (1, 2)]
    data = [made.side.data.train(i, solver.batching, KEY.fold(i), full=False) for i in (1, 2)]
    starts = [Start(weights, (), common, own, only_update=True, pace=0.5, controls=True) for own in before]
    keys = [KEY.fold("noise", i) for i in (1, 2)]
    trained = block_trained(solver, task, starts, Block.of(data), keys, 0, 2)
    assert trained.sound.all()
    for i in (0, 1):
        found = trained.single(i)
        update = found.update(weights).params
        expected = next_controls(update, common, before[i], 0.5 * solver.reach(0, found.steps))
        for one, other in zip(found.controls, expected, strict=True):
            assert all(torch.equal(one[name], other[name]) for name in update)


@pytest.mark.parametrize("alike", [True, False], ids=["one common", "a common each"])
def test_no_client_is_sound_whose_control_variate_changes_by_what_cannot_be_squared(alike):
    made = setup()
    task, solver = made.federation.task, Sgd(lr=0.1, batch=7)
    weights = task.init(KEY.fold("start"))
    large = [{name: torch.full_like(value, 1e19) for name, value in weights.params.items()} for _ in "123"]
    common = large[:1] * 3 if alike else large  # the shift is 0: clients train as if there were none
    data = [made.side.data.train(i, solver.batching, KEY.fold(i), full=False) for i in range(3)]
    starts = [Start(weights, (), one, large[0], only_update=True, controls=True) for one in common]
    trained = block_trained(solver, task, starts, Block.of(data), [KEY.fold(i) for i in range(3)], 0, 2)
    assert all(value.abs().max() < 10 for value in trained.change.params.values())
    assert not trained.sound.any()


DROPPING = [{**IMAGES, "dropout": True}, {"dataset": "toy:blobs", "model": "toy:dropping"}]


@pytest.mark.parametrize("task", DROPPING, ids=["convolutions", "hidden layer"])
@pytest.mark.parametrize("name", ["none", "not true", "generated"])
def test_dropout_is_drawn_as_in_torch(name, task):
    terms = CASES.get(name, lambda task: ())
    found, expected, _ = both(terms, {"momentum": 0.5}, task)
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("task", [None, LINEAR, IMAGES, {"dataset": "toy:blobs", "model": "logistic_ova"}])
def test_the_mean_loss_is_that_of_the_model(task):
    made = setup(**({"task": task} if task else {}))
    task = made.federation.task
    data, weights = made.side.data.train(2, None, KEY, full=False), task.init(KEY)
    expected = task.losses(weights, *data.all).double().sum() / data.count
    assert mean_loss(task, weights, data).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_client_can_be_had_before_the_others_are_trained(threads):
    made = setup()
    task, solver = made.federation.task, Sgd(lr=0.1, batch=7)
    data = [made.side.data.train(i, solver.batching, KEY.fold(i), full=False) for i in range(4)]
    starts, keys = [Start(task.init(KEY))], [KEY.fold(i) for i in range(4)]
    expected = block_trained(solver, task, starts, Block.of(data), keys, 0, 1)
    for order in ([0, 1, 2, 3], [3, 1]):
        trained = solver.train_block(task, starts, Block.of(data), keys, 0, threads)
        for i in order:
            alone, same = trained.single(i), expected.single(i)
            assert torch.equal(alone.change.params.vector, same.change.params.vector)
            assert torch.equal(alone.held.params.vector, same.held.params.vector)
            assert alone.loss == same.loss
            assert trained.sound[i]


def centred(task):
    """A model away from the one that training starts from, and a mask of half of its numbers."""
    centre = task.init(KEY.fold("centre")).params
    mask = {name: (value > 0).float() for name, value in task.init(KEY.fold("mask")).params.items()}
    return centre, mask


PULLS = {
    "all": lambda centre, mask, by_layer: (Closeness(0.3, centre, None, by_layer),),
    "mask": lambda centre, mask, by_layer: (Closeness(0.4, centre, mask, by_layer),),
    "both": lambda centre, mask, by_layer: (
        Closeness(0.3, centre, None, by_layer),
        Closeness(0.4, centre, mask, by_layer),
    ),
    "both, with others": lambda centre, mask, by_layer: (
        NotTrue(1.0, 2.0),
        Closeness(0.4, centre, mask, by_layer),
        Proximal(0.3),
        Closeness(0.3, centre, None, by_layer),
    ),
}


@pytest.mark.parametrize("task", [None, LINEAR, IMAGES], ids=["hidden layer", "linear", "convolutions"])
@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("name", PULLS)
def test_pulls_of_constant_strength_are_those_of_autograd(name, by_layer, task):
    options, pulls = {"momentum": 0.5} if by_layer else {}, PULLS[name]
    for shift in (False, True):
        found, expected, _ = both(lambda task: pulls(*centred(task), by_layer), options, task, shift=shift)
        plain, _, _ = both(lambda task: (), options, task, shift=shift)
        assert any((found[part] - plain[part]).abs().max() > 1e-3 for part in found)
        for part in found:
            torch.testing.assert_close(found[part], expected[part], rtol=1e-4, atol=2e-6)


def test_a_pull_where_training_starts_has_a_gradient():
    found, expected, start = both(lambda task: (Closeness(0.5, task.init(KEY.fold("start")).params),))
    assert all(torch.isfinite(value).all() for value in found.values())
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=2e-6)
        assert not torch.equal(found[name], start[name])


def test_clients_of_a_block_are_pulled_towards_centres_of_their_own():
    made = setup()
    task, solver = made.federation.task, Sgd(lr=0.1, batch=7)
    start, (centre, mask) = task.init(KEY.fold("start")), centred(task)
    other = task.init(KEY.fold("other")).params
    terms = [
        (Closeness(0.3, centre), Closeness(0.4, centre, mask)),
        (Closeness(0.1, other), Closeness(0.2, other, {name: 1 - value for name, value in mask.items()})),
    ]
    data = [made.side.data.train(i, solver.batching, KEY.fold(i), full=False) for i in (1, 2)]
    starts, keys = [Start(start, some) for some in terms], [KEY.fold("noise", i) for i in (1, 2)]
    together = block_trained(solver, task, starts, Block.of(data), keys, 0, 2)
    for i in (0, 1):
        alone = solver.train_block(task, starts[i : i + 1], Block.of(data[i : i + 1]), keys[i : i + 1], 0, 1)
        found, expected = together.single(i).weights.params, alone.single(0).weights.params
        assert all(torch.equal(found[name], expected[name]) for name in found)


def test_pulls_that_the_kernels_do_not_know_are_left_to_torch():
    task = setup().federation.task
    centre, mask = centred(task)
    other = dict(centre)
    first = next(iter(centre))
    for terms in (
        (Closeness(0.1, centre), Closeness(0.2, centre)),
        (Closeness(0.1, centre), Closeness(0.2, other, mask)),
        (Closeness(0.1, {first: centre[first]}),),
    ):
        assert not Sgd().fits(task, terms)
    assert Sgd().fits(task, (Closeness(0.1, centre), Closeness(0.2, centre, mask)))
