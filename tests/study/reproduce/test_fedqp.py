"""The experiments of FedQP, at a size of a second or two."""

import numpy as np
import pytest
import torch
from torch import nn

from shoal.core.key import Key
from shoal.spec import to_table
from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.fedqp import FEDAVG, FEDMUT, FEDQP, PAPERS, first_round
from shoal.study.reproduce.fedqp_landscape import direction, loss_at, moved

SMALL = {"rounds": 3, "evaluate": {"every": 2}}  # evaluated after rounds 2 and 3
TAIL = {"tail": 2}
COLUMN = "mnist5k, mlp, beta = 0.1"
UNIFORM = "FedAvg, uniform"


def numbers(name):
    return EXPERIMENTS[name].scales["quick"].file.paper_numbers()["accuracy"]


def spec(name, row, column, seed=0):
    """A run at the scale of the paper, with every default."""
    return to_table(EXPERIMENTS[name].scales["paper"].grid.jobs((row, column))[seed].spec)


def test_the_papers_numbers_are_where_they_belong():
    table1, table2 = numbers("fedqp-table1"), numbers("fedqp-table2")
    assert table1.find(FEDQP, "cifar10, lenet, beta = 0.1") == 53.04
    assert table1.find("FedNTD", "cifar100, vgg16, beta = 0.5") == 59.24
    assert table1.find("FedGen", "cifar10, resnet18, IID") == 63.88
    assert table1.find(FEDQP, COLUMN) is None
    for row in PAPERS:  # the two tables share a column
        assert table2.find(row, "K = 10") == table1.find(row, "cifar10, resnet18, beta = 0.5")
    assert table2.find(FEDMUT, "K = 5") == 70.11
    assert len(table1.by_labels) == 24 * len(PAPERS)


def test_a_setting_is_the_papers():
    table = spec("fedqp-table2", FEDQP, "K = 10", seed=2)
    assert (table["task"]["dataset"], table["task"]["model"]) == ("cifar10", "resnet18")
    assert (table["partition"]["clients"], table["partition"]["beta"]) == (100, 0.5)
    assert (table["selector"]["count"], table["rounds"], table["seed"]) == (10, 2000, 2)
    local = table["local"]
    assert [local[name] for name in ("lr", "momentum", "batch", "epochs")] == [0.01, 0.5, 50, 5]
    coarse = spec("fedqp-table1", "CluSamp", "cifar100, resnet18, IID")
    assert coarse["task"]["labels"] == "coarse"
    assert coarse["partition"]["kind"] == "iid"
    assert (coarse["selector"]["name"], coarse["selector"]["count"]) == ("clustered", 10)


@pytest.mark.parametrize("name", ["fedqp-table1", "fedqp-figure3"])
def test_a_column_is_what_its_label_says(name):
    for experiment in EXPERIMENTS[name].scales.values():
        for label, line in experiment.grid.columns.items():
            task, partition = line.spec["task"], line.spec["partition"]
            skew = f"beta = {partition['beta']:g}" if partition["kind"] == "dirichlet" else "IID"
            assert label == f"{task['dataset']}, {task['model']}, {skew}"


def test_the_first_round_at_an_accuracy():
    answer = {"rounds": [2, 4, 6], "accuracies": [10.0, 50.0, 60.0]}
    assert (first_round(answer, 50.0), first_round(answer, 70.0)) == (4.0, None)


def test_table1(run, small):
    findings = small("fedqp-table1", SMALL, seeds=2, seeds_of={"FedNTD": 1, "FedGen": 1}, values=TAIL)(run)
    accuracy, ahead, ahead_of_uniform, deviations = findings.tables
    assert accuracy.rows == deviations.rows
    assert len(accuracy.rows) == 9
    assert not accuracy.compares  # other data
    assert accuracy.find("FedNTD", COLUMN).std is None
    gain = ahead.find(FEDQP, COLUMN)
    assert gain.paper == pytest.approx(53.04 - 47.10)
    means = {row: accuracy.find(row, COLUMN).ours for row in (FEDQP, FEDAVG, UNIFORM)}
    assert gain.ours == pytest.approx(means[FEDQP] - means[FEDAVG])
    other = ahead_of_uniform.find(FEDQP, COLUMN)
    assert other.paper is None
    assert other.ours == pytest.approx(means[FEDQP] - means[UNIFORM])
    assert any("those for CIFAR-10 with its CNN" in note for note in findings.notes)
    assert any("of 1 columns" in note for note in findings.notes)


def test_table2_changes_the_cohort(run, small):
    experiment = small("fedqp-table2", SMALL, seeds=1, rows=(FEDAVG, FEDMUT, FEDQP), values=TAIL)
    specs = []

    def watched(jobs):
        specs.extend(job.spec for job in jobs)
        return run(jobs)

    findings = experiment(watched)
    assert findings.tables[0].columns == ["K = 5", "K = 10", "K = 20"]
    assert [spec.selector.count for spec in specs] == [5, 5, 5, 10, 10, 10, 20, 20, 20]
    assert findings.tables[0].find(FEDMUT, "K = 5").paper is None  # other data
    assert findings.tables[1].find(FEDMUT, "K = 5").paper == pytest.approx(70.11 - 59.15)
    assert len(findings.tables) == 3  # nothing is ahead of a row that is not there


def test_figure3(run, small):
    columns = (COLUMN, "mnist5k, mlp, IID")
    findings = small("fedqp-figure3", SMALL, seeds=2, rows=(FEDAVG, FEDQP), columns=columns, values=TAIL)(run)
    assert [picture.name for picture in findings.pictures] == ["figure3-1", "figure3-2"]
    first = findings.pictures[0].figure.axes[0]
    assert list(first.get_lines()[0].get_xdata()) == [2, 3]
    assert findings.tables[1].columns == list(columns)
    assert 1 <= findings.tables[1].find(FEDAVG, columns[1]).ours <= 3


@pytest.mark.filterwarnings("ignore:the effective momentum")
def test_ablation_shows_the_momentum(run, small):
    rows = ("p = 0", "p = 0.3", "p = 1", "p = auto")
    findings = small("fedqp-ablation", SMALL, seeds=2, rows=rows, values=TAIL)(run)
    table = findings.tables[0]
    assert table.rows == list(rows)
    assert table.corner == COLUMN
    momenta = [table.find(row, "effective momentum").ours for row in rows[:3]]
    assert momenta == pytest.approx([0.0, 0.6, 2.0])
    lines = findings.pictures[1].figure.axes[0].get_lines()
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


def test_landscape(run, small):
    measure = {"points": 3, "directions": 2, "samples": 50}
    findings = small("fedqp-landscape", SMALL, seeds=2, values=TAIL, measure=measure)(run)
    table = findings.tables[0]
    assert table.rows == [FEDAVG, FEDMUT, FEDQP]
    assert table.columns == ["training loss", "sharpness at 0.5", "sharpness at 1"]
    assert table.find(FEDQP, "training loss").ours > 0
    surface, rising = findings.pictures
    assert [axes.get_title("left") for axes in surface.figure.axes[:3]] == [FEDAVG, FEDMUT, FEDQP]
    assert list(rising.figure.axes[0].get_lines()[0].get_ydata())[-1] == pytest.approx(
        table.find(FEDAVG, "sharpness at 1").ours
    )


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("fedqp-")])
def test_every_experiment_has_all_scales(name):
    assert list(EXPERIMENTS[name].scales) == ["quick", "machine", "paper"]
