"""What fsi and pso share: which losses are compared, and what is done about those that are none."""

import math
from dataclasses import replace

import pytest
import torch
from toy import KEY, play, same, setup

from shoal.core.engine import Work
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, Moment, Reply
from shoal.loop import advance, start
from shoal.parts.swarm import SwarmReply

SWARMS = pytest.mark.parametrize("name", ["fsi", "pso"])
EVERYONE = Cohort((0, 1, 2, 3), {}, 4)
MOMENT = Moment(0, 0, False, KEY)
LINE = {"dataset": "toy:line", "model": "linear"}
LOGISTIC = {"dataset": "toy:blobs", "model": "logistic_ova"}


def swarm(name, task=LINE, **fields):
    method = {"name": name, "epochs": 5, "initial_range": 1.0, **fields}
    return setup(method, task=task, partition={"kind": "iid", "clients": 4}, selector="all")


def leg(made, state, cohort=EVERYONE, lost=(), lie=lambda client, reply: reply):
    """One exchange, from which the replies of some get lost, and in which some may lie."""
    federation = made.federation
    message = federation.method.dispatch(federation.task, state, cohort, MOMENT)
    acc = federation.method.begin(state, cohort)
    for delivery in federation.engine.exchange(Work("update", 0, 0, {}), cohort, message, KEY):
        (client,) = delivery.clients
        if client not in lost:
            acc = federation.method.fold(acc, client, delivery.sent, lie(client, delivery.reply))
    return message, *federation.method.finish(federation.task, state, acc, MOMENT)


def begun(made, epochs=3):
    state = start(made.federation).state
    for _ in range(epochs):
        _, state, _ = leg(made, state)
    return state


@SWARMS
def test_the_first_round_has_an_exchange_more(name):
    made = swarm(name)
    state = start(made.federation).state
    assert len(made.federation.method.legs(state, EVERYONE, MOMENT)) == 6
    progress, _ = advance(made.federation, start(made.federation))
    assert progress.state.epoch == 6
    assert len(made.federation.method.legs(progress.state, EVERYONE, MOMENT)) == 5


@SWARMS
def test_only_candidates_travel_while_the_same_clients_answer(name):
    made = swarm(name)
    state = begun(made)
    message, state, _ = leg(made, state)
    assert message.positions == ()
    message, state, _ = leg(made, state, Cohort((0, 2), {}, 4))
    assert same(message.positions, begun(made, 4).particles)
    assert state.clients == (0, 2)
    message, state, _ = leg(made, state, Cohort((0, 2), {}, 4))
    assert message.positions == ()


@SWARMS
@pytest.mark.parametrize("task", [LINE, LOGISTIC], ids=["regression", "logistic"])
def test_remembered_losses_are_those_that_would_be_told_again(name, task):
    """A server that always asks for both gets the same trajectory, to the bit."""
    made = swarm(name, task)
    remembering, asking = begun(made, 1), begun(made, 1)
    for _ in range(30):
        _, remembering, _ = leg(made, remembering)
        message, asking, _ = leg(made, asking._replace(clients=()))
        assert isinstance(message.positions, torch.Tensor)
        assert same(asking, remembering)


@SWARMS
def test_when_a_client_drops_out_nothing_moves_and_both_are_asked_for(name):
    made = swarm(name)
    before = begun(made)
    _, state, metrics = leg(made, before, lost=(2,))
    assert same(state, before._replace(clients=()))
    assert metrics["best_loss"] == float(before.losses.min()) / before.samples
    message, state, _ = leg(made, state, lost=(2,))
    assert same(message.positions, before.particles)
    assert state.clients == (0, 1, 3)
    assert state.epoch == before.epoch + 1
    _, state, _ = leg(made, state)
    assert state.clients == (0, 1, 2, 3)


@SWARMS
def test_losses_of_different_clients_are_never_compared(name):
    """With changing cohorts, a particle moves exactly when the cohort of the day finds it better."""
    made = swarm(name, particles=6)
    federation, state = made.federation, begun(made)
    for ids in [(0, 1), (2, 3), (0, 3), (1,), (0, 1, 2, 3)]:
        cohort = Cohort(ids, {}, 4)
        old, new = (
            sum(
                federation.method.client_update(
                    federation.task, (), message, made.side.data.train(c, None, KEY, full=False), None
                )[1].payload.losses
                for c in ids
            )
            for message in (
                federation.method.dispatch(
                    federation.task, state._replace(candidates=points), EVERYONE, MOMENT
                )
                for points in (state.particles, state.candidates)
            )
        )
        _, after, _ = leg(made, state, cohort)
        assert same(after.losses, torch.minimum(old, new))
        assert same(after.particles, torch.where(new < old, state.candidates, state.particles))
        state = after


