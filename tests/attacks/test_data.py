"""Attacks on what clients train on."""

import pytest
import torch
from toy import KEY, setup, table

import shoal
from shoal import SpecError
from shoal.attacks.backdoor import Backdoor
from shoal.attacks.label_flip import LabelFlip
from shoal.core.data import Batch
from shoal.core.types import Context

X = torch.zeros(6, 1)
Y = torch.tensor([0, 1, 2, 3, 1, 1])


def test_all_labels_are_flipped():
    flipped = LabelFlip().poison(Batch(X, Y), 4, KEY)
    assert flipped.y.tolist() == [3, 2, 1, 0, 2, 2]
    assert flipped.x is X


def test_one_class_is_labelled_as_another():
    assert LabelFlip(source=1, target=3).poison(Batch(X, Y), 4, KEY).y.tolist() == [0, 3, 2, 3, 3, 3]


def test_a_share_of_the_labels_is_flipped():
    y = torch.zeros(10_000, dtype=torch.int64)
    flipped = LabelFlip(labels=0.3).poison(Batch(X, y), 2, KEY).y
    assert abs(float(flipped.double().mean()) - 0.3) < 0.02
    assert torch.equal(flipped, LabelFlip(labels=0.3).poison(Batch(X, y), 2, KEY).y)


def test_success_of_a_label_flip_by_hand():
    x, y = torch.tensor([[0], [1], [2], [3]]), torch.tensor([1, 1, 1, 0])
    said = torch.tensor([2, 2, 1, 2])
    attack = LabelFlip(source=1, target=2)
    assert attack.success(lambda x: said[x[:, 0]], x, y) == pytest.approx(2 / 3)
    assert LabelFlip().success(lambda x: said[x[:, 0]], x, y) is None


def test_the_patch_is_in_the_last_corner():
    pictures = torch.zeros(2, 3, 4, 5)
    patched = Backdoor(size=2, value=0.5).triggered(pictures)
    assert float(patched.sum()) == 2 * 3 * 4 * 0.5
    assert bool((patched[:, :, 2:, 3:] == 0.5).all())
    assert float(pictures.sum()) == 0
    assert Backdoor(size=2).triggered(torch.zeros(1, 4)).tolist() == [[0, 0, 1, 1]]


def test_part_of_the_samples_carry_the_patch():
    x, y = torch.zeros(10_000, 4), torch.full((10_000,), 2)
    poisoned = Backdoor(target=1, share=0.2, size=1).poison(Batch(x, y), 3, KEY)
    marked = poisoned.x[:, -1] == 1
    assert abs(float(marked.double().mean()) - 0.2) < 0.02
    assert torch.equal(poisoned.y, torch.where(marked, 1, 2))
    assert float(x.sum()) == 0


def test_success_of_a_backdoor_by_hand():
    """Of three samples of other classes two carry the patch to the target; the fourth is of that class."""
    x, y = torch.tensor([[0.0, 0], [1, 0], [2, 0], [3, 0]]), torch.tensor([1, 2, 1, 0])
    said = torch.tensor([0, 0, 2, 0])
    asked = []

    def predict(x):
        asked.append(x)
        return said[x[:, 0].long()]

    assert Backdoor(target=0, size=1).success(predict, x, y) == pytest.approx(2 / 3)
    assert asked[0].tolist() == [[0, 1], [1, 1], [2, 1]]


def test_the_record_has_the_success():
    attack = {"name": "backdoor", "fraction": 0.5, "size": 2, "value": 3.0}
    result = shoal.run(table(rounds=8, selector="all", attack=attack, evaluate={"every": 4}))
    shares = [record.get("attack_success") for record in result.records]
    assert shares[0] is None
    assert shares[7] > 0.5
    assert result.summary["attack_success"] == shares[7]


def test_attackers_alone_are_copied():
    made = setup(attack={"name": "label_flip", "attackers": [2]})
    data = made.side.data.train(2, None, KEY, full=False)
    poisoned, honest = (made.side.training_data(client, Context(0, 0, {}, KEY)) for client in (2, 3))
    assert len(poisoned.x) == data.count < len(data.x)
    assert torch.equal(poisoned.all.x, data.all.x)
    assert torch.equal(poisoned.label_counts, data.label_counts.flip(0))
    assert honest.x is data.x
    assert honest.y is data.y


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ({"name": "label_flip"}, "label_flip needs class labels"),
        ({"name": "backdoor"}, "backdoor needs the target class 0; this is a regression"),
    ],
)
def test_a_regression_has_no_labels(attack, message):
    line = {"task": {"dataset": "toy:line", "model": "linear"}, "partition": {"kind": "iid", "clients": 8}}
    with pytest.raises(SpecError, match=message):
        shoal.run(table(**line, selector="all", attack={**attack, "fraction": 1.0}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelFlip(source=1), "give source and target, or neither"),
        (lambda: LabelFlip(source=1, target=1), "target must differ from source, got 1"),
        (lambda: LabelFlip(source=1, target=-1), "classes are counted from 0, got -1"),
        (lambda: LabelFlip(labels=1.5), r"labels must be in \[0, 1\], got 1.5"),
        (lambda: LabelFlip(source=1, target=4).poison(Batch(X, Y), 4, KEY), "there is no class 4"),
        (lambda: Backdoor(share=-0.1), r"share must be in \[0, 1\], got -0.1"),
        (lambda: Backdoor(size=0), "size must be at least 1 pixel, got 0"),
        (lambda: Backdoor(target=-1), "target must be a class 0, 1, ..., got -1"),
        (lambda: Backdoor(target=4).poison(Batch(X, Y), 4, KEY), "target class 4; classes are 0 to 3"),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()
