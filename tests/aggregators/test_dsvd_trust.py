import numpy as np
import pytest
import torch
from toy import KEY

from shoal.aggregators.dsvd import softmax_weights
from shoal.aggregators.dsvd_similarity import Similarities
from shoal.aggregators.dsvd_trust import (
    Lengths,
    Views,
    company,
    copies,
    excess,
    growth,
    mostly_new,
    nothing_known,
    reversal,
    trusted,
    unlike,
    verdict,
)
from shoal.kernels.quantile import quantile


def doubles(*values):
    return np.array(values, np.float64)


def others_at(apart):
    """Distances between different clients; to itself everybody has none."""
    return np.where(np.eye(len(apart)) > 0, 0.0, apart)


def test_quantiles_of_values_that_count():
    values = doubles(3.0, 1.0, 2.0)
    assert quantile(values, np.ones(3), 0.5) == 2.0
    assert quantile(values, doubles(1.0, 1.0, 0.0), 0.5) == 2.0  # between 1 and 3
    assert quantile(values, doubles(8.0, 1.0, 1.0), 0.5) == pytest.approx(2 + (0.5 - 0.15) / 0.45)
    assert quantile(values, np.ones(3), 0.0) == 1.0
    assert quantile(values, np.ones(3), 1.0) == 3.0
    assert quantile(doubles(5.0), np.ones(1), 0.84) == 5.0
    assert quantile(values, np.zeros(3), 0.5) == 0.0


def test_copies_are_counted_once_unless_they_are_the_majority():
    apart = others_at(np.ones((7, 7)))
    assert copies(apart).sum(1).tolist() == [1.0] * 7
    apart[:3, :3] = 0
    assert copies(apart).sum(1).tolist() == [3.0] * 3 + [1.0] * 4
    apart[:2, :2] = 0.25  # half of NEAR times the usual distance
    assert copies(others_at(apart))[0, 1] == 0.5
    majority = np.ones((7, 7))
    majority[:5, :5] = 0
    assert copies(others_at(majority)).sum(1).tolist() == [1.0] * 7


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_clients_are_no_copies(n):
    assert np.array_equal(copies(np.zeros((n, n))), np.eye(n))


def test_a_verdict_by_hand():
    """The median is 1, and the spread its floor of 0.15: the threshold is 1 - 4 * 0.15 = 0.4."""
    scores = doubles(1.0, 1.0, 1.0, 0.4, -1.0)
    found = verdict(scores, np.ones(5), 0.15)
    slope = 2 * 0.6 / 0.15**2
    assert found.tolist() == pytest.approx([slope * 0.6] * 3 + [0.0, -slope * 1.4])
    wide = verdict(doubles(0.5, 1.5, 1.0, 2.0, -1.0), np.ones(5), 0.15)
    assert float(wide[0]) > 0 > float(wide[4])  # far apart: who agrees at all has nothing against it
    nothing = verdict(doubles(-0.1, 0.0, -0.2), np.ones(3), 0.15)
    assert nothing.tolist() == [0.0] * 3  # in common


def test_a_round_in_which_clients_have_little_in_common_says_little():
    close, scattered = (verdict(doubles(m + 1, m - 1, m, m + 0.5, -m), np.ones(5), 0.15) for m in (3.0, 0.03))
    assert float(close[4]) < -5
    assert abs(float(scattered[4])) < 0.01


def test_differences_below_the_noise_say_little():
    """Late in training: likenesses are near 0, and alike but for one that is a little below."""
    scores = doubles(0.005, 0.005, 0.005, 0.005, -0.01)
    assert float(verdict(scores, np.ones(5), 0.15)[4]) < -12
    found = verdict(scores, np.ones(5), 0.15, 0.02)
    assert float(found[4]) == pytest.approx(-2 * 0.005 * 0.01 / 0.02**2)


