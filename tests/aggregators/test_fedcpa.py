import numpy as np
import pytest
import torch
from toy import KEY, setup

from shoal.aggregators.aggregator import moved
from shoal.aggregators.fedcpa import CriticalParameters, critical, likeness, normality
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, Moment, Weights
from shoal.loop import advance, start


def test_the_most_and_the_least_important():
    most, least = critical(np.array([5.0, 0.0, 3.0, 0.0, 9.0, 1.0, 0.0, 2.0]), 0.25)
    assert most.places.tolist() == [0, 4]
    assert most.values.tolist() == [5.0, 9.0]
    assert least.places.tolist() == [1, 3]  # of equals the first


def test_likeness_by_hand():
    models = [
        critical(np.array(values, np.float64), 0.375)
        for values in ([9, 8, 7, 4, 4, 3, 2, 1], [9, 8, 4, 7, 4, 3, 2, 1], [1, 2, 3, 4, 4, 7, 8, 9])
    ]
    near, same, far = likeness(models, [(0, 1), (0, 0), (0, 2)])
    # tops {0, 1, 2} and {0, 1, 3}: two of four in common, perfectly correlated; bottoms equal
    assert near == pytest.approx(np.mean([1 + 2 / 4, 1 + 1]))
    assert same == pytest.approx(2.0)
    assert far == pytest.approx(0.5)  # nothing in common: correlation 0 counts 0.5
    assert likeness(models[:1], []).tolist() == []


def test_normality_by_hand():
    found = normality(torch.tensor([0.0, 0.5, 0.3, 0.4, 1.0]).double())
    expected = [0.0, 0.5, 0.0, np.log(0.4 / 0.6) + 0.5, 1.0]
    assert found.tolist() == pytest.approx(expected)
    assert normality(torch.full((3,), 2.0)).tolist() == [1.0] * 3


def test_equal_updates_give_that_update():
    rule = CriticalParameters(share=0.1)
    model = Weights({"w": torch.ones(4, 5)}, {})
    acc = rule.begin(rule.init(model), model, Cohort((0, 1, 2), {}, 3))
    step = torch.from_numpy(KEY.numpy().normal(size=(4, 5))).float()
    for client in range(3):
        acc = rule.fold(acc, client, model, Weights({"w": step}, {}), 1.0)
    outcome = rule.finish(None, rule.init(model), acc, Moment(0, 0, True, KEY))
    torch.testing.assert_close(outcome.step.params["w"].float(), step)
    torch.testing.assert_close(moved(model, outcome.step).params["w"], model.params["w"] + step)
    assert outcome.weights == pytest.approx(dict.fromkeys(range(3), 1 / 3))
    assert outcome.state.before is model  # what the next round's change is measured from


def test_noise_is_not_normal():
    made = setup(
        {"name": "fedcpa", "share": 0.1},
        selector="all",
        partition={"kind": "iid", "clients": 8},
        attack={"name": "gaussian", "fraction": 0.25, "sigma": 2.0},
    )
    _, record = advance(made.federation, start(made.federation))
    weights, liars = record.metrics["weights"], made.side.attackers
    honest = np.mean([weight for client, weight in weights.items() if client not in liars])
    assert np.mean([weights[client] for client in liars]) < 0.5 * honest


def test_a_bad_share_is_refused():
    with pytest.raises(SpecError, match=r"share must be in \(0, 0.5\], got 0.6"):
        setup({"name": "fedcpa", "share": 0.6})
