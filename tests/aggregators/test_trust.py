import pytest
import torch
from toy import KEY

from shoal.aggregators.dsvd import copies, quantile, shortened, softmax_weights, trusted, unusual
from shoal.aggregators.similarity import Similarities


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_quantiles_of_values_that_count():
    values = doubles(3.0, 1.0, 2.0)
    assert quantile(values, torch.ones(3), 0.5) == 2.0
    assert quantile(values, doubles(1.0, 1.0, 0.0), 0.5) == 2.0  # between 1 and 3
    assert quantile(values, doubles(8.0, 1.0, 1.0), 0.5) == pytest.approx(2 + (0.5 - 0.15) / 0.45)
    assert quantile(values, torch.ones(3), 0.0) == 1.0
    assert quantile(values, torch.ones(3), 1.0) == 3.0
    assert quantile(doubles(5.0), torch.ones(1), 0.84) == 5.0
    assert quantile(values, torch.zeros(3), 0.5) == 0.0


def test_copies_are_counted_once_unless_they_are_the_majority():
    apart = torch.ones(7, 7, dtype=torch.float64).fill_diagonal_(0)
    assert copies(apart).sum(1).tolist() == [1.0] * 7
    apart[:3, :3] = 0
    assert copies(apart).sum(1).tolist() == [3.0] * 3 + [1.0] * 4
    apart[:2, :2] = 0.25  # half of NEAR times the usual distance
    apart.fill_diagonal_(0)
    assert copies(apart)[0, 1] == 0.5
    majority = torch.ones(7, 7, dtype=torch.float64)
    majority[:5, :5] = 0
    assert copies(majority.fill_diagonal_(0)).sum(1).tolist() == [1.0] * 7


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_clients_are_no_copies(n):
    assert torch.equal(copies(torch.zeros(n, n).double()), torch.eye(n).double())


def test_who_is_unusual():
    scores = doubles(1.0, 1.1, 0.9, 1.0, 1.2, 0.8, -5.0)
    found = unusual(scores, torch.ones(7), 0.02)
    # the median is 1; a normal deviation above it, at 0.84 of the way up, is at 0.94 of 1.1 and 1.2
    spread = quantile(scores, torch.ones(7), 0.84) - 1.0
    assert spread == pytest.approx(0.138)
    assert found[:6].tolist() == pytest.approx([0.0] * 6)  # 0.2 below is less than 1.5 spreads
    assert float(found[6]) == pytest.approx(1.5 - 6 / spread)
    assert unusual(scores, torch.ones(7), 1e12).tolist() == [0.0] * 7  # hot: nothing is


def random_similarities(n, name="t"):
    draw = torch.from_numpy(KEY.fold(name).numpy().uniform(size=(3, n, n)))
    return Similarities(*((part + part.T) / 2 - 1 for part in draw))


def test_the_papers_weights_by_hand():
    similar = Similarities(*(torch.zeros(3, 3).double() for _ in range(3)))
    similar.vectors[0, 1] = similar.vectors[1, 0] = 1.0
    similar.vectors.fill_diagonal_(7.0)  # never looked at
    weights = softmax_weights(similar, (2.0, 1.0, 1.0), 0.5)
    expected = torch.softmax(doubles(1.0, 1.0, 0.0) / 0.5, 0)
    torch.testing.assert_close(weights, expected)


def test_weights_do_not_depend_on_the_order_of_clients():
    similar, order = random_similarities(6), [3, 0, 5, 1, 4, 2]
    past = doubles(0, -1, 0, -2, 0, 0)
    here, evidence = trusted(similar, (0.4, 0.1, 0.5), 0.02, past)
    turned = Similarities(*(part[order][:, order] for part in similar))
    there, after = trusted(turned, (0.4, 0.1, 0.5), 0.02, past[order])
    torch.testing.assert_close(there, here[order])
    torch.testing.assert_close(after, evidence[order])


def test_evidence_adds_up_and_fades():
    even = Similarities(*(torch.zeros(4, 4).double() for _ in range(3)))
    weights, evidence = trusted(even, (0.4, 0.1, 0.5), 0.02, doubles(0, 0, 0, -3.0))
    assert evidence.tolist() == pytest.approx([0, 0, 0, -2.1])
    assert float(weights[3] / weights[0]) == pytest.approx(2.718281828**-2.1)


def test_no_update_is_longer_than_three_times_the_usual():
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 600.0], [1e30, 0.0]])
    factors = shortened(rows, doubles(1, 1, 1, 0, 0), 3.0)
    assert factors.tolist() == pytest.approx([1.0, 1.0, 1.0, 0.01, 6e-30])
    assert shortened(rows, doubles(1, 1, 1, 0, 0), float("inf")).tolist() == [1.0] * 5