def test_lengths_are_compared_among_clients_of_the_same_size():
    """Lengths are the root of the samples; three of ten multiply theirs by ten, the smallest among them."""
    samples = doubles(4, 9, 16, 25, 36, 49, 64, 81, 100, 400)
    norms, ones = np.sqrt(samples), np.ones(10)
    assert growth(norms, samples, ones) == pytest.approx(0.5)
    lies = norms.copy()
    lies[[0, 4, 7]] *= 10
    known = excess(Lengths(lies, 4.0, samples=samples), ones)
    unknown = excess(Lengths(lies, 4.0), ones)
    assert np.flatnonzero(known < 0).tolist() == [0, 4, 7]
    assert float(unknown[0]) == 0  # ten times as long as it was, a small client is as long as others
    assert growth(norms, np.full_like(samples, 9.0), ones) == 0  # of clients of one size nothing is known
    assert growth(1 / norms, samples, ones) == 0  # more samples never excuse less


def test_length_and_treason_by_hand():
    norms = doubles(1.0, 1.0, 1.0, 4.0, 4 * 2.718281828)
    assert excess(Lengths(norms, 4.0), np.ones(5)).tolist() == pytest.approx([0, 0, 0, 0, -40], abs=1e-6)
    short = doubles(1.0, 1.0, 1.0, 1.0, 1.0, 0.1, 0.1 / 2.718281828, 0.0)
    found = excess(Lengths(short, 4.0, 0.1), np.ones(8))
    assert found[:7].tolist() == pytest.approx([0, 0, 0, 0, 0, 0, -40], abs=1e-6)
    assert -4000 < float(found[7]) < -2000
    assert excess(Lengths(np.zeros(3), 4.0), np.ones(3)).tolist() == [0.0] * 3
    own = doubles(0.8, 0.8, 0.1, -0.5, float("nan"))
    found = reversal(own, np.ones(5))
    usual = quantile(own[:4], np.ones(4), 0.5)
    assert found.tolist() == pytest.approx([0, 0, 0, 2 * usual * -0.5 / 0.15**2, 0])
    assert reversal(doubles(float("nan")), np.ones(1)).tolist() == [0.0]


def world(n, liars, common=0.5):
    """Likeness and distances of n clients, the last of whom go the other way."""
    signs = np.ones(n)
    signs[n - liars :] = -1
    likeness = common * np.outer(signs, signs)
    return likeness, others_at(1 - likeness)


def one_view(likeness):
    return Views(likeness[None], np.ones(1), np.zeros(1))


def judged(likeness, apart, past=None, own=None, norms=None, cosines=None):
    n = len(likeness)
    none = np.full(n, np.nan)
    ones = np.ones(n)
    return trusted(
        one_view(likeness),
        apart,
        one_view(np.eye(n) if cosines is None else cosines),
        [Lengths(ones if norms is None else norms, 4.0)],
        nothing_known(n).numpy() if past is None else past,
        none if own is None else own,
    )


def test_evidence_adds_up_and_does_not_fade():
    likeness, apart = world(10, 3)
    weights, evidence = judged(likeness, apart)
    assert evidence[0].tolist() == pytest.approx([0.0] * 7 + [-12.0] * 3)
    assert float(weights[7:].sum()) < 0.01
    nothing = np.zeros((10, 10))
    apart = others_at(np.ones((10, 10)))
    for _ in range(100):
        weights, evidence = judged(nothing, apart, evidence)
    assert evidence[0].tolist() == pytest.approx([0.0] * 7 + [-12.0] * 3)


def test_what_is_mild_does_not_add_up():
    """Among unlike clients one is a little against the others in every round, another one far more."""
    likeness, apart = world(10, 0)
    likeness[:4, :4] += 0.6
    for client, other in ((8, -0.02), (9, -1.0)):
        likeness[client] = likeness[:, client] = other
    evidence, known = None, np.ones(10)
    for _ in range(50):
        _, evidence = judged(likeness, apart, evidence, known)
    assert float(evidence[0, 8]) == 0
    assert float(evidence[0, 9]) < -100


