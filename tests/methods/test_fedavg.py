import numpy as np
import pytest
import torch
from toy import CURVATURES, KEY, OPTIMA, on_quadratics, play, played, same, setup

from shoal.aggregators.averaging import Averaged
from shoal.core.engine import Work
from shoal.core.types import Cohort, ModelMessage, ModelUpdate, Moment, Reply, Weights
from shoal.loop import start
from shoal.methods.fedavg import FedAvg

MOMENT = Moment(0, 0, True, KEY)


def weights(*params, counter=0):
    return Weights(
        {"w": torch.tensor(params)}, {"mean": torch.tensor([params[0]]), "seen": torch.tensor(counter)}
    )


def reply(update, samples):
    return Reply(ModelUpdate(update), torch.tensor(float(samples), dtype=torch.float64), {})


@pytest.mark.parametrize(("weighting", "expected"), [("samples", [1.75, -1.5]), ("uniform", [1.5, 0.0])])
def test_the_mean_by_hand(weighting, expected):
    method = FedAvg(weights=weighting)
    state = Averaged(weights(1.0, 0.0), (), ())
    acc = method.begin(state, Cohort((4, 9), {}, 10))
    sent = ModelMessage(state.model)
    acc = method.fold(acc, 4, sent, reply(weights(0.0, 3.0, counter=2), 1))
    acc = method.fold(acc, 9, sent, reply(weights(1.0, -3.0, counter=5), 3))
    after, _ = method.finish(None, state, acc, MOMENT)
    assert after.model.params["w"].tolist() == expected
    assert after.model.buffers["mean"].tolist() == expected[:1]  # float buffers: the clients' own weights
    assert after.model.buffers["seen"].item() == 5  # counters: the maximum
    assert after.model.buffers["seen"].dtype == torch.int64


def test_what_a_client_was_sent_counts_not_what_the_server_holds():
    """Two clients that were sent other models and did not move pull the server to what they were sent."""
    method = FedAvg(weights="uniform")
    state = Averaged(weights(1.0, 1.0), (), ())
    acc = method.begin(state, Cohort((0, 1), {}, 2))
    still = weights(0.0, 0.0)
    acc = method.fold(acc, 0, ModelMessage(weights(3.0, 1.0)), reply(still, 1))
    acc = method.fold(acc, 1, ModelMessage(weights(2.0, 5.0)), reply(still, 1))
    after, _ = method.finish(None, state, acc, MOMENT)
    assert after.model.params["w"].tolist() == [2.5, 3.0]


def test_one_client_with_one_full_batch_is_a_step_of_gradient_descent():
    made = setup(
        partition={"kind": "iid", "clients": 1},
        selector="all",
        local={"lr": 0.3, "batch": 10**6, "epochs": 1},
    )
    federation, dataset = made.federation, made.dataset
    before = start(federation).state.model
    after = play(made, 1).state.model
    params = {name: value.clone().requires_grad_() for name, value in before.params.items()}
    loss = federation.task.losses(Weights(params, {}), dataset.x_train, dataset.y_train).mean()
    gradients = torch.autograd.grad(loss, list(params.values()))
    for (name, value), gradient in zip(before.params.items(), gradients, strict=True):
        torch.testing.assert_close(after.params[name], value - 0.3 * gradient, rtol=1e-5, atol=1e-6)


def test_full_batches_of_all_clients_are_a_step_on_all_data():
    """With one step and averaging by samples, federating is centralised gradient descent."""
    local = {"lr": 0.3, "batch": 10**6, "epochs": 1}
    many = played(selector="all", local=local, rounds=1).state.model
    one = played(partition={"kind": "iid", "clients": 1}, selector="all", local=local, rounds=1).state.model
    for name, value in one.params.items():
        torch.testing.assert_close(many.params[name], value, rtol=1e-5, atol=1e-6)


def test_the_biased_fixed_point_of_two_quadratics():
    lr, steps = 0.1, 5
    shrink = (1 - lr * CURVATURES) ** steps
    biased = np.sum((1 - shrink) * OPTIMA) / np.sum(1 - shrink)
    joint = np.sum(CURVATURES * OPTIMA) / np.sum(CURVATURES)
    assert abs(biased - joint) > 0.1
    assert on_quadratics("fedavg", 60, lr, steps) == pytest.approx(biased, abs=1e-4)


def test_buffers_are_averaged_over_clients_not_taken_from_the_first():
    made = setup(task={"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"}, selector="all")
    federation = made.federation
    state = start(federation).state
    cohort = Cohort(tuple(range(8)), {}, 8)
    message = federation.method.dispatch(federation.task, state, cohort, MOMENT)
    deliveries = list(federation.engine.exchange(Work("update", 0, 0, {}), cohort, message, federation.key))
    acc = federation.method.begin(state, cohort)
    for delivery in deliveries:
        acc = federation.method.fold(acc, delivery.clients[0], delivery.sent, delivery.reply)
    after, _ = federation.method.finish(federation.task, state, acc, MOMENT)
    samples = torch.stack([d.reply.weight for d in deliveries])
    for name in ("1.running_mean", "1.running_var"):
        changes = torch.stack([d.reply.payload.update.buffers[name] for d in deliveries]).double()
        expected = state.model.buffers[name] + (samples[:, None] * changes).sum(0) / samples.sum()
        torch.testing.assert_close(after.model.buffers[name].double(), expected, rtol=1e-6, atol=1e-7)
        assert not torch.allclose(changes[0], changes[1])  # so that the first client's would be seen
    steps = [int(d.reply.payload.update.buffers["1.num_batches_tracked"]) for d in deliveries]
    assert len(set(steps)) > 1
    assert int(after.model.buffers["1.num_batches_tracked"]) == max(steps)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_weights_matter(weighting):
    other = "uniform" if weighting == "samples" else "samples"
    first = played({"name": "fedavg", "weights": weighting}, selector="all")
    assert same(
        first.state.model, played({"name": "fedavg", "weights": weighting}, selector="all").state.model
    )
    assert not same(
        first.state.model, played({"name": "fedavg", "weights": other}, selector="all").state.model
    )


def test_dropout_of_a_users_model_comes_from_the_key():
    task = {"dataset": "toy:blobs", "model": "toy:dropping"}
    torch.manual_seed(1)
    first = played(task=task)
    torch.manual_seed(2)
    assert same(first.state.model, played(task=task).state.model)
    assert not same(first.state.model, played(task=task, seed=4).state.model)
