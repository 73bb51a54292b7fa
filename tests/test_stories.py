"""What people come to Shoal for, from beginning to end. Data larger than memory are in data/test_sites.py,
the notebook is in test_python.py."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
import torch
from toy import table

import shoal
from shoal import cli

ROOT = Path(__file__).parents[1]
MODEL = """
from torch import nn

def net(shape, classes, *, hidden: int = 16):
    first = nn.Linear(shape[0], hidden)
    return nn.Sequential(first, nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, classes))
"""


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder, in this process; returns what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    tables = table(rounds=2, evaluate={"every": 1}, engine={"mode": "serial"})
    (tmp_path / "toy.toml").write_text(tomli_w.dumps(tables))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["shoal", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        assert ended.value.code == 0, captured.err
        return captured.out

    return run


def hospitals(folder):
    folder.mkdir()
    for site, shift in (("north", 0), ("south", 4)):
        rows = [
            f"{i % 17 + shift},{'m' if i % 3 else 'f'},{'sick' if i % 17 > 8 else 'well'}" for i in range(80)
        ]
        (folder / f"{site}.csv").write_text("age,sex,state\n" + "\n".join(rows))


def test_hospitals_with_one_csv_each_get_a_table_of_sites(call, tmp_path):
    hospitals(tmp_path / "sites")
    spec = {
        "rounds": 5,
        "task": {"dataset": "csv", "path": "sites/*.csv", "label": "state", "model": "linear"},
        "engine": {"mode": "serial"},
    }
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(spec))
    out = call("run", "mine.toml", "--out", "run")
    lines = [line.split() for line in out.splitlines()]
    assert ["Client", "Samples", "sick", "well", "Rounds", "Accuracy", "%"] in lines
    assert next(line for line in lines if line[:1] == ["north"])[1] == "64"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "north" in page
    assert "Each client" in page
    assert "south" in call("report", "run", "--out", "page.html") + (tmp_path / "page.html").read_text()


def test_a_model_of_ones_own_with_batch_norm(call, tmp_path):
    (tmp_path / "my_model_of_a_story.py").write_text(MODEL)
    settings = ("--set", "task.model=my_model_of_a_story:net", "--set", "task.hidden=8")
    toy = tomli_w.dumps({**table(rounds=2), "task": {"dataset": "toy:blobs", "model": "linear"}})
    (tmp_path / "own.toml").write_text(toy)
    printed = json.loads(call("run", "own.toml", "--method", "fedbn", *settings, "--json", "--out", "run"))
    assert printed["personalised"]
    call("export", "run", "--out", "client.pt", "--client", "3")
    assert torch.load(tmp_path / "client.pt", weights_only=True)["1.running_mean"].shape == (8,)
    call("export", "run", "--out", "each.safetensors", "--client", "all")
    assert len(list(tmp_path.glob("each-*.safetensors"))) == 8


def test_a_sweep_becomes_a_table_in_latex(call, tmp_path):
    sweep = ("--spec", "toy.toml", "--seeds", "0-2", "--grid", "local.lr=0.01,0.1", "--set", "rounds=1")
    out = call("compare", "fedavg", *sweep, "--out", "table.tex")
    text = (tmp_path / "table.tex").read_text()
    assert text.count(r" \\") == 3
    assert r"fedavg:local.lr=0.1 & 3 & " in text
    assert "Difference to fedavg:local.lr=0.01" in text
    assert r"$\pm$" in text
    folder = next(line for line in out.splitlines() if line.startswith("Report: ")).split()[1]
    again = call("report", Path(folder).parent, "--out", "table.csv")
    assert "Table: table.csv" in again
    assert (tmp_path / "table.csv").read_text().startswith("label,seeds,final_accuracy,final_accuracy_std,")
    markdown = call("compare", "fedavg", *sweep, "--out", Path(folder).parent, "--format", "markdown")
    assert markdown.startswith("| Method | Seeds | Final accuracy (%) |")


def test_a_new_method_in_fewer_than_sixty_lines(call, tmp_path):
    text = (ROOT / "examples" / "new_method.py").read_text()
    assert len(text.splitlines()) < 60
    (tmp_path / "my_method_of_a_story.py").write_text(text)
    printed = json.loads(
        call("run", "toy.toml", "--method", "my_method_of_a_story:FedNesterov", "--json", "--out", "run")
    )
    assert printed["method"] == "my_method_of_a_story:FedNesterov"
    assert printed["final_accuracy"] > 0.3


def test_a_model_goes_out_and_comes_in_again(call, tmp_path):
    call("run", "toy.toml", "--out", "first")
    call("export", "first", "--out", "model.pt")
    start = ("--set", "task.init=model.pt", "--set", "local.lr=1e-12")
    call("run", "toy.toml", *start, "--out", "second")
    before, after = (
        json.loads((tmp_path / name / "summary.json").read_text())["final_accuracy"]
        for name in ("first", "second")
    )
    assert before == after


def test_a_sweep_that_was_killed_goes_on(tmp_path):
    """As at night: SIGKILL in the middle, then the same command."""
    (tmp_path / "toy.toml").write_text(tomli_w.dumps(table(rounds=25, engine={"mode": "serial"})))
    code = "from shoal.cli import main; main()"
    command = [sys.executable, "-c", code, "compare", "fedavg", "--spec", "toy.toml", "--seeds", "0-1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])}
    process = subprocess.Popen([*command, "--out", "sweep"], cwd=tmp_path, env=environment)
    rounds = tmp_path / "sweep" / "fedavg-seed1" / "rounds.jsonl"
    deadline = time.monotonic() + 120
    while not rounds.exists() or len(rounds.read_bytes().splitlines()) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not (tmp_path / "sweep" / "fedavg-seed1" / "summary.json").exists()
    kept = (tmp_path / "sweep" / "fedavg-seed0" / "summary.json").stat().st_mtime_ns
    done = subprocess.run(
        [*command, "--out", "sweep", "--json"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sweep" / "fedavg-seed0" / "summary.json").stat().st_mtime_ns == kept

    whole = shoal.run(table(rounds=25, seed=1, engine={"mode": "serial"}))
    summary = json.loads((tmp_path / "sweep" / "fedavg-seed1" / "summary.json").read_text())
    assert summary["weights_sha256"] == whole.weights_sha256
