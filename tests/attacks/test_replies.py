"""Attacks on what clients answer; numbers worked by hand."""

from typing import NamedTuple

import pytest
import torch
from toy import KEY, play, played, setup

from shoal import SpecError
from shoal.attacks.alie import Alie, z_max
from shoal.attacks.free_rider import FreeRider
from shoal.attacks.gaussian import Gaussian
from shoal.attacks.ipm import Ipm
from shoal.attacks.min_max import MinMax
from shoal.attacks.same_value import SameValue
from shoal.attacks.scale import Scale
from shoal.attacks.sign_flip import SignFlip
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
