"""What the gate lets through, and what it refuses."""

import bad_replies
import pytest
import torch
from bad_replies import lost, round_with
from toy import same, setup, table

import shoal
from shoal import StageError
from shoal.core.engine import Delivery
from shoal.core.flat import flat
from shoal.core.gate import Gate, Like, Some, contents, mismatch
from shoal.core.types import ModelMessage, ModelUpdate, PerClient, Reply, Weights
from shoal.loop import advance, start
from shoal.methods.fedavg import FedAvg


@pytest.fixture(scope="module")
def round_without_it():
    return round_with(lost)


@pytest.mark.parametrize("kind", bad_replies.KINDS)
def test_a_bad_reply_is_as_good_as_none(kind, round_without_it):
    progress, record = round_with(lambda delivery: [bad_replies.KINDS[kind](delivery)])
    absent, without = round_without_it
    assert [client for client, _ in record.rejected] == [record.cohort[0]]
    assert record.rejected[0][1]
    assert same(progress.state, absent.state)
    assert record.metrics == without.metrics


def test_there_are_fifty_kinds():
    assert len(bad_replies.KINDS) >= 50


def test_a_reply_counts_once():
    honest, _ = round_with(lambda delivery: [delivery])
    twice, record = round_with(lambda delivery: [delivery, delivery])
    assert same(twice.state, honest.state)
    assert record.rejected == ((record.cohort[0], "it has answered already"),)


@pytest.mark.parametrize("stranger", [7, 99, -1])
def test_nobody_answers_who_was_not_asked(stranger):
    honest, plain = round_with(lambda delivery: [delivery])
    assert stranger not in plain.cohort
    tampered, record = round_with(lambda delivery: [delivery, delivery._replace(clients=(stranger,))])
    assert same(tampered.state, honest.state)
    assert record.rejected == ((stranger, "it is not in this cohort"),)


def measured(metrics):
    delivery = block_of(torch.ones(2, 3))
    return delivery._replace(reply=delivery.reply._replace(metrics=metrics))


def block_of(values, weights=(5.0, 5.0)):
    update = Weights({"w": values}, {})
    reply = Reply(ModelUpdate(update), torch.tensor(weights, dtype=torch.float64), {})
    sent = ModelMessage(Weights({"w": torch.zeros(3)}, {}))
    return Delivery((1, 2), (0, 0), sent, reply, "", 0, 0, stacked=True)


@pytest.mark.parametrize(
    ("delivery", "passes"),
    [
        (block_of(torch.ones(2, 3)), True),
        (block_of(torch.ones(2, 4)), False),
        (block_of(torch.ones(3, 3)), False),
        (block_of(torch.tensor([[1.0, 2, 3], [1, torch.nan, 3]])), False),
        (block_of(torch.tensor([[1.0, 2, 3], [1, 2, 3e38]])), False),
        (block_of(torch.ones(2, 3), (5.0, 6.0)), False),
        (block_of(torch.ones(2, 3))._replace(clients=(1, 1)), False),
        (block_of(torch.ones(2, 3))._replace(clients=(1, 3)), False),
        (block_of(torch.ones(2, 3))._replace(version=(1, 0)), False),
        (block_of(torch.ones(2, 3))._replace(reason="late"), False),
        (measured({"loss": torch.tensor([1.0, 2.0])}), True),
        (measured({"loss": torch.tensor([1.0])}), False),
        (measured({"loss": 1.0}), False),
        (measured({3: torch.tensor([1.0, 2.0])}), False),
        (measured(None), False),
    ],
)
def test_a_block_passes_at_once_or_is_looked_at_singly(delivery, passes):
    gate = Gate(FedAvg(), None, {1: 5, 2: 5}, (0, 0))
    assert gate.block(delivery) == passes
    if passes:
        assert gate.known(1, (0, 0)) == "it has answered already"
        assert not gate.block(delivery)


