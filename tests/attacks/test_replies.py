"""Attacks on what clients answer; numbers worked by hand."""

from typing import NamedTuple

import pytest
import torch
from toy import KEY, play, played, setup

from shoal import SpecError
from shoal.attacks.alie import Alie, z_max
from shoal.attacks.dead_relu import DeadRelu
from shoal.attacks.defect import Defect
from shoal.attacks.drift import Drift
from shoal.attacks.false_scores import FalseScores
from shoal.attacks.fang import Fang
from shoal.attacks.free_rider import FreeRider
from shoal.attacks.garbage import Garbage
from shoal.attacks.gaussian import Gaussian
from shoal.attacks.ipm import Ipm
from shoal.attacks.mimic import Mimic
from shoal.attacks.min_max import MinMax
from shoal.attacks.min_sum import MinSum
from shoal.attacks.same_value import SameValue
from shoal.attacks.scale import Scale
from shoal.attacks.scaled_backdoor import ScaledBackdoor
from shoal.attacks.sign_flip import SignFlip
from shoal.attacks.stealth import Stealth, passes
from shoal.attacks.sybils import Sybils
from shoal.core.types import Context, ModelUpdate, Reply, Weights


def reply(values, seen=3):
    """An update of two tensors, a floating buffer and a counter."""
    first, second, mean = values
    params = {"a": torch.tensor([first]), "b": torch.tensor([[second]])}
    update = Weights(params, {"mean": torch.tensor([mean]), "seen": torch.tensor(seen)})
    return Reply(ModelUpdate(update), torch.tensor(10.0), {"train_loss": torch.tensor(0.5)})


def numbers(answer):
    update = answer.payload.update
    return [float(update.params["a"]), float(update.params["b"]), float(update.buffers["mean"])]


def lied(attack, *updates, seen=(), cohort=10, round=0):
    """What attackers with these honest updates answer, who see some of others."""
    replies = [reply(values, count) for count, values in enumerate(updates)]
    contexts = [Context(round, 0, {}, KEY.fold("client", i)) for i in range(len(replies))]
    known = [*replies, *(reply(values) for values in seen)]
    answers = attack.lie(replies, contexts, known, cohort)
    for honest, answer in zip(replies, answers, strict=True):  # all but floating numbers of the update stays
        assert answer.payload.update.buffers["seen"] is honest.payload.update.buffers["seen"]
        assert answer.weight is honest.weight
        assert answer.metrics is honest.metrics
        assert answer.payload.update.params["a"].dtype == torch.float32
    return [numbers(answer) for answer in answers]


def test_lies_of_one_attacker_by_hand():
    assert lied(SignFlip(factor=2.0), (1.0, -2.0, 0.5)) == [[-2.0, 4.0, -1.0]]
    assert lied(Scale(factor=3.0), (1.0, -2.0, 0.5), (0.0, 1.0, 2.0)) == [[3.0, -6.0, 1.5], [0.0, 3.0, 6.0]]
    assert lied(SameValue(value=0.25), (1.0, -2.0, 0.5)) == [[0.25, 0.25, 0.25]]
    assert lied(FreeRider(noise=0.0), (1.0, -2.0, 0.5)) == [[0.0, 0.0, 0.0]]


class Losses(NamedTuple):
    losses: torch.Tensor
    best: torch.Tensor


def test_a_payload_without_an_update_is_all_target():
    honest = Reply(Losses(torch.tensor([1.0, 2.0]), torch.tensor(1)), None, {})
    (answer,) = SignFlip().lie([honest], [Context(0, 0, {}, KEY)], [honest], 4)
    assert answer.payload.losses.tolist() == [-1.0, -2.0]
    assert answer.payload.best is honest.payload.best


def test_noise_has_the_given_size_and_comes_from_the_key():
    zeros = Reply(ModelUpdate(Weights({"w": torch.ones(40_000)}, {})), None, {})
    context = Context(3, 0, {}, KEY)
    drawn = Gaussian(sigma=0.2).forge(zeros, context).payload.update.params["w"]
    assert float(drawn.mean()) == pytest.approx(1, abs=0.005)
    assert float(drawn.std()) == pytest.approx(0.2, abs=0.005)
    again = Gaussian(sigma=0.2).forge(zeros, context).payload.update.params["w"]
    other = Gaussian(sigma=0.2).forge(zeros, context._replace(key=KEY.fold(1))).payload.update.params["w"]
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, other)
    ridden = FreeRider(noise=0.8, decay=2.0).forge(zeros, context).payload.update.params["w"]
    assert float(ridden.mean()) == pytest.approx(0, abs=0.002)
    assert float(ridden.std()) == pytest.approx(0.8 / 16, abs=0.002)  # the fourth round


