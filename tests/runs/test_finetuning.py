"""Clients' models after a few local epochs more, at the end of a run."""

from dataclasses import dataclass

import numpy as np
import pytest
from toy import BATCH_NORM, table

import shoal
from shoal import SpecError
from shoal.core.data import Batching, Partition
from shoal.core.types import Context
from shoal.data.shards import DealtShards
from shoal.runs.evaluation import Evaluator
from shoal.runs.runner import one_thread

SKEWED = {"kind": "shards", "clients": 8, "classes": 2}
NAMES = ("finetuned_mean_client_accuracy", "finetuned_worst_client_accuracy")


def tuned(epochs=3, method="fedavg", **changes):
    evaluate = {"every": 1, "finetune": epochs, **changes.pop("evaluate", {})}
    return shoal.run(table(method, partition=SKEWED, evaluate=evaluate, **changes))


@pytest.mark.parametrize("name", ["fedavg", "local", "scaffold", "fedbn", "dsvd"])
def test_it_changes_no_other_number(name):
    with_it, without = tuned(3, name, task=BATCH_NORM), tuned(0, name, task=BATCH_NORM)
    *before, last = with_it.records
    added = {key: last.pop(key) for key in list(last) if key.startswith("finetuned_")}
    assert added.keys() == {*NAMES, "finetuned_client_accuracy_std", "finetuned_own_accuracy"}
    for one, other in zip([*before, last], without.records, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert with_it.weights_sha256 == without.weights_sha256
    assert with_it.memory_sha256 == without.memory_sha256
    assert {name: with_it.summary[name] for name in NAMES} == {name: added[name] for name in NAMES}


def test_every_client_trains_the_runs_solver_on_its_own_samples():
    result = tuned(4, {"name": "fedprox", "mu": 5.0}, local={"lr": 0.1, "batch": 8, "momentum": 0.5})
    made, task = result.setup, result.setup.federation.task
    method, data = made.federation.method, made.side.data
    model = method.model(result.progress.state)
    found = []
    for client in range(8):
        key = made.federation.key.fold("evaluate", 3).fold("client", client)
        own = data.train(client, Batching(8, 4), key.fold("batches"), full=False)
        with one_thread():
            trained = method.local.train(task, model, own, Context(2, 0, {}, key))  # without FedProx's term
        found.append(float(Evaluator()(task, trained.weights, data.test(client))["accuracy"]))
    assert result.summary[NAMES[0]] == np.mean(found)
    assert result.summary[NAMES[1]] == min(found)
    assert result.summary[NAMES[0]] > result.mean_client_accuracy


def test_a_regression_has_errors():
    line = {"task": {"dataset": "toy:line", "model": "linear"}, "partition": {"kind": "iid", "clients": 8}}
    summary = shoal.run(table(evaluate={"every": 0, "finetune": 2}, **line)).summary
    assert summary["finetuned_mean_client_mse"] <= summary["finetuned_worst_client_mse"]
    assert summary["finetuned_mean_client_mse"] < summary["mean_client_mse"]


def test_a_run_that_reaches_its_goal_is_finetuned_too():
    result = tuned(1, rounds=50, evaluate={"stop_at": 0.5})
    assert result.rounds < 50
    assert NAMES[0] in result.records[-1]
    assert not any(NAMES[0] in record for record in result.records[:-1])


def test_a_method_without_training_is_refused():
    with pytest.raises(SpecError, match="finetune = 5 needs a method whose clients train, but those of fsi"):
        shoal.run(table("fsi", evaluate={"every": 0, "finetune": 5}))


@pytest.mark.parametrize(
    ("evaluate", "message"),
    [
        ({"finetune": -1}, "finetune must be at least 0, got -1"),
        (
            {"finetune": 5, "clients": 0},
            "finetune = 5 is for the clients that are evaluated, but clients = 0",
        ),
    ],
)
def test_settings_that_make_no_sense(evaluate, message):
    with pytest.raises(SpecError, match=message):
        shoal.run(table(evaluate=evaluate))


@dataclass(frozen=True)
class Lonely(Partition):
    """Client 7 has a single sample, too little for BatchNorm."""

    def split(self, dataset, key):
        owner = np.arange(len(dataset.y_train)) % 7
        owner[0] = 7
        return DealtShards.by_owner(owner, 8, key)


def test_a_client_that_cannot_train_is_judged_as_it_is():
    partition = {"kind": f"{__name__}:Lonely"}
    tables = table(rounds=1, partition=partition, task=BATCH_NORM, evaluate={"every": 0, "finetune": 1})
    found = shoal.run(tables)
    alone = float(found.summary["worst_client_accuracy"])
    assert found.summary[NAMES[0]] > found.mean_client_accuracy
    assert found.summary[NAMES[1]] >= alone
