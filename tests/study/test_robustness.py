"""The metrics of robustness, worked by hand."""

import pytest

from shoal.runs.record import attackers_weight
from shoal.study.robustness import accuracy_summary, degradation, detection, quotient, roc, tolerance


def rounds(*accuracies):
    return [{"round": i, "accuracy": a, "seconds": 2.0} for i, a in enumerate(accuracies, 1)]


def test_the_course_of_a_run():
    found = accuracy_summary(rounds(0.2, 0.77, None, 0.9, 0.8))
    assert found.average == pytest.approx(2.67 / 4)
    assert found.final == 0.8
    assert found.maximum == 0.9
    assert found.spread == pytest.approx(0.274169, abs=1e-6)
    assert (found.rounds_to_max, found.seconds_to_max) == (4, 8.0)
    assert found.convergence_round == 2  # 0.77 >= 0.95 * 0.8
    assert found.converged == pytest.approx((0.77 + 0.9 + 0.8) / 3)


def test_the_course_of_nothing():
    assert accuracy_summary(rounds(None, None)) is None
    assert accuracy_summary([]) is None


def test_clean_against_attacked():
    assert degradation(0.8, 0.6) == pytest.approx(0.2)
    assert tolerance(0.8, 0.6) == pytest.approx(0.75)
    assert tolerance(0.0, 0.6) is None
    assert quotient(0.6, 0.3) == pytest.approx(0.42)


def test_weights():
    shares = attackers_weight({"0": 1.0, "1": 2.0, "2": 1.0}, [1])
    assert shares == {"attackers_weight": 0.5, "honest_weight": 0.5}
    assert attackers_weight({3: 0.5, 4: 0.5}, []) == {"attackers_weight": 0.0, "honest_weight": 1.0}
    assert attackers_weight(None, [1]) == attackers_weight({}, [1]) == attackers_weight({1: 0.0}, [1]) == {}


def test_the_roc_curve():
    """Weights 1 (attacker), 2 (honest), 3 (attacker), 4 (honest): suspecting ever higher weights."""
    found = roc({"0": 1.0, "1": 2.0, "2": 3.0, "3": 4.0}, {0, 2})
    assert found.caught == (0.0, 0.5, 0.5, 1.0, 1.0)
    assert found.alarms == (0.0, 0.0, 0.5, 0.5, 1.0)
    assert roc({"0": 1.0}, {0}) is None
    assert roc({"0": 1.0}, set()) is None


def test_detection():
    """Of the pairs honest, attacker: 3 of 4 in the right order, then a tie; a round without attackers."""
    first = {"weights": {"0": 1.0, "1": 2.0, "2": 3.0, "3": 4.0}, "attackers": [0, 2]}
    second = {"weights": {"0": 0.5, "1": 0.5}, "attackers": [1]}
    assert detection([first]) == pytest.approx(0.75)
    assert detection([first, second, {"weights": {"0": 1.0}, "attackers": []}]) == pytest.approx(0.625)
    assert detection([{"attackers": [1]}]) is None
    assert detection([{"weights": {"0": 1.0, "1": 2.0}}]) is None
