"""The experiments of FedQP, at a size of a second or two."""

import numpy as np
import pytest
import torch
from torch import nn

from shoal.core.key import Key
from shoal.spec import to_table
from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.fedqp import (
    CONTENDERS,
    FEDAVG,
    FEDMUT,
    FEDQP,
    FULL,
    PAPERS,
    QUICK,
    UNIFORM,
    Course,
    facts,
    level,
    swing,
)
from shoal.study.reproduce.fedqp_curves import ablation, figure3, reached
from shoal.study.reproduce.fedqp_landscape import LABELS, direction, landscape, loss_at, moved
from shoal.study.reproduce.fedqp_tables import PAPER_TABLE1, table1, table2, theirs1, theirs2

SMALL = QUICK._replace(rounds=3, tail=2, every=2)  # judged after rounds 2 and 3


def test_the_papers_numbers_are_where_they_belong():
    assert theirs1(FULL._replace(model="lenet", beta=0.1)).accuracies[FEDQP] == 53.04
    assert theirs1(FULL._replace(dataset="cifar100", model="vgg16", beta=0.5)).accuracies["FedNTD"] == 59.24
    assert theirs1(FULL._replace(beta=None)).accuracies["FedGen"] == 63.88
    assert theirs1(QUICK) == (theirs1(FULL._replace(model="lenet", beta=0.1)).accuracies, False)
    assert theirs2(FULL) == (theirs1(FULL).accuracies, True)  # the two tables share a column
    assert theirs2(FULL._replace(cohort=5)).accuracies[FEDMUT] == 70.11
    assert not theirs2(QUICK).same
    assert all(len(row) == len(PAPERS) for rows in PAPER_TABLE1.values() for row in rows)


def test_a_setting_is_the_papers():
    table = to_table(FULL.spec(CONTENDERS[FEDQP], 3))
    assert (table["task"]["dataset"], table["task"]["model"]) == ("cifar10", "resnet18")
    assert (table["partition"]["clients"], table["partition"]["beta"]) == (100, 0.5)
    assert (table["selector"]["count"], table["rounds"], table["seed"]) == (10, 2000, 3)
    local = table["local"]
    assert [local[name] for name in ("lr", "momentum", "batch", "epochs")] == [0.01, 0.5, 50, 5]
    coarse = to_table(FULL._replace(dataset="cifar100", beta=None).spec(CONTENDERS["CluSamp"], 0))
    assert coarse["task"]["labels"] == "coarse"
    assert coarse["partition"]["kind"] == "iid"
    assert (coarse["selector"]["name"], coarse["selector"]["count"]) == ("clustered", 10)


def test_the_page_says_how_long_each_setting_learned():
    assert facts(SMALL, SMALL._replace(beta=0.5))["Rounds"] == "3"
    assert facts(FULL, SMALL)["Rounds"] == "2,000 (cifar10), 3 (mnist5k)"


def test_accuracy_is_that_of_the_last_rounds():
    at = QUICK._replace(rounds=6, tail=4, every=2)
    course = Course([2, 4, 6], [10.0, 50.0, 60.0])
    assert level(course, at) == 55.0
    assert swing(course, at) == pytest.approx(50**0.5)
    assert swing(course, at._replace(tail=1)) is None
    assert (reached(course, 50.0), reached(course, 70.0)) == (4.0, None)


def test_table1(play):
    outcome = table1(play, settings=(SMALL,), labels=tuple(CONTENDERS), seeds=2, slow_seeds=1)
    accuracy, ahead, ahead_of_uniform, swings = outcome.tables
    assert accuracy.rows == swings.rows == list(CONTENDERS)
    assert not accuracy.compares  # other data
    assert accuracy.find("FedNTD", SMALL.title).std is None
    gain = ahead.find(FEDQP, SMALL.title)
    assert gain.paper == pytest.approx(53.04 - 47.10)
    means = {label: accuracy.find(label, SMALL.title).ours for label in (FEDQP, FEDAVG, UNIFORM)}
    assert gain.ours == pytest.approx(means[FEDQP] - means[FEDAVG])
    other = ahead_of_uniform.find(FEDQP, SMALL.title)
    assert other.paper is None
    assert other.ours == pytest.approx(means[FEDQP] - means[UNIFORM])
    assert any("those of CIFAR-10 with its CNN" in note for note in outcome.notes)