def test_while_most_clients_are_new_what_is_mild_counts():
    """Three of ten go the other way, among clients so unlike that little can be said against them."""
    along = doubles(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, -0.2, -0.3, -0.4)
    likeness, apart = np.outer(along, along), 1 - np.eye(10)
    known = np.ones(10)
    half = np.where(np.arange(10) < 5, np.nan, known)
    assert mostly_new(np.where(np.arange(10) < 6, np.nan, known))
    assert not mostly_new(half)
    weights, evidence = judged(likeness, apart)
    assert float(weights[7:].sum()) < 0.05
    assert evidence[0, :7].tolist() == [0.0] * 7
    for own in (known, half):
        weights, evidence = judged(likeness, apart, own=own)
        assert float(weights[7:].sum()) == pytest.approx(0.3)
        assert evidence.min() < 0


def test_where_clients_differ_most_decides_how_much_a_difference_tells():
    even, ones = doubles(1.0, 1.0, 1.0, 1.0, 1.0, 1.0), np.ones(6)
    wide = doubles(1.0, 1.0, 1.0, 1.0, 1.2, 1.2)
    assert unlike(np.stack([even, even]), ones) == 0.08
    assert unlike(np.stack([even, wide]), ones) == pytest.approx(quantile(wide, ones, 0.84) - 1)
    assert unlike(np.stack([even, 2 * wide - 1]), ones) == unlike(np.stack([even, -even]), ones) == 0.25


def apart_from_the_mean(groups):
    """Cosines of clients with 1 in common and 1 of their own, which members of a group have in common too."""
    own = np.eye(len(groups))
    for i, one in enumerate(groups):
        for j, other in enumerate(groups):
            own[i, j] = 1.0 if i == j else 0.8 * float(one == other != 0)
    return (1 + own) / 2


def test_company_by_hand():
    """With the updates themselves: both are seen from a mean that holds neither of them."""
    updates = KEY.numpy().normal(size=(9, 5))
    counts = doubles(1.0, 0.5, 0.0, 1.0, 0.2, 1.0, 1.0, 0.0, 0.7)
    others = 1 - np.eye(9)
    found = company(updates @ updates.T, others, counts)
    for i in range(9):
        cosines = [0.0]
        for j in set(range(9)) - {i}:
            third = [k for k in range(9) if k not in (i, j)]
            mean = counts[third] @ updates[third] / counts[third].sum()
            one, other = updates[i] - mean, updates[j] - mean
            cosines.append(one @ other / np.sqrt((one @ one) * (other @ other)))
        assert float(found[i]) == pytest.approx(sorted(cosines)[-2])


def test_what_is_company_and_what_is_not():
    """Four of twelve share 0.8 of what sets them apart; a pair and a copy are no company."""
    four = apart_from_the_mean([0] * 8 + [1] * 4)
    ones, others = np.ones(12), 1 - np.eye(12)
    found = company(four, others, ones)
    assert float(found[11]) > 0.6
    assert float(found[0]) < 0.3
    assert company(apart_from_the_mean([0] * 10 + [1] * 2), others, ones)[11] < 0.2
    assert company(four, others * (1 - (four > 0.85)), ones)[11] < 0.2
    assert company(np.ones((12, 12)), others, ones).tolist() == [0.0] * 12  # nobody is apart
    assert company(four[:5, :5], others[:5, :5], ones[:5]).tolist() == [0.0] * 5  # too few to say
    assert np.isfinite(company(four, others, 0 * ones)).all()  # nobody is trusted


def test_who_is_distrusted_is_no_company_for_that():
    """Six of twelve that have nothing in common do not count: they are as far from the mean as the others."""
    counts = np.where(np.arange(12) < 6, 1.0, 0.0)
    found = company(apart_from_the_mean([0] * 12), 1 - np.eye(12), counts)
    # what is their own has length 1; with k in the mean r_i r_j = 1 / k and r_i^2 = 1 + 1 / k
    assert found[:6].tolist() == pytest.approx([1 / 5] * 6)  # two of the mean's six are left out
    assert found[6:].tolist() == pytest.approx([1 / 6] * 6)  # beside one of the six; 1 / 7 with each other