@pytest.mark.parametrize(
    ("numbers", "passes"), [((1.0, 2.0), True), ((1.0,), False), ((1.0, torch.nan), False)]
)
def test_rows_that_are_computed_on_access_are_looked_at_one_by_one(numbers, passes):
    model = block_of(torch.ones(2, 3)).sent.model
    rows = [Weights({"w": torch.full((3,), number)}, {}) for number in numbers]
    reply = Reply(ModelUpdate(PerClient(rows)), torch.tensor([5.0, 5.0], dtype=torch.float64), {})
    reason = contents(ModelMessage(model), reply, {"update": model}, 2)
    assert (reason == "") is passes


def test_one_bad_reply_in_a_block_leaves_the_others():
    def spoilt(made):
        engine = made.federation.engine

        class Spoiling:
            def exchange(self, work, cohort, message, key):
                for delivery in engine.exchange(work, cohort, message, key):
                    assert delivery.stacked
                    next(iter(delivery.reply.payload.update.params.values()))[0] = torch.nan
                    yield delivery._replace(checked=())

            def __getattr__(self, name):
                return getattr(engine, name)

        object.__setattr__(made.federation, "engine", Spoiling())
        return advance(made.federation, start(made.federation))

    progress, record = spoilt(setup(engine={"mode": "block"}))
    absent, _ = round_with(lost)
    assert record.rejected == ((record.cohort[0], "its numbers are not finite"),)
    assert same(progress.state, absent.state)


@pytest.mark.parametrize("mode", ["serial", "block"])
@pytest.mark.parametrize("method", ["WritesToItsUpdate", "WritesToTheUpdateOfABlock"])
def test_an_update_that_a_method_writes_to_is_looked_at_again(method, mode):
    made = setup(f"users:{method}", engine={"mode": mode})
    _, record = advance(made.federation, start(made.federation))
    assert {reason for _, reason in record.rejected} == {"its numbers are larger than 1.8e+19"}
    assert len(record.rejected) == len(record.cohort)


def test_replies_are_held_against_what_the_method_expects():
    wanted = {"a": Like((2,), torch.int64, minimum=0), "b": Some({"x": torch.zeros(1), "y": torch.zeros(2)})}
    fine = {"a": torch.tensor([0, 3]), "b": {"y": torch.ones(2)}}
    assert mismatch(fine, wanted, "it") == ""
    assert "below 0" in mismatch({**fine, "a": torch.tensor([-1, 3])}, wanted, "it")
    assert mismatch({**fine, "b": {}}, wanted, "it") == ""
    assert "has an extra z" in mismatch({**fine, "b": {"z": torch.ones(2)}}, wanted, "it")
    odd = Like((), torch.float32, finite=False)
    assert mismatch(torch.tensor(torch.inf), odd, "loss") == ""


def test_layers_in_one_vector_are_held_against_the_model():
    model = flat({"x": torch.zeros(1), "y": torch.zeros(2), "z": torch.zeros(3)})
    wanted = Some(model)
    assert mismatch(flat({"z": torch.ones(3), "x": torch.ones(1)}), wanted, "it") == ""
    assert "not finite" in mismatch(flat({"y": torch.tensor([1.0, torch.nan])}), wanted, "it")
    assert "has the shape (3,), not (2,)" in mismatch(flat({"y": torch.ones(3)}), wanted, "it")
    assert "is float64, not float32" in mismatch(flat({"y": torch.ones(2).double()}), wanted, "it")
    assert "has an extra w" in mismatch(flat({"w": torch.ones(2)}), wanted, "it")
    rows = model.layout.tree(torch.ones(4, 6))
    assert mismatch(rows.part(["x", "y"]), wanted, "it", clients=4) == ""
    assert mismatch(rows.part(["x", "y"]), wanted, "it", clients=5)


def test_a_round_with_too_few_replies_is_void():
    """The round is void: nothing is taken in, remembered or observed, and the record says why."""

    def silent(delivery):
        return lost(delivery)

    void, record = round_with(silent, "scaffold", faults={"min_replies": 4})
    assert same(void.state, start(setup("scaffold").federation).state)
    assert not void.accepted
    reasons = {reason for _, reason in record.rejected}
    assert reasons == {"lost", "too few replies: 3, but min_replies is 4"}
    assert "clients.train_loss" not in record.metrics
    enough, _ = round_with(silent, "scaffold", faults={"min_replies": 3})
    assert len(enough.accepted) == 3