ONE, TWO = (1.0, 2.0, 0.0), (3.0, 6.0, 0.0)  # mean (2, 4, 0), deviation (1, 2, 0)


def test_ipm_by_hand():
    assert lied(Ipm(epsilon=0.5), ONE, TWO) == [[-1.0, -2.0, 0.0]] * 2


def test_what_attackers_see_of_others_counts_as_their_own():
    """The lie of one who sees another's reply is the lie of both together."""
    for attack in (Ipm(epsilon=0.5, knows="all"), Alie(z=1.5, knows="all"), MinMax(knows="all")):
        alone, together = lied(attack, TWO, seen=[ONE]), lied(attack, TWO, ONE)
        assert alone == together[:1]
        assert alone != lied(attack, TWO)
    assert lied(Ipm(epsilon=1.0, knows="all"), TWO, seen=[ONE]) == [[-2.0, -4.0, 0.0]]


def test_alie_by_hand():
    assert lied(Alie(z=1.5), ONE, TWO) == [[0.5, 1.0, 0.0]] * 2
    by_default = lied(Alie(), ONE, TWO, TWO, ONE, TWO, ONE, cohort=20)[0]
    assert by_default == pytest.approx([2 - 0.366106, 4 - 2 * 0.366106, 0.0], abs=1e-5)


@pytest.mark.parametrize(
    ("clients", "attackers", "share"),
    [
        (20, 6, 9 / 14),  # s = 11 - 6
        (50, 24, 24 / 26),  # the paper's example: s = 26 - 24
        (10, 1, 4 / 9),  # few attackers must stay on the near side
        (10, 6, 1 - 1 / 8),  # a majority needs nobody
    ],
)
def test_how_far_alie_goes(clients, attackers, share):
    normal = torch.distributions.Normal(0.0, 1.0)
    assert float(normal.cdf(torch.tensor(z_max(clients, attackers)))) == pytest.approx(share, abs=1e-6)


def test_alie_with_nobody_honest_stays_at_the_mean():
    assert z_max(3, 3) == 0


def test_min_max_on_a_line_by_hand():
    """|x_1 - x_2|^2 = 20; on the way down from the mean the farther one, x_2, is at 5 (1 + gamma)^2."""
    assert lied(MinMax(), ONE, TWO) == [[1.0, 2.0, 0.0]] * 2
    assert lied(MinMax(direction="unit"), ONE, TWO) == [pytest.approx([1.0, 2.0, 0.0], abs=1e-6)] * 2


def test_min_max_in_the_plane_by_hand():
    """The mean is (2, 2), the largest distance that of (0, 0) and (2, 6), 40. From (2 - s, 2 - s) the
    farthest is (2, 6), at s^2 + (4 + s)^2 = 40, where s = 2."""
    corners = ((0.0, 0.0, 0.0), (4.0, 0.0, 0.0), (2.0, 6.0, 0.0))
    for direction in ("unit", "sign"):
        for answer in lied(MinMax(direction=direction), *corners):
            assert answer == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)


def test_min_max_stays_as_near_as_the_honest():
    draw = KEY.torch()
    updates = [tuple(torch.randn(3, generator=draw).tolist()) for _ in range(5)]
    for direction in ("std", "unit", "sign"):
        answer = torch.tensor(lied(MinMax(direction=direction), *updates)[0])
        others = torch.tensor(updates)
        allowed = float(torch.cdist(others, others).max())
        assert float((others - answer).norm(dim=1).max()) == pytest.approx(allowed, rel=1e-5)


def test_equal_updates_leave_nothing_to_lie_about():
    assert lied(MinMax(), ONE, ONE) == [list(ONE)] * 2
    assert lied(Alie(), ONE, ONE) == [list(ONE)] * 2