def test_who_differs_in_company_is_caught_where_clients_are_alike():
    groups = [0] * 9 + [1] * 4
    likeness, apart = world(13, 0)
    evidence = None
    for rounds in (1, 2):
        weights, evidence = judged(likeness, apart, evidence, cosines=apart_from_the_mean(groups))
        assert evidence[0].tolist() == [0.0] * 13
        assert evidence[1].tolist() == pytest.approx([0.0] * 9 + [-6.0 * rounds] * 4)
    assert float(weights[9:].sum()) < 0.01
    odd, _ = judged(likeness, apart, cosines=apart_from_the_mean([0] * 12 + [1]))
    assert odd.tolist() == pytest.approx([1 / 13] * 13)  # alone, it is only odd
    likeness[:4, :4] += 1.0
    spared, _ = judged(likeness, apart, cosines=apart_from_the_mean(groups))
    assert spared.tolist() == pytest.approx([1 / 13] * 13)  # unlike clients are in company by nature
    later = evidence
    for _ in range(50):
        _, later = judged(likeness, apart, later, cosines=apart_from_the_mean(groups))
    assert later[1].tolist() == evidence[1].tolist()  # then it is neither found nor forgotten
    _, alone = judged(likeness, apart, evidence, cosines=apart_from_the_mean([0] * 13))
    assert alone[1].tolist() == pytest.approx([0.0] * 9 + [-11.0] * 4)  # but who is alone regains trust


def test_trust_comes_back_slowly():
    likeness, apart = world(10, 0)
    past = nothing_known(10).numpy()
    past[0, 9] = -12
    for rounds in range(1, 9):
        weights, past = judged(likeness, apart, past)
        assert float(past[0, 9]) == pytest.approx(rounds - 12)
    assert weights.tolist() == pytest.approx([0.1] * 10)  # what is left changes nothing any more


def test_agreement_excuses_neither_length_nor_treason():
    likeness, apart = world(10, 0)
    long = np.ones(10)
    long[9] = 20.0
    assert float(judged(likeness, apart, norms=long)[0][9]) < 1e-3
    own = np.full(10, 0.8)
    own[9] = -0.8
    assert float(judged(likeness, apart, own=own)[0][9]) < 1e-3


def random_similarities(n, name="t"):
    draw = torch.from_numpy(KEY.fold(name).numpy().uniform(size=(3, n, n)))
    return Similarities(*((part + part.T) / 2 - 1 for part in draw))


def test_the_papers_weights_by_hand():
    similar = Similarities(*(torch.zeros(3, 3).double() for _ in range(3)))
    similar.vectors[0, 1] = similar.vectors[1, 0] = 1.0
    similar.vectors.fill_diagonal_(7.0)  # never looked at
    weights = softmax_weights(similar, (2.0, 1.0, 1.0), 0.5)
    expected = torch.softmax(torch.from_numpy(doubles(1.0, 1.0, 0.0)) / 0.5, 0)
    torch.testing.assert_close(weights, expected)


def test_weights_do_not_depend_on_the_order_of_clients():
    likeness, order = random_similarities(6).updates.numpy() + 1, [3, 0, 5, 1, 4, 2]
    apart = others_at(random_similarities(6, "apart").updates.abs().numpy())
    past = np.stack([doubles(0, -1, 0, -2, 0, 0), doubles(-1, 0, 0, -1, 0, 0)])
    here, evidence = judged(likeness, apart, past)
    there, after = judged(likeness[order][:, order].copy(), apart[order][:, order], past[:, order])
    assert there == pytest.approx(here[order], rel=1e-7)
    assert after == pytest.approx(evidence[:, order], rel=1e-7)
