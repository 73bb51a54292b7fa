import pytest
import torch

from shoal.core.key import Key
from shoal.study.reproduce.dsvd_theorem import CLIENTS, HIGH, LOW, SHAPE, Problem, course, theorem

KEY = Key.from_seed(7)


def test_the_losses_are_as_convex_as_the_theorem_assumes():
    problem = Problem.drawn(1.0, KEY)
    values = torch.linalg.eigvalsh(problem.curves)
    assert (float(values[0]), float(values[-1])) == pytest.approx((LOW, HIGH))
    best = problem.optima.mean(0)
    assert problem.gap(best) == 0 < problem.gap(best + 0.1)
    at = best + 1.0  # F - F* by its definition
    away = [x - problem.optima for x in (at, best)]
    total = [float((d * (problem.curves @ d)).sum()) / 2 / CLIENTS for d in away]
    assert problem.gap(at) == pytest.approx(total[0] - total[1])
    assert problem.optima.shape == (CLIENTS, *SHAPE)


def test_full_ranks_and_uniform_weights_have_the_rate_and_truncation_a_floor():
    problem = Problem.drawn(1.0, KEY)
    whole, cut = (course(problem, None, share, 200, KEY) for share in (1.0, 0.2))
    assert whole.gaps[199] < 0.2 * whole.gaps[19]
    assert cut.gaps[199] > 5 * whole.gaps[199]
    assert whole.gaps[199] < whole.bound


def test_the_tables_have_all_rules_and_ranks():
    found = theorem(10, 1, lambda jobs: {})
    assert [len(table.rows) for table in found.tables] == [9, 9]
    assert found.tables[0].columns == ["T = 1", "T = 10", "exponent", "eq. 11"]
