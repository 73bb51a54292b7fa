from dataclasses import replace

import numpy as np
import pytest
import torch
from methods.lossy import Refusing
from toy import CURVATURES, KEY, OPTIMA, on_quadratics, played, setup

from shoal.core.errors import SpecError
from shoal.core.types import Cohort, ModelMessage, Moment, Reply, Weights
from shoal.loop import advance, start
from shoal.methods.qfedavg import QFedAvg, QFedAvgReply, QFedAvgState
from shoal.solver.sgd import Sgd


def weights(value):
    return Weights({"w": torch.tensor([value])}, {})


def stepped(method, start, updates, losses, settings=None, round=0):
    """Where the server goes from `start`, and the weights that it records."""
    state = QFedAvgState(weights(start), ())
    acc = method.begin(state, Cohort(tuple(range(len(updates))), settings or {}, 9))
    for client, (update, loss) in enumerate(zip(updates, losses, strict=True)):
        reply = Reply(QFedAvgReply(weights(update), torch.tensor(loss).double()), torch.ones(()).double(), {})
        acc = method.fold(acc, client, ModelMessage(state.model), reply)
    after, metrics = method.finish(None, state, acc, Moment(round, 0, True, KEY))
    return float(after.model.params["w"]), metrics["weights"]


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_who_was_drawn_three_times_counts_as_three(q):
    method = QFedAvg(q=q, local=Sgd(lr=0.1))
    drawn, recorded = stepped(method, 1.0, [0.5, -0.2], [2.0, 1.0], {"count": (3, 1)})
    apart, all_of_them = stepped(method, 1.0, [0.5, 0.5, 0.5, -0.2], [2.0, 2.0, 2.0, 1.0])
    assert drawn == pytest.approx(apart)
    assert recorded[0] == pytest.approx(all_of_them[0] + all_of_them[1] + all_of_them[2])


@pytest.mark.parametrize("q", [0.5, 1.0, 5.0])
def test_one_client_by_hand(q):
    lr, update, loss = 0.1, -0.6, 2.0
    gradient = -update / lr
    step = gradient / (q * gradient**2 / loss + 1 / lr)
    found, _ = stepped(QFedAvg(q=q, local=Sgd(lr=lr)), 1.0, [update], [loss])
    assert found == pytest.approx(1.0 - step, abs=1e-6)


def test_two_clients_by_hand():
    """L = 2, q = 1: D = F G, h = G^2 + 2 F."""
    found, shares = stepped(QFedAvg(q=1.0, local=Sgd(lr=0.5)), 0.0, [1.0, -2.0], [3.0, 5.0])
    top, bottom = 3 * -2.0 + 5 * 4.0, (4 + 6) + (16 + 10)
    assert found == pytest.approx(-top / bottom, abs=1e-6)
    assert shares == pytest.approx({0: 2 * 3 / 36, 1: 2 * 5 / 36})


FADING = {"lr": 0.2, "schedule": "exponential", "decay": 0.5}


@pytest.mark.parametrize("round", [0, 1, 4])
def test_l_belongs_to_the_moments_round(round):
    """Client and server agree on the rate of a round: as in the hand-worked step, with L of that round."""
    update, loss, smooth = -0.6, 2.0, 1 / (0.2 * 0.5**round)
    gradient = -smooth * update
    step = loss * gradient / (gradient**2 + smooth * loss)  # q = 1
    method = QFedAvg(q=1.0, local=Sgd(**FADING))
    found, shares = stepped(method, 1.0, [update], [loss], round=round)
    assert found == pytest.approx(1.0 - step, abs=1e-6)
    assert shares[0] == pytest.approx(smooth * loss / (gradient**2 + smooth * loss))


def on_two_quadratics(w, q, rate, smooth, steps):
    """A round from w by hand, in which both clients train at this rate; `smooth` is L."""
    updates = (1 - (1 - rate * CURVATURES) ** steps) * (OPTIMA - w)
    losses = CURVATURES / 2 * (w - OPTIMA) ** 2 + 1e-10
    gradients = -smooth * updates
    h = q * losses ** (q - 1) * gradients**2 + smooth * losses**q
    return w - np.sum(losses**q * gradients) / np.sum(h)


@pytest.mark.parametrize("lost", [None, 0, 1, 2])
@pytest.mark.parametrize("q", [0.5, 2.0])
def test_l_is_that_of_the_round_in_which_clients_trained(q, lost):
    """Also after a round in which nobody's reply was accepted, while the rate fades from round to round."""
    made = setup(
        {"name": "qfedavg", "q": q},
        task={"dataset": "toy:quadratics", "model": "toy:scalar"},
        partition="natural",
        selector="all",
        local={**FADING, "batch": 1, "epochs": 3},
    )
    federation = replace(made.federation, engine=Refusing(made.federation.engine, lost))
    progress = start(federation)
    w = float(progress.state.model.params["weight"])
    for round in range(4):
        progress, record = advance(federation, progress)
        assert len(record.rejected) == (2 if round == lost else 0)
        if round != lost:
            rates = [0.2 * 0.5**other for other in (round, round - 1, round + 1)]
            w, *others = (on_two_quadratics(w, q, rates[0], 1 / rate, 3) for rate in rates)
            assert all(abs(w - other) > 1e-3 for other in others)  # so that another round's would be seen
        assert float(progress.state.model.params["weight"]) == pytest.approx(w, abs=1e-5)


def test_the_worse_a_client_is_served_the_more_it_counts():
    shares = [stepped(QFedAvg(q=q), 0.0, [1.0, 1.0], [1.0, 4.0])[1] for q in (0.0, 1.0, 2.0)]
    ratios = [share[1] / share[0] for share in shares]
    assert ratios == pytest.approx([1.0, 4.0, 16.0])


@pytest.mark.parametrize("q", [0.0, 0.5, 2.0])
def test_a_loss_of_nothing_is_safe(q):
    found, _ = stepped(QFedAvg(q=q), 1.0, [0.5, 0.5], [0.0, 0.0])
    assert 1.0 <= found <= 1.5


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_with_q_0_it_is_fedavg(norm):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    first, second = (
        played(m, task=task).state.model
        for m in ({"name": "qfedavg", "q": 0.0}, {"name": "fedavg", "weights": "uniform"})
    )
    for part, twin in zip(first, second, strict=True):
        for name, value in twin.items():
            torch.testing.assert_close(part[name], value, rtol=1e-6, atol=1e-6)


def test_losses_become_more_alike():
    def gap(q):
        w = on_quadratics({"name": "qfedavg", "q": q}, 100, 0.15, 1)
        losses = CURVATURES / 2 * (w - OPTIMA) ** 2
        return abs(losses[0] - losses[1])

    assert gap(5.0) < 0.5 * gap(1.0) < 0.5 * gap(0.0)


def test_a_bad_q_is_refused():
    with pytest.raises(SpecError, match="q must be at least 0, got -1"):
        setup({"name": "qfedavg", "q": -1.0})
