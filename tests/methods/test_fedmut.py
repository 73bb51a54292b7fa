import numpy as np
import pytest
import torch
from quadratic_clients import Quadratics
from toy import KEY, play, setup

from shoal import SpecError
from shoal.core.types import Cohort, Moment, Weights, message_for
from shoal.loop import start
from shoal.methods.fedmut import FedMut


def sent_in(round, state, method, clients=10):
    """The models that a cohort is sent, with the state's numbers in float64 so that sums are exact."""
    double = [{name: value.double() for name, value in p.items()} for p in (state.model.params, state.before)]
    exact = state.averaged._replace(model=Weights(double[0], state.model.buffers))
    state = state._replace(averaged=exact, before=double[1])
    cohort = Cohort(tuple(range(clients)), {}, 100)
    message = method.dispatch(None, state, cohort, Moment(round, 0, True, KEY))
    return state, [message_for(message, i).model for i in range(clients)]


def after(rounds, **fields):
    made = setup({"name": "fedmut", **fields})
    return made.federation.method, play(made, rounds).state


def test_the_first_round_sends_the_global_model():
    made = setup("fedmut")
    state = start(made.federation).state
    moment = Moment(0, 0, True, KEY)
    message = made.federation.method.dispatch(made.federation.task, state, Cohort((0, 1), {}, 8), moment)
    assert message.model is state.model


@pytest.mark.parametrize(("rounds", "c"), [(1, 0.9), (2, 0.8), (10, 0.0), (11, 0.0)])
def test_the_mean_of_the_models_and_its_acceleration(rounds, c):
    method, state = after(rounds, alpha=0.5, acc=1.0, bound=10)
    state, models = sent_in(rounds, state, method)
    for name, value in state.model.params.items():
        delta = value - state.before[name]
        mean = torch.stack([model.params[name] for model in models]).mean(0)
        torch.testing.assert_close(mean - value, 0.5 * c / 2 * delta, rtol=1e-9, atol=1e-12)
        steps = {round(float(((m.params[name] - value) / delta).median()), 6) for m in models}
        assert steps == {0.5, round(0.5 * (c - 1), 6)}


def test_buffers_are_not_mutated():
    made = setup("fedmut", task={"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"})
    state = play(made, 2).state
    state, models = sent_in(2, state, made.federation.method, 4)
    assert all(model.buffers is state.model.buffers for model in models)
    assert float(state.model.buffers["1.running_var"].min()) > 0


def test_equal_curvatures_make_it_fedavg():
    """Local training is then the same linear map for all, and mutations that cancel before cancel after."""
    clients = Quadratics(uneven=0.0)
    fedmut, fedavg = (clients.play(FedMut(alpha, acc=0.0).method(), 30).models for alpha in (4.0, 0.0))
    assert np.allclose(fedmut, fedavg, rtol=1e-9, atol=1e-12)
    uneven = [Quadratics().play(FedMut(alpha, acc=0.0).method(), 30).models for alpha in (4.0, 0.0)]
    assert not np.allclose(*uneven, rtol=1e-3)


def test_bad_values_are_refused():
    with pytest.raises(SpecError, match="alpha must be >= 0, got -1"):
        FedMut(alpha=-1.0)
    with pytest.raises(SpecError, match=r"acc must be in \[0, 1\], got 2"):
        FedMut(acc=2.0)
    with pytest.raises(SpecError, match="bound must be at least 1, got 0"):
        FedMut(bound=0)