def test_table2_changes_the_cohort(play):
    specs = []

    def watched(jobs):
        specs.extend(job.spec for job in jobs)
        return play(jobs)

    outcome = table2(watched, setting=SMALL, labels=(FEDAVG, FEDMUT, FEDQP), seeds=1)
    assert outcome.tables[0].columns == ["K = 5", "K = 10", "K = 20"]
    assert [spec.selector.count for spec in specs] == [5, 5, 5, 10, 10, 10, 20, 20, 20]
    assert outcome.tables[1].find(FEDMUT, "K = 5").paper == pytest.approx(70.11 - 59.15)
    assert outcome.notes[0].startswith("CluSamp has 0 of 1 seeds, FedNTD has 0 of 1 seeds, FedGen has 0")


def test_figure3(play):
    settings = [SMALL, SMALL._replace(beta=None)]
    outcome = figure3(play, settings=settings, labels=(FEDAVG, FEDQP), seeds=2)
    assert [picture.name for picture in outcome.pictures] == ["figure3-1", "figure3-2"]
    first = outcome.pictures[0].figure.axes[0]
    assert list(first.get_lines()[0].get_xdata()) == [2, 3]
    assert outcome.tables[1].columns == [at.title for at in settings]
    assert 1 <= outcome.tables[1].find(FEDAVG, settings[1].title).ours <= 3


@pytest.mark.filterwarnings("ignore:the effective momentum")
def test_ablation_tells_the_momentum(play):
    outcome = ablation(play, setting=SMALL, grid=(0.0, 0.3, 1.0), seeds=2)
    table = outcome.tables[0]
    assert table.rows == ["p = 0", "p = 0.3", "p = 1", "p = auto"]
    momenta = [table.find(row, "effective momentum").ours for row in table.rows[:3]]
    assert momenta == pytest.approx([0.0, 0.6, 2.0])
    lines = outcome.pictures[1].figure.axes[0].get_lines()
    assert list(lines[0].get_xdata()) == [0.0, 0.3, 1.0]


# -- the landscape


def test_a_direction_is_as_long_as_the_model_in_every_filter():
    params = {"conv": torch.randn(4, 3, 5, 5, generator=Key.from_seed(1).torch()), "bias": torch.ones(4)}
    way = direction(params, Key.from_seed(2))
    assert torch.allclose(way["conv"].flatten(1).norm(dim=1), params["conv"].flatten(1).norm(dim=1))
    assert not way["bias"].any()
    assert torch.equal(way["conv"], direction(params, Key.from_seed(2))["conv"])
    assert torch.equal(moved(params, way, 0.0)["conv"], params["conv"])


def test_the_loss_at_a_place():
    model = nn.Linear(2, 2)
    x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    sure = {"weight": torch.tensor([[2.0, 0.0], [0.0, 2.0]]), "bias": torch.zeros(2)}
    assert loss_at(model, sure, x, y) == pytest.approx(np.log1p(np.exp(-2.0)))
    assert loss_at(model, moved(sure, sure, -1.0), x, y) == pytest.approx(np.log(2))


def test_landscape(play):
    outcome = landscape(play, setting=SMALL, seeds=2, points=3, directions=2, samples=50)
    table = outcome.tables[0]
    assert table.rows == list(LABELS)
    assert table.columns == ["training loss", "sharpness at 0.5", "sharpness at 1"]
    assert table.find(FEDQP, "training loss").ours > 0
    surface, rising = outcome.pictures
    assert [axes.get_title("left") for axes in surface.figure.axes[:3]] == list(LABELS)
    assert list(rising.figure.axes[0].get_lines()[0].get_ydata())[-1] == pytest.approx(
        table.find(FEDAVG, "sharpness at 1").ours
    )


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("fedqp-")])
def test_every_experiment_has_all_scales(name):
    assert list(EXPERIMENTS[name].scales) == ["quick", "machine", "paper"]
