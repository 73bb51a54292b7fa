from dataclasses import replace

import pytest
import torch
from methods.lossy import Refusing
from toy import KEY, play, setup

from shoal.aggregators.fltrust import levelled, trusted
from shoal.aggregators.matrix import gram
from shoal.core.errors import SpecError, StageError
from shoal.core.types import Cohort, Moment, Weights
from shoal.loop import advance, start


def counted(*rows):
    """How far each update but the first is trusted, which is the server's own."""
    return trusted(gram(torch.tensor(rows, dtype=torch.float64)))


def test_trust_scores_by_hand():
    rows = [2.0, 0.0], [3.0, 4.0], [0.0, 1.0], [-5.0, 0.1], [7.0, 0.0]
    # cosines 0.6, 0, below 0, 1
    assert counted(*rows).tolist() == pytest.approx([0.6 / 1.6, 0.0, 0.0, 1 / 1.6])
    factors = levelled(gram(torch.tensor(rows, dtype=torch.float64)))
    lengths = factors * torch.tensor(rows[1:]).norm(dim=1)
    assert lengths.tolist() == pytest.approx([2.0] * 4)  # all as long as the server's own


def test_the_length_of_an_update_does_not_matter():
    once, more = counted([1.0, 2.0], [2.0, 1.0], [3.0, 1.0]), counted([1.0, 2.0], [2e6, 1e6], [3.0, 1.0])
    torch.testing.assert_close(more, once)


def test_the_opposite_is_ignored_and_with_nobody_to_trust_nothing_moves():
    assert counted([1.0, 2.0], [-1.0, -2.0], [1.0, 2.0]).tolist() == pytest.approx([0.0, 1.0])
    assert counted([1.0, 2.0], [-1.0, -2.0], [0.0, 0.0]).tolist() == [0.0, 0.0]


def test_the_server_has_root_samples_and_no_client_loses_any():
    made, plain = (setup({"name": "fltrust", "root": 32}, selector="all"), setup(selector="all"))
    root = made.federation.task.root(32)
    assert root.count == 32
    assert len(set(root.rows.tolist())) == 32
    assert [made.shards.count(c) for c in range(8)] == [plain.shards.count(c) for c in range(8)]
    assert made.side.task.root is None  # clients do not see them
    assert plain.side.task.root is None


def test_who_does_not_need_root_samples_does_not_ask_for_them():
    def refuses(count):
        raise AssertionError("root samples were asked for")

    federation = setup(selector="all").federation
    federation = replace(federation, task=replace(federation.task, root=refuses))
    advance(federation, start(federation))
    trusting = setup({"name": "fltrust", "root": 32}, selector="all").federation
    with pytest.raises(StageError, match="root samples were asked for"):
        advance(replace(trusting, task=federation.task), start(trusting))


FADING = {"lr": 0.4, "batch": 10**6, "epochs": 1, "schedule": "exponential", "decay": 0.5}


def descent(made, model):
    """The gradient of the loss on all training samples, and its length."""
    params = {name: value.clone().requires_grad_() for name, value in model.params.items()}
    dataset = made.dataset
    loss = made.federation.task.losses(Weights(params, {}), dataset.x_train, dataset.y_train).mean()
    gradients = dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))
    return gradients, torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()


@pytest.mark.parametrize("round", [0, 1, 5])
def test_the_server_trains_at_the_rate_of_the_moments_round(round):
    """One step on all samples: clients' updates become as long as the rate of the round times the slope."""
    made = setup({"name": "fltrust", "root": 320}, local=FADING)
    rule, model = made.federation.method.aggregator, made.federation.task.init(KEY)
    gradients, slope = descent(made, model)
    acc = rule.begin((), model, Cohort((3,), {}, 8))
    down = Weights({name: -7.0 * gradient for name, gradient in gradients.items()}, {})
    acc = rule.fold(acc, 3, model, down, 1.0)
    outcome = rule.finish(made.federation.task, (), acc, Moment(round, 0, True, KEY))
    length = torch.cat([value.flatten() for value in outcome.step.params.values()]).norm()
    assert float(length) == pytest.approx(0.4 * 0.5**round * float(slope), rel=1e-4)
    assert outcome.weights == {3: 1.0}


def test_a_round_without_a_reply_is_a_round_to_the_servers_training_too():
    """Rounds 1 and 3 by hand: one client, who holds what the server holds."""
    made = setup(
        {"name": "fltrust", "root": 320},
        partition={"kind": "iid", "clients": 1},
        selector="all",
        local=FADING,
    )
    federation = replace(made.federation, engine=Refusing(made.federation.engine, 1))
    progress = start(federation)
    for round in range(3):
        before = progress.state.model
        progress, record = advance(federation, progress)
        assert len(record.rejected) == (round == 1)
        gradients, _ = descent(made, before)
        rate = 0.0 if round == 1 else 0.4 * 0.5**round
        for name, value in before.params.items():
            expected = value - rate * gradients[name]
            torch.testing.assert_close(progress.state.model.params[name], expected, rtol=1e-4, atol=1e-6)


def test_those_who_turn_round_get_nothing():
    made = setup(
        {"name": "fltrust", "root": 64},
        selector="all",
        partition={"kind": "iid", "clients": 8},
        attack={"name": "sign_flip", "fraction": 0.25},
    )
    progress, record = advance(made.federation, start(made.federation))
    for client, weight in record.metrics["weights"].items():
        assert (weight == 0) == (client in made.side.attackers)
    assert play(made, 1, progress).round == 2


def test_bad_values_are_refused():
    with pytest.raises(SpecError, match="root must be at least 1, got 0"):
        setup({"name": "fltrust", "root": 0})
    with pytest.raises(SpecError, match="root must be at most 320"):
        setup({"name": "fltrust", "root": 321})