def test_if_all_flip_their_signs_the_model_walks_backwards():
    made = setup(attack={"name": "sign_flip", "fraction": 1.0}, rounds=1)
    before, forth = made.federation.task.init(made.federation.key.fold("init")), played(rounds=1).state.model
    back = play(made, 1).state.model
    for name, value in before.params.items():
        torch.testing.assert_close(
            back.params[name] - value, value - forth.params[name], rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(sigma=-1.0), "sigma must be at least 0, got -1"),
        (lambda: FreeRider(noise=-1.0), "noise must be at least 0, got -1"),
        (lambda: FreeRider(decay=-1.0), "decay must be at least 0, got -1"),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_mimics_send_the_update_of_the_farthest_honest_client():
    """The honest mean is (2, 4, 0); (1, 2, 0) and (1, 2, 0) are nearer to it than (4, 8, 0)."""
    far = (4.0, 8.0, 0.0)
    assert lied(Mimic(), TWO, TWO, seen=[ONE, far, ONE]) == [list(far)] * 2
    assert lied(Mimic(), TWO) == [list(TWO)]  # nobody to copy


def test_min_sum_on_a_line_by_hand():
    """Squared distances add up to 20 for each; around the mean they are 10 + 2 gamma^2 5: gamma is 1."""
    assert lied(MinSum(), ONE, TWO) == [pytest.approx([1.0, 2.0, 0.0])] * 2
    assert lied(MinSum(), ONE) == [list(ONE)]


def test_directed_deviation_by_hand():
    """Against mean (2, 4, 0) by three to four deviations of (1, 2, 0)."""
    first, second = lied(Fang(), ONE, TWO)
    for answer in (first, second):
        assert -2 <= answer[0] <= -1
        assert -4 <= answer[1] <= -2
        assert answer[2] == 0
    assert first != second
    assert lied(Fang(near=3.0, far=3.0), ONE, TWO) == [[-1.0, -2.0, 0.0]] * 2


def test_sybils_share_a_direction_and_differ_in_noise():
    assert lied(Sybils(noise=0.0), ONE, TWO) == lied(Ipm(), ONE, TWO)
    first, second = lied(Sybils(), ONE, TWO)
    assert first != second


def test_drift_and_defection_by_hand():
    assert lied(Drift(rate=0.25), (1.0, -2.0, 0.5), round=0) == [[0.75, -1.5, 0.375]]
    assert lied(Drift(rate=0.25), (1.0, -2.0, 0.5), round=3) == [[0.0, 0.0, 0.0]]
    assert lied(Drift(rate=0.25), (1.0, -2.0, 0.5), round=50) == [[-1.0, 2.0, -0.5]]
    assert lied(Drift(rate=0.25, first=11), (1.0, -2.0, 0.5), round=10) == [[0.75, -1.5, 0.375]]
    assert [Defect().active(round) for round in (0, 19, 20, 59)] == [False, False, True, True]
    assert lied(Defect(), (1.0, -2.0, 0.5), round=20) == [[-1.0, 2.0, -0.5]]


def test_lies_in_a_few_numbers():
    assert lied(DeadRelu(shift=2.0), (1.0, -2.0, 0.5)) == [[-1.0, -2.0, -1.5]]  # b is a matrix
    assert lied(ScaledBackdoor(factor=3.0), (1.0, -2.0, 0.5)) == [[3.0, -6.0, 1.5]]
    assert lied(Garbage(), (1.0, -2.0, 0.5)) == [[pytest.approx(1e30)] * 3]


class Scored(NamedTuple):
    update: Weights
    score: torch.Tensor


def test_false_scores_where_there_are_any():
    honest = Reply(Scored(Weights({"a": torch.ones(2)}, {}), torch.tensor(0.5)), torch.tensor(3.0), {})
    answer = FalseScores(claim=7.0).forge(honest, Context(0, 0, {}, KEY))
    assert answer.payload.score == 7.0
    assert answer.payload.update.params["a"].tolist() == [-1.0, -1.0]
    assert lied(FalseScores(), (1.0, -2.0, 0.5)) == [[-1.0, 2.0, -0.5]]


def test_stealth_lies_as_much_as_passes():
    draw = KEY.fold("stealth").numpy()
    centre = draw.normal(size=(6, 8))
    updates = [torch.from_numpy(centre + 0.7 * draw.normal(size=(6, 8))).float() for _ in range(10)]
    replies = [Reply(ModelUpdate(Weights({"w": update}, {})), torch.tensor(5.0), {}) for update in updates]
    contexts = [Context(0, 0, {}, KEY.fold(i)) for i in range(3)]
    lies = Stealth().lie(replies[:3], contexts, replies, 10)
    taken = updates[0] - lies[0].payload.update.params["w"]
    mean = torch.stack(updates).double().mean(0)
    gamma = float((taken * mean).sum() / mean.square().sum())
    assert 0 < gamma < 4
    seen = {"w": torch.stack(updates)}
    assert passes(seen, 3, 0.0, 3)
    assert not passes(seen, 3, 3.0, 3)
