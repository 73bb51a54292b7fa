import pytest
import torch
from toy import CURVATURES, KEY, OPTIMA, on_quadratics, play, setup

from shoal import SpecError
from shoal.core.engine import Work
from shoal.core.term import Step
from shoal.core.types import Cohort, Moment, Weights
from shoal.loop import start
from shoal.methods.fedprox import FedProx
from shoal.terms.proximal import Proximal


def drift(mu):
    """How far the clients move from the model that they are sent, in the second round."""
    made = setup({"name": "fedprox", "mu": mu}, local={"lr": 0.1, "batch": 8, "epochs": 5})
    federation = made.federation
    state = play(setup("fedavg"), 1).state
    cohort = Cohort(tuple(range(8)), {}, 8)
    moment = Moment(1, 0, True, federation.key)
    message = federation.method.dispatch(federation.task, state, cohort, moment)
    deliveries = federation.engine.exchange(Work("update", 1, 0, {}), cohort, message, federation.key)
    return sum(float(v.square().sum()) for d in deliveries for v in d.reply.payload.update.params.values())


def test_drift_shrinks_as_mu_grows():
    drifts = [drift(mu) for mu in (0.0, 0.1, 1.0, 5.0)]
    assert drifts == sorted(drifts, reverse=True)
    assert drifts[-1] < 0.5 * drifts[0]


def test_the_term_is_flat_where_training_starts():
    start_weights = Weights({"w": torch.tensor([1.0, 2.0])}, {})
    params = {"w": torch.tensor([1.0, 2.0], requires_grad=True)}
    empty = torch.empty(0)
    loss = Proximal(3.0).loss(Step(None, Weights(params, {}), start_weights, empty, empty, empty, KEY))
    assert loss.item() == 0
    assert torch.autograd.grad(loss, params["w"])[0].tolist() == [0.0, 0.0]


def test_the_term_by_hand():
    start_weights = Weights({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([0.0])}, {})
    moved = Weights({"w": torch.tensor([2.0, 4.0]), "b": torch.tensor([2.0])}, {})
    empty = torch.empty(0)
    loss = Proximal(3.0).loss(Step(None, moved, start_weights, empty, empty, empty, KEY))
    assert loss.item() == 0.5 * 3.0 * (1 + 4 + 4)


def test_long_local_training_ends_at_the_proximal_optimum():
    """One round from w0: each client reaches (h a + mu w0) / (h + mu), and the server their mean."""
    mu = 2.0
    task = {"dataset": "toy:quadratics", "model": "toy:scalar"}
    made = setup("fedavg", task=task, partition="natural", selector="all")
    w0 = float(start(made.federation).state.model.params["weight"])
    expected = ((CURVATURES * OPTIMA + mu * w0) / (CURVATURES + mu)).mean()
    reached = on_quadratics({"name": "fedprox", "mu": mu}, rounds=1, lr=0.1, steps=200)
    assert reached == pytest.approx(expected, abs=1e-5)


def test_a_negative_mu_is_refused():
    with pytest.raises(SpecError, match="mu must be >= 0, got -1"):
        FedProx(mu=-1.0)
