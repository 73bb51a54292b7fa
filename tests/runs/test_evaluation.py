import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
from toy import KEY, setup, table

import shoal
from shoal.core.key import Key
from shoal.data.client_data import TEST_SAMPLES, Simulated
from shoal.data.partitions import PARTITIONS
from shoal.metrics import fairness, measures
from shoal.runs.evaluation import Evaluator

ALL = ("accuracy", "balanced_accuracy", "f1", "auc")


@pytest.mark.parametrize("classes", [2, 5])
def test_measures_agree_with_scikit_learn(classes):
    rng = KEY.numpy()
    y = rng.choice(classes, 200, p=rng.dirichlet(np.ones(classes)))
    scores = np.round(rng.dirichlet(np.ones(classes), size=200), 1)  # rounded, so that scores tie
    found = measures(scores, y, ALL)
    predicted = scores.argmax(1)
    assert found["accuracy"] == pytest.approx((predicted == y).mean())
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y, predicted))
    average = "binary" if classes == 2 else "macro"
    assert found["f1"] == pytest.approx(f1_score(y, predicted, average=average))
    one_vs_rest = (
        roc_auc_score(y, scores[:, 1])
        if classes == 2
        else np.mean([roc_auc_score(y == c, scores[:, c]) for c in range(classes)])
    )
    assert found["auc"] == pytest.approx(one_vs_rest)


def test_measures_on_the_edge():
    one_class = measures(np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1]), ALL)
    assert one_class["balanced_accuracy"] == 0.5
    assert np.isnan(one_class["auc"])
    diverged = measures(np.full((4, 3), np.nan), np.array([0, 1, 2, 2]), ALL)
    assert np.isnan(diverged["auc"])
    assert set(measures(np.eye(2), np.array([0, 1]), ())) == {"accuracy"}


def test_fairness_by_hand():
    judged = [{"accuracy": torch.tensor(v / 20)} for v in range(20)]
    found = fairness(judged, "accuracy")
    assert found["mean_client_accuracy"] == pytest.approx(9.5 / 20)
    assert found["worst_client_accuracy"] == pytest.approx(0.5 / 20)  # two of twenty
    assert found["client_accuracy_std"] == pytest.approx(np.std(np.arange(20) / 20))
    errors = fairness([{"mse": torch.tensor(v)} for v in (1.0, 5.0, 2.0)], "mse")
    assert errors["worst_client_mse"] == 5.0


def test_test_samples_come_in_the_proportions_of_a_clients_labels():
    made = setup()
    for client in range(8):
        own = made.side.data.train(client, None, KEY, full=False).label_counts.double()
        dealt = made.side.data.test(client)
        total = len(dealt.rows)
        assert 0 < total <= TEST_SAMPLES
        assert (dealt.label_counts.double() / total - own / own.sum()).abs().max() < 1 / total
        assert len(set(dealt.rows.tolist())) == len(dealt.rows)


def test_a_sites_own_test_samples_are_its_own():
    made = setup(
        task={"dataset": "toy:quadratics", "model": "toy:scalar"}, partition="natural", selector="all"
    )
    assert [made.side.data.test(client).rows.tolist() for client in (0, 1)] == [[0], [1]]


def test_a_regression_deals_any_test_samples():
    made = setup(task={"dataset": "toy:line", "model": "linear"}, partition={"kind": "iid", "clients": 8})
    assert len(made.side.data.test(3).rows) == 40
    result = shoal.run(
        table(
            task={"dataset": "toy:line", "model": "linear"},
            partition={"kind": "iid", "clients": 8},
            rounds=20,
            evaluate={"every": 1},
        )
    )
    assert result.final_mse < 0.01
    assert result.final_accuracy is None
    assert result.summary["worst_client_mse"] >= result.summary["mean_client_mse"]
    assert result.records[0]["mse"] > result.final_mse


def test_a_million_clients_are_judged_by_a_fixed_sample():
    made = setup()
    shards = PARTITIONS["synthetic"](clients=10**6, samples=5).split(made.dataset, Key.from_seed(0))
    holdings = Simulated(made.dataset, shards, KEY)
    assert len(holdings.test(999_999).rows) > 0
    tables = table(
        partition={"kind": "synthetic", "clients": 1000, "samples": 5}, evaluate={"every": 1, "clients": 20}
    )
    assert shoal.run(tables).mean_client_accuracy is not None


def test_the_global_model_is_judged_on_the_whole_test_set():
    result = shoal.run(table(rounds=5))
    dataset = setup().dataset
    with torch.no_grad():
        outputs = result.model()(dataset.x_test)
    assert result.final_accuracy == pytest.approx(
        (outputs.argmax(1) == dataset.y_test).double().mean().item()
    )


def test_nobody_asked_nobody_judged():
    result = shoal.run(table(evaluate={"every": 1, "clients": 0}))
    assert result.mean_client_accuracy is None
    assert result.final_accuracy is not None


def test_clients_of_one_model_are_judged_as_if_each_were_alone():
    made = setup()
    task, model = made.federation.task, made.federation.task.init(KEY)
    shared = Evaluator()
    for client in range(8):
        data = made.side.data.test(client)
        together, alone = shared(task, model, data), Evaluator()(task, model, data)
        assert together["accuracy"] == alone["accuracy"]
        torch.testing.assert_close(together["loss"], alone["loss"])
    other = task.init(KEY.fold(1))
    data = made.side.data.test(0)
    torch.testing.assert_close(shared(task, other, data)["loss"], Evaluator()(task, other, data)["loss"])
