"""Shoal as people use it from Python: objects in, results that one can show out."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from toy import blobs, net, table

import shoal
from shoal import SpecError
from shoal.methods.fedprox import FedProx
from shoal.runs.progress_line import ProgressLine
from shoal.solver.sgd import Sgd

SMALL = {
    "engine": {"mode": "serial"},
    "rounds": 2,
    "partition": {"kind": "dirichlet", "clients": 8, "beta": 0.5, "min_size": 5},
    "local": {"lr": 0.1, "batch": 8, "epochs": 2},
}


class Net(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.fc = nn.Linear(hidden, 4)

    def forward(self, x):
        return self.fc(self.body(x))


def test_run_takes_objects():
    by_name = shoal.run(table(rounds=2, selector="all"))
    given = {"seed": 3, "selector": "all", "evaluate": {"every": 0}, **SMALL}
    assert shoal.run(dataset=blobs(), model=net, **given).weights_sha256 == by_name.weights_sha256
    assert shoal.run(dataset=blobs, model="toy:net", **given).weights_sha256 == by_name.weights_sha256
    assert shoal.run(given, dataset=blobs, model=net, rounds=1).rounds == 1


def test_a_model_of_ones_own_is_a_class_an_instance_or_a_function():
    local_net = lambda: Net(6)  # noqa: E731
    for model in (Net, Net(5), local_net, lambda shape, classes: nn.Linear(shape[0], classes)):
        result = shoal.run(dataset=blobs, model=model, method="fedbn", **SMALL)
        assert result.mean_client_accuracy is not None
    start = Net()
    result = shoal.run(dataset=blobs, model=start, **{**SMALL, "local": {"lr": 1e-12}})
    assert torch.allclose(result.model().fc.weight, start.fc.weight)  # its weights are the initial ones


def test_a_method_may_be_an_object():
    local = Sgd(lr=0.1, batch=8, epochs=2)
    given = {key: value for key, value in SMALL.items() if key != "local"}
    one = shoal.run(dataset=blobs, model=net, method=FedProx(mu=0.5, local=local), **given)
    two = shoal.run(dataset=blobs, model=net, method={"name": "fedprox", "mu": 0.5}, **SMALL)
    assert one.weights_sha256 == two.weights_sha256


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dataset": 3}, "task.dataset must be a name, a Dataset, or a function"),
        ({"dataset": blobs, "model": [1]}, "task.model must be a name, an nn.Module"),
        ({"dataset": blobs, "model": Net, "lr": 0.1}, "did you mean local="),
        ({"dataset": lambda: 5}, "returned a int; it must return a shoal.Dataset"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    with pytest.raises(SpecError, match=said):
        shoal.run(**given)


def test_results_can_be_shown():
    result = shoal.run(dataset=blobs, model=net, **SMALL)
    assert repr(result).startswith("<Result of fedavg, 2 rounds: Final accuracy (%) ")
    assert len(repr(result)) < 200
    assert "<table>" in result._repr_html_()
    assert len(result.frame()) == 2
    clients = result.frame("clients")
    assert list(clients["client"]) == list(range(8))
    assert clients["samples"].sum() == 320
    assert clients["accuracy"].mean() == pytest.approx(result.mean_client_accuracy)
    assert "<svg" in result.plot()._repr_svg_()
    with pytest.raises(SpecError, match="no round has measured 'beauty'"):
        result.plot("beauty")


def test_sites_keep_their_names(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},{'lo' if i < 5 else 'hi'}\n" for i in range(20)))
    (tmp_path / "b.csv").write_text((tmp_path / "a.csv").read_text())
    task = {"dataset": "csv", "path": str(tmp_path / "*.csv"), "label": "y", "model": "linear"}
    result = shoal.run(task=task, rounds=1)
    assert [row["name"] for row in result.clients] == ["a", "b"]
    assert set(result.records[0]["sites"]) == {"a", "b"}
    assert result.summary["class_names"] == ["hi", "lo"]
    assert isinstance(result.model(client="b"), nn.Module)
    with pytest.raises(SpecError, match="there is no client 'c'; names are a, b"):
        result.model(client="c")


def test_compare_and_load(tmp_path):
    given = {"dataset": "toy:blobs", "model": "toy:net", **SMALL}
    found = shoal.compare(["fedavg", "fedprox:mu=0.5"], seeds=range(3), out=tmp_path / "both", **given)
    assert [row.label for row in found.rows] == ["fedavg", "fedprox:mu=0.5"]
    assert len(found.frame()) == 6
    assert repr(found).startswith("<Comparison of 6 runs, Final accuracy (%): fedavg ")
    assert "Difference to fedavg" in found._repr_html_()
    assert "<svg" in found.plot()._repr_svg_()
    again = shoal.load(tmp_path / "both")
    assert len(again.views) == 6
    one = shoal.load(tmp_path / "both" / "fedavg-seed0")
    first = shoal.run(**given, seed=0)
    assert one.weights_sha256 == first.weights_sha256
    assert one.records[-1]["accuracy"] == first.final_accuracy
    assert torch.equal(one.model().state_dict()["0.weight"], first.model().state_dict()["0.weight"])
    assert (tmp_path / "both" / "report.html").exists()


def test_compare_in_memory_takes_objects_and_a_grid():
    found = shoal.compare(
        ["fedavg", "local"], dataset=blobs(), model=Net, seeds=[0], grid={"local.lr": [0.01, 0.1]}, **SMALL
    )
    labels = ["fedavg:local.lr=0.01", "fedavg:local.lr=0.1", "local:local.lr=0.01", "local:local.lr=0.1"]
    assert [row.label for row in found.rows] == labels


def test_a_run_of_objects_says_that_it_cannot_go_on_elsewhere(tmp_path):
    shoal.run(dataset=blobs(), model=Net(), out=tmp_path / "run", report=False, **SMALL)
    assert 'dataset = "python:blobs"' in (tmp_path / "run" / "spec.toml").read_text()
    loaded = shoal.load(tmp_path / "run")
    assert loaded.final_accuracy is not None
    with pytest.raises(SpecError, match="was an object of the Python process that started the run"):
        loaded.model()


def test_progress_is_one_line_that_is_rewritten(monkeypatch):
    monkeypatch.setattr("shoal.runs.progress_line.OFTEN", 0.0)
    shown = io.StringIO()
    line = ProgressLine("fedavg", 2, shown, rewrite=True)
    for round in (1, 2):
        line({"round": round, "accuracy": 0.5})
    first, last = shown.getvalue().split("\r")[1:]
    assert first.startswith("fedavg: round 1 of 2, 50.0 %, 0 s left")
    assert last.rstrip() == "fedavg: round 2 of 2, 50.0 %"
    shoal.run(dataset=blobs, model=net, **SMALL)  # nothing is shown where nobody looks
    monkeypatch.setattr(sys, "stderr", shown)
    assert shoal.run(dataset=blobs, model=net, progress=True, **SMALL).rounds == 2
    assert "fedavg: round 2 of 2" in shown.getvalue().split("%")[-2]


# ---- a warm start


def test_a_run_can_start_from_the_weights_of_another(tmp_path):
    given = {"dataset": "toy:blobs", "model": "toy:net", **SMALL}
    first = shoal.run(**given, out=tmp_path / "first", report=False)
    path = str(tmp_path / "first" / "model.safetensors")
    task = {"dataset": "toy:blobs", "model": "toy:net", "init": path}
    still = shoal.run(task=task, **{**SMALL, "local": {"lr": 1e-12}})
    assert torch.allclose(still.model().state_dict()["0.weight"], first.model().state_dict()["0.weight"])
    torch.save(first.model().state_dict(), tmp_path / "model.pt")
    again = shoal.run(task=task | {"init": str(tmp_path / "model.pt")}, **{**SMALL, "local": {"lr": 1e-12}})
    assert again.weights_sha256 == still.weights_sha256


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("0.bias"), "has no '0.bias', which the model has"),
        (lambda w: w.update(extra=torch.zeros(1)), "has 'extra', which the model has not"),
        (
            lambda w: w.update({"0.bias": torch.zeros(3)}),
            r"0.bias has shape \(3,\), but the model's has \(12,\)",
        ),
    ],
)
def test_a_start_that_does_not_fit_is_refused(tmp_path, change, said):
    weights = net((10,), 4).state_dict()
    change(weights)
    save_file(weights, tmp_path / "w.safetensors")
    task = {"dataset": "toy:blobs", "model": "toy:net", "init": str(tmp_path / "w.safetensors")}
    with pytest.raises(SpecError, match=said):
        shoal.run(task=task, **SMALL)


# ---- the notebook


def test_the_notebook_runs(monkeypatch, tmp_path):
    """Its cells are executed one after another, as Jupyter would."""
    root = Path(__file__).parents[1]
    notebook = json.loads((root / "examples" / "tour.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        exec(compile(source, f"cell {number}", "exec"), space)