@pytest.mark.parametrize("mode", ["serial", "block", "workers"])
def test_an_error_at_a_client_stops_the_run_or_is_a_missing_reply(mode):
    engine = {"mode": mode, "workers": 2}
    whole = setup("users:BreaksAtSomeClients", engine=engine)
    victim = advance(whole.federation, start(whole.federation))[1].cohort[1]
    fragile = {"name": "users:BreaksAtSomeClients", "breaks_at": whole.shards.count(victim)}
    strict = setup(fragile, engine=engine)
    with pytest.raises(
        StageError, match=f"update of client {victim} failed in round 1: OSError: the disk is gone"
    ):
        advance(strict.federation, start(strict.federation))
    tolerates_errors = setup(fragile, engine=engine, faults={"on_error": "refuse"})
    progress, record = advance(tolerates_errors.federation, start(tolerates_errors.federation))
    for made in (whole, strict, tolerates_errors):
        made.federation.engine.close()
    assert record.rejected == ((victim, "OSError: the disk is gone"),)
    absent, _ = round_with(lost, "users:BreaksAtSomeClients", place=1)
    assert same(progress.state, absent.state)


def test_clients_numbers_have_names_of_their_own():
    """One that reports an accuracy of 0.99 does not change the server's."""

    def boast(self, task, memory, message, data, context):
        reply = update(self, task, memory, message, data, context)
        return reply[0], reply[1]._replace(
            metrics={"accuracy": torch.tensor(0.99), "round": torch.tensor(7.0)}
        )

    update = FedAvg.client_update
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FedAvg, "client_update", boast)
        boasted = shoal.run(table(rounds=2, evaluate={"every": 1}))
    honest = shoal.run(table(rounds=2, evaluate={"every": 1}))
    assert boasted.final_accuracy == honest.final_accuracy
    assert boasted.records[-1]["clients.accuracy"] == pytest.approx(0.99)
    assert boasted.records[-1]["round"] == 2


def test_clients_metrics_are_averaged_by_samples():
    federation = setup(selector="all").federation

    def told(delivery, value):
        metrics = {"age": torch.tensor(value)}
        return delivery._replace(reply=delivery.reply._replace(metrics=metrics))

    class Telling:
        def exchange(self, work, cohort, message, key):
            for delivery in engine.exchange(work, cohort, message, key):
                for single in delivery.singles():
                    yield told(single, float("nan") if single.clients[0] == 0 else float(single.clients[0]))

        def __getattr__(self, name):
            return getattr(engine, name)

    engine = federation.engine
    object.__setattr__(federation, "engine", Telling())
    _, record = advance(federation, start(federation))
    samples = dict(zip(range(8), engine.samples(range(8)), strict=True))
    others = [client for client in range(8) if client]
    wanted = sum(samples[c] * c for c in others) / sum(samples[c] for c in others)
    assert record.metrics["clients.age"] == pytest.approx(wanted, rel=1e-12)


def test_a_model_that_is_no_longer_finite_ends_the_run(monkeypatch, tmp_path):
    finish = FedAvg.finish

    def exploding(self, task, state, acc, moment):
        state, metrics = finish(self, task, state, acc, moment)
        if moment.round == 2:
            state.model.params[next(iter(state.model.params))].fill_(torch.inf)
        return state, metrics

    tables = table(rounds=5, evaluate={"every": 1})
    with monkeypatch.context() as patch:
        patch.setattr(FedAvg, "finish", exploding)
        with pytest.raises(StageError, match="FedAvg is no longer finite after round 3, with 4 replies"):
            shoal.run(tables, tmp_path / "run")
    resumed = shoal.resume(tmp_path / "run", report=False)  # the last checkpoint is that of round 2
    assert resumed.weights_sha256 == shoal.run(tables).weights_sha256


def test_the_gate_is_the_same_for_users_methods():
    """Nothing is known of their payload but that `update` is like the model sent."""
    progress, record = round_with(
        lambda delivery: [bad_replies.KINDS["transposed"](delivery)], "users:RandomlyWeighted"
    )
    assert "has the shape" in record.rejected[0][1]
    assert same(progress.state, round_with(lost, "users:RandomlyWeighted")[0].state)