@SWARMS
@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_rejects_its_particle_and_names_the_client(name, strange):
    made = swarm(name, particles=6)
    state = begun(made)

    def lie(client, reply):
        if client != 2:
            return reply
        losses = reply.payload.losses.clone()
        losses[0, 4] = strange
        return reply._replace(payload=reply.payload._replace(losses=losses))

    _, honest, _ = leg(made, state)
    _, found, metrics = leg(made, state, lie=lie)
    for after, expected in ((found.particles, honest.particles), (found.losses, honest.losses)):
        assert torch.equal(after[..., :4], expected[..., :4])
    assert torch.equal(found.particles[..., 4], state.particles[..., 4])
    assert torch.equal(found.losses[..., 4], state.losses[..., 4])
    assert metrics["nonfinite_from"] == [2]
    assert leg(made, found)[2]["nonfinite_from"] == [2]
    assert "nonfinite_from" not in leg(made, state)[2]


@SWARMS
def test_a_client_that_forgets_the_positions_cannot_make_the_swarm_forget_its_best(name):
    made = swarm(name)
    state = begun(made)._replace(clients=())

    def lie(client, reply):
        payload = reply.payload
        if client == 0:
            payload = payload._replace(position_losses=torch.full_like(payload.losses, math.nan))
        return reply._replace(payload=payload)

    _, found, metrics = leg(made, state, lie=lie)
    assert same(found, state._replace(nonfinite=(0,)))
    assert metrics["nonfinite_from"] == [0]


@SWARMS
def test_a_position_without_a_loss_stays(name):
    made = swarm(name, particles=6)
    state = begun(made)._replace(clients=())

    def lie(client, reply):
        losses = reply.payload.position_losses.clone()
        losses[0, 3] = math.nan
        return reply._replace(payload=reply.payload._replace(position_losses=losses))

    _, found, _ = leg(made, state, lie=lie)
    assert torch.equal(found.particles[..., 3], state.particles[..., 3])


@SWARMS
def test_the_loop_lets_strange_losses_through(name):
    """By a whole round: the attacker is not rejected, but named, and the swarm does not move."""

    class Lying:
        def __init__(self, engine):
            self._engine = engine

        def walk(self, walk):
            for _ in walk.legs:
                walk.step()

        def exchange(self, work, cohort, message, key):
            for delivery in self._engine.exchange(work, cohort, message, key):
                if delivery.clients == (3,):
                    none = SwarmReply(torch.full_like(delivery.reply.payload.losses, math.nan), ())
                    delivery = delivery._replace(reply=Reply(none, delivery.reply.weight, {}))
                yield delivery

        def __getattr__(self, name):
            return getattr(self._engine, name)

    made = swarm(name)
    progress = play(made, 1)
    federation = replace(made.federation, engine=Lying(made.federation.engine))
    after, record = advance(federation, progress)
    assert record.rejected == ()
    assert record.metrics["nonfinite_from"] == [3]
    assert same(after.state.particles, progress.state.particles)


@SWARMS
def test_recorded_numbers_are_means_over_samples_and_problems(name):
    made = swarm(name, LOGISTIC)
    progress = play(made, 2)
    _, state, metrics = leg(made, progress.state)
    task, dataset = made.federation.task, made.dataset
    model = made.federation.method.model(state)
    assert all(value.dtype == torch.float64 for value in model.params.values())
    losses = task.losses(model, dataset.x_train, dataset.y_train)
    assert metrics["best_loss"] == pytest.approx(float(losses.mean()), rel=1e-12)
    assert metrics["problem_losses"] == pytest.approx(losses.mean(0).tolist(), rel=1e-12)
    if name == "fsi":
        assert metrics["step_size"] == float(state.step_sizes.mean())


@SWARMS
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"particles": 1}, "particles must be at least 2, got 1"),
        ({"initial_range": 0.0}, "initial_range must be > 0, got 0"),
        ({"loss": "papers"}, "method.loss must be one of stable, paper"),
    ],
)
def test_bad_fields_are_refused(name, fields, message):
    with pytest.raises(SpecError, match=message):
        swarm(name, **fields)


@SWARMS
def test_swarms_that_do_not_suit_the_model_are_refused(name):
    with pytest.raises(SpecError, match="100000000 particles of 2 parameters take more than a gigabyte"):
        start(swarm(name, particles=10**8).federation)
    for task in (LINE, {"dataset": "toy:blobs", "model": "linear"}):
        with pytest.raises(SpecError, match='loss = "paper" is only for one-versus-all linear models'):
            start(swarm(name, task, loss="paper").federation)


@SWARMS
def test_a_lossy_codec_is_worth_a_warning(name):
    with pytest.warns(UserWarning, match="clients evaluate rounded candidates"):
        setup(name, codec="float16")
