import math
from types import SimpleNamespace

import pytest
import torch
from toy import KEY, blobs, played, same, setup, table

import shoal
from shoal import SpecError
from shoal.core.engine import Work
from shoal.core.term import Step
from shoal.core.tree import add
from shoal.core.types import Cohort, ModelMessage
from shoal.methods.fedntd import FedNTD
from shoal.terms.not_true import NotTrue


def term(outputs, sent, y, beta=1.0, tau=1.0):
    """The term where the model that was sent gives `sent`."""
    task = SimpleNamespace(forward=lambda weights, x: (torch.as_tensor(sent), {}))
    step = Step(task, None, None, outputs, torch.zeros(len(y), 1), torch.as_tensor(y), KEY)
    return NotTrue(beta, tau).loss(step)


def random_logits(name, samples=6, classes=5):
    return torch.randn(samples, classes, generator=KEY.fold(name).torch())


Y = torch.tensor([0, 3, 1, 4, 2, 2])


def test_by_hand():
    """q^g = (1/2, 1/2) and q = (3/4, 1/4): KL = ln(4/3) / 2, whatever is said of the true class."""
    outputs = torch.tensor([[5.0, math.log(3), 0.0]])
    assert term(outputs, [[-1.0, 0.0, 0.0]], [0]).item() == pytest.approx(math.log(4 / 3) / 2)
    assert term(outputs, [[-1.0, 0.0, 0.0]], [0], beta=3.0).item() == pytest.approx(1.5 * math.log(4 / 3))
    warm = term(2 * outputs, [[-1.0, 0.0, 0.0]], [0], tau=2.0)
    assert warm.item() == pytest.approx(4 * math.log(4 / 3) / 2)
    both = torch.cat([outputs, torch.zeros(1, 3)])  # the second sample agrees: the mean halves
    assert term(both, [[-1.0, 0.0, 0.0]] * 2, [0, 0]).item() == pytest.approx(math.log(4 / 3) / 4)


def test_it_is_the_divergence_without_the_true_class():
    outputs, sent = random_logits("own"), random_logits("sent")
    kept = torch.stack([torch.cat([row[:y], row[y + 1 :]]) for row, y in zip(outputs, Y, strict=True)])
    before = torch.stack([torch.cat([row[:y], row[y + 1 :]]) for row, y in zip(sent, Y, strict=True)])
    expected = torch.nn.functional.kl_div(
        (kept / 3).log_softmax(1), (before / 3).softmax(1), reduction="batchmean"
    )
    torch.testing.assert_close(term(outputs, sent, Y, beta=0.5, tau=3.0), 0.5 * 9 * expected)


def test_the_true_class_gets_no_gradient():
    outputs = random_logits("own").requires_grad_()
    (gradient,) = torch.autograd.grad(term(outputs, random_logits("sent"), Y, tau=2.0), outputs)
    assert gradient[torch.arange(6), Y].tolist() == [0.0] * 6
    assert float(gradient.abs().max()) > 0.01


def test_agreement_costs_nothing():
    outputs = random_logits("own").requires_grad_()
    loss = term(outputs, outputs.detach(), Y)
    assert loss.item() == 0
    assert float(torch.autograd.grad(loss, outputs)[0].abs().max()) < 1e-7


def test_a_constant_changes_nothing():
    outputs, sent = random_logits("own"), random_logits("sent")
    torch.testing.assert_close(term(outputs + 7, sent - 3, Y), term(outputs, sent, Y), rtol=1e-5, atol=1e-6)


def test_two_classes_have_nothing_to_keep():
    outputs = random_logits("own", 4, 2).requires_grad_()
    loss = term(outputs, random_logits("sent", 4, 2), [0, 1, 1, 0])
    assert loss.item() == 0
    assert torch.autograd.grad(loss, outputs)[0].abs().max().item() == 0


def test_the_sent_model_is_run_in_evaluation_mode():
    """With dropout, outputs of the same weights in evaluation mode agree exactly."""
    task = setup("fedntd", task={"dataset": "toy:blobs", "model": "toy:dropping"}).federation.task
    weights, x = task.init(KEY), blobs().x_train[:9]
    outputs = task.forward(weights, x)[0]
    step = Step(task, weights, weights, outputs, x, blobs().y_train[:9], KEY)
    assert NotTrue(1.0, 1.0).loss(step).item() == 0


def forgotten(beta):
    """How far clients move, on their own samples, what the model said of the other classes."""
    local = {"lr": 0.02, "batch": 8, "epochs": 5}
    made = setup({"name": "fedntd", "beta": beta}, local=local, engine={"mode": "serial"})
    federation = made.federation
    task, model = federation.task, played("fedavg", 3).state.model
    cohort = Cohort(tuple(range(8)), {}, 8)
    work, total = Work("update", 3, 0, {}), 0.0
    for delivery in federation.engine.exchange(work, cohort, ModelMessage(model), federation.key):
        data = made.side.data.train(delivery.clients[0], None, KEY, full=False).all
        after = add(model, delivery.reply.payload.update)
        total += term(task.forward(after, data.x)[0], task.forward(model, data.x)[0], data.y).item()
    return total


def test_clients_forget_less_as_beta_grows():
    found = [forgotten(beta) for beta in (0.0, 0.3, 1.0, 3.0)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.5 * found[0]


def test_it_is_fedavg_with_a_term():
    terms = [{"name": "not_true", "beta": 1.0, "tau": 2.0}]
    first = played({"name": "fedntd", "tau": 2.0})
    assert same(first.state, played({"name": "fedavg", "terms": terms}).state)


@pytest.mark.parametrize(
    "task",
    [
        {"dataset": "toy:line", "model": "linear"},
        {"dataset": "toy:blobs", "model": "logistic_ova"},
    ],
)
def test_tasks_without_a_softmax_are_refused(task):
    with pytest.raises(
        SpecError, match="not-true distillation needs a classifier with the loss cross_entropy, got"
    ):
        shoal.run(table("fedntd", task=task, partition={"kind": "iid", "clients": 8}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -1.0}, "beta must be >= 0, got -1"),
        ({"tau": 0.0}, "tau must be > 0, got 0"),
        ({"tau": math.inf}, "tau must be > 0, got inf"),
    ],
)
def test_bad_values(options, message):
    with pytest.raises(SpecError, match=message):
        FedNTD(**options)
