"""The experiments of Federated Swarm Intelligence, at a size of a second or two."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import shoal
from shoal.runs.build import load_and_partition
from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.fsi_digits import OURS, confusion_of
from shoal.study.reproduce.fsi_houses import least_squares

FAR = "[0, 1), exact"
LEAST_SQUARES = 23.1956


def numbers(name):
    return EXPERIMENTS[name].scales["quick"].file.paper_numbers()


def test_least_squares_is_the_papers_benchmark():
    error, coefficients = least_squares()
    assert error == pytest.approx(LEAST_SQUARES, abs=5e-5)
    paper = [*numbers("fsi-table1")["coefficients"].by_labels.values()]
    assert coefficients == pytest.approx(paper, rel=2e-4)


def test_four_clients_hold_consecutive_rows():
    _, shards = load_and_partition(
        EXPERIMENTS["fsi-table1"].scales["quick"].grid.jobs(("w1 = 0", "w2 = 1"))[0].spec
    )
    assert [sorted(shards.indices(i)) for i in range(4)] == np.arange(404).reshape(4, 101).tolist()


def test_table1(run, small):
    without = {f"w1 = {w1}, w2 = {w2}": 2 for w1, w2 in (("0", "1"), ("0.4", "0.6"), ("1", "0"))}
    findings = small("fsi-table1", {"method": {"epochs": 200}}, seeds=1, seeds_of=without)(run)
    errors, ended, benchmark, coefficients = findings.tables
    assert len(errors.cells) == 21
    assert errors.find("w1 = 0.6", "w2 = 0.2").paper == 40.9808
    assert errors.find("w1 = 0.6", "w2 = 0.6") is None
    assert errors.find("w1 = 0.2", "w2 = 0.2").std is None
    assert errors.find("w1 = 0", "w2 = 1").std is not None
    assert errors.find("w1 = 1", "w2 = 0").ours > 1000  # nobody ever moves
    assert sum(cell.ours for cell in ended.cells if cell.row == "w1 = 0.4, w2 = 0.6") == 2
    assert [cell.ours for cell in ended.cells if cell.row == "w1 = 1, w2 = 0"] == [0, 2, 0]
    assert benchmark.cells[0].ours == pytest.approx(23.1956, abs=5e-5)
    assert len(coefficients.cells) == 14


def test_every_run_has_the_epochs_that_the_page_names():
    for name in ("fsi-table1", "fsi-figure7", "fsi-figure8"):
        for experiment in EXPERIMENTS[name].scales.values():
            epochs = experiment.scale.values["epochs"]
            for cell in experiment.grid.cells:
                table = experiment.grid.table(cell)
                assert table["rounds"] * table["method"]["epochs"] == epochs
                fixed = cell[0].startswith("fixed")
                assert table["method"]["patience"] == (epochs + 1 if fixed else 5)


def test_figure7_begins_where_it_says(run, small):
    spec, values = {"rounds": 10, "method": {"epochs": 10}}, {"first_epoch": 40}
    findings = small("fsi-figure7", spec, seeds=1, values=values)(run)
    assert [cell.paper for cell in findings.tables[0].cells][-1] == LEAST_SQUARES
    lines = findings.pictures[0].figure.axes[0].get_lines()[:6]  # beyond them, those of the legend
    assert [[line.get_xdata()[0], line.get_xdata()[-1]] for line in lines] == [[40, 100]] * 6


def test_figure8_holds_the_fixed_steps_fixed(run, small):
    specs = []

    def watched(jobs):
        specs.extend(job.spec for job in jobs)
        return run(jobs)

    spec = {"rounds": 4, "method": {"epochs": 50, "patience": 201}}
    findings = small("fsi-figure8", spec, seeds=2)(watched)
    assert len(findings.tables[0].rows) == 1 + 6
    assert findings.tables[0].columns == ["test MSE", "training MSE"]
    fixed = [spec for spec in specs if spec.method.alpha == spec.method.alpha_max]
    assert len(fixed) == 2 * 6
    for spec in fixed:
        steps = {record["step_size"] for record in shoal.run(spec).records}
        assert steps == {spec.method.alpha}
    assert "The paper finds the adaptive step size best" in findings.notes[0]


def test_digits(run, small):
    findings = small("fsi-digits", {"rounds": 4, "method": {"epochs": 5}}, seeds=2, seeds_of={FAR: 1})(run)
    overall, each = findings.tables
    assert [cell.row for cell in overall.cells] == [OURS, FAR]
    assert overall.cells[0].paper == 80.2
    assert 10 <= overall.cells[0].ours <= 100
    digits = [each.find(str(digit), OURS) for digit in range(10)]
    assert [cell.paper for cell in digits] == [95, 95, 79, 71, 92, 67, 83, 91, 70, 59]
    assert np.mean([cell.ours for cell in digits]) == pytest.approx(overall.cells[0].ours)
    assert [picture.name for picture in findings.pictures] == ["figure9", "figure10"]
    names = [text.get_text() for text in findings.pictures[1].figure.axes[0].texts]
    assert sorted(names) == [f"model {digit}" for digit in range(10)]


def test_large_outputs_are_still_told_apart():
    """In float32 the sigmoids of 20 and of 30 are both 1, and the first class would win."""
    model = torch.nn.Linear(1, 2)
    model.load_state_dict({"weight": torch.tensor([[20.0], [30.0]]), "bias": torch.zeros(2)})
    x, y = torch.ones(3, 1), torch.tensor([1, 1, 0])
    data = shoal.Dataset("two", x, y, x, y, classes=2)
    result = SimpleNamespace(dataset=data, model=lambda: model, records=[{"problem_losses": [0.5, 0.25]}])
    assert confusion_of(result) == {"confusion": [[0, 1], [0, 2]], "losses": [[0.5, 0.25]]}


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("fsi-")])
def test_every_experiment_has_all_scales(name):
    assert list(EXPERIMENTS[name].scales) == ["quick", "machine", "paper"]
