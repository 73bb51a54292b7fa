"""The command line as a user has it: arguments in, exit code, stdout and stderr out."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import processes
import pytest
import tomli_w
import typer
from toy import heeds_ctrl_c, table

import shoal
from shoal import cli
from shoal.catalogues import listed
from shoal.cli.lists import FILE, LISTS

TESTS = Path(__file__).parent
COMMANDS = list(typer.main.get_command(cli.app).commands)
SLOW = {"matplotlib", "mlxtend", "numba", "numpy", "pandas", "pooch", "pydantic", "scipy", "sklearn", "torch"}


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(tomli_w.dumps(table(rounds=2, evaluate={"every": 1})))
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["shoal", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def test_run(call, tmp_path):
    code, out, _ = call("run", "toy.toml", "--out", "here")
    assert code == 0
    assert "Report: here/report.html" in out
    assert (tmp_path / "here" / "summary.json").exists()


def test_run_as_json_prints_one_object(call, tmp_path):
    code, out, _ = call("run", "toy.toml", "--method", "fedprox", "--set", "method.mu=0.5", "--json")
    assert code == 0
    printed = json.loads(out)
    assert printed["method"] == "fedprox"
    assert printed["out"] == "runs/001-fedprox-toy.blobs"
    summary = json.loads((tmp_path / printed["out"] / "summary.json").read_text())
    assert {name: printed[name] for name in summary} == summary
    assert "mu = 0.5" in (tmp_path / printed["out"] / "spec.toml").read_text()
    again = json.loads(call("run", "toy.toml", "--json")[1])
    assert again["out"] == "runs/002-fedavg-toy.blobs"


def test_two_runs_have_the_same_bits(call):
    first, second = (json.loads(call("run", "toy.toml", "--json")[1])["weights_sha256"] for _ in range(2))
    assert first == second == shoal.run(table(rounds=2)).weights_sha256


def test_resume_of_a_finished_run_does_nothing(call):
    call("run", "toy.toml", "--out", "here")
    code, out, err = call("resume", "here", "--json")
    assert code == 0
    assert "finished" in err
    assert json.loads(out)["rounds"] == 2


def test_compare(call, tmp_path):
    arguments = (
        "compare",
        "fedavg",
        "fedprox:mu=0.5,weights=uniform",
        "--spec",
        "toy.toml",
        "--seeds",
        "0,1",
    )
    code, out, _ = call(*arguments, "--out", "both", "--json")
    assert code == 0
    printed = json.loads(out)
    assert set(printed["methods"]) == {"fedavg", "fedprox:mu=0.5,weights=uniform"}
    finals = [
        json.loads((tmp_path / "both" / f"fedavg-seed{seed}" / "summary.json").read_text())["final_accuracy"]
        for seed in (0, 1)
    ]
    assert printed["methods"]["fedavg"]["final_accuracy"]["mean"] == pytest.approx(sum(finals) / 2)
    assert printed["methods"]["fedavg"]["final_accuracy"]["std"] == pytest.approx(
        abs(finals[0] - finals[1]) / 2**0.5
    )
    assert (tmp_path / "both" / "report.html").exists()
    spec = (tmp_path / "both" / "fedprox-mu=0.5-weights=uniform-seed1" / "spec.toml").read_text()
    assert 'weights = "uniform"' in spec
    code, out, _ = call(*arguments, "--out", "both")
    assert code == 0
    assert "fedprox:mu=0.5" in out


def test_compare_runs_only_what_is_missing(call, tmp_path):
    call("compare", "fedavg", "--spec", "toy.toml", "--seeds", "0", "--out", "both")
    done = tmp_path / "both" / "fedavg-seed0" / "summary.json"
    before = done.stat().st_mtime_ns
    call("compare", "fedavg", "local", "--spec", "toy.toml", "--seeds", "0,1", "--out", "both")
    assert done.stat().st_mtime_ns == before
    assert len(list((tmp_path / "both").glob("*/summary.json"))) == 4
    settings = ("--set", "rounds=1")
    code, _, err = call("compare", "fedavg", "--spec", "toy.toml", "--seeds", "0", "--out", "both", *settings)
    assert code == 2
    assert "holds a run of another spec" in err


def test_partition(call, tmp_path):
    code, out, _ = call("partition", "toy.toml", "--json")
    printed = json.loads(out)
    assert code == 0
    assert (printed["clients"], printed["classes"]) == (8, 4)
    assert sum(map(sum, printed["counts"])) == 320
    code, out, _ = call("partition", "toy.toml", "--out", "picture.png")
    assert code == 0
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_partition_of_a_regression(call):
    settings = ("--set", "task.dataset=boston", "--set", "task.model=linear", "--set", "partition.kind=iid")
    code, out, _ = call("partition", *settings, "--set", "partition.clients=4", "--json", "--out", "p.png")
    assert code == 0
    assert json.loads(out) == {"clients": 4, "classes": 0, "counts": [[101]] * 4}


def test_report(call, tmp_path):
    call("run", "toy.toml", "--out", "one")
    call("run", "toy.toml", "--method", "local", "--out", "two")
    code, out, _ = call("report", "one", "two", "--out", "page.html")
    assert code == 0
    assert "page.html" in out
    assert "local" in (tmp_path / "page.html").read_text()
    assert call("report", "one", "two", "--out", "curves.png")[0] == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert call("report", "one", "two", "--out", "more/loss.svg", "--chart", "test loss")[0] == 0
    assert "Test loss" in (tmp_path / "more" / "loss.svg").read_text()
    code, _, said = call("report", "one", "two", "--out", "x.png", "--chart", "Newcomers")
    assert (code, len(said.splitlines())) == (2, 1)
    assert 'no chart "Newcomers"; they have "Accuracy over rounds", "Final accuracy"' in said
    code, _, said = call("report", "one", "--out", "x.html", "--chart", "Test loss")
    assert (code, "--chart draws a picture" in said) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare"], "Missing argument 'NAME'; see"),
        (["report", "x"], "Missing option '--out'; see"),
        (["newcomers"], "No such command 'newcomers'; see"),
        (["methods", "--nope"], "No such option: --nope; see"),
    ],
)
def test_a_line_that_is_no_command(monkeypatch, capsys, arguments, said):
    monkeypatch.setattr("sys.argv", ["shoal", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"shoal: {said}")


@pytest.mark.parametrize("command", LISTS)
def test_lists(call, command):
    code, out, _ = call(command, "--json")
    listed = json.loads(out)
    assert code == 0
    assert listed
    assert all(entry["summary"] for entry in listed.values())
    code, out, _ = call(command)
    assert code == 0
    assert all(name in out for name in listed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "toy.toml", "--set", "local.lrr=1"], ["local.lrr", "did you mean local.lr?"]),
        (["run", "toy.toml", "--set", "local.lr=fast"], ["local.lr must be a number", "'fast'"]),
        (["run", "toy.toml", "--method", "fedavgg"], ["fedavgg", "did you mean fedavg?"]),
        (["run", "--set", "task.dataset=mnist55k"], ["mnist55k", "did you mean mnist5k?"]),
        (
            ["run", "--set", "partition.kind=dirichlet", "--set", "partition.beta=0"],
            ["beta must be > 0, got 0"],
        ),
        (["run", "--set", "partition.kind=iid", "--set", "partition.clients=5000"], ["5000", "4000"]),
        (["run", "toy.toml", "--set", "selector.count=9"], ["count = 9", "population of 8"]),
        (["run", "toy.toml", "--out", "taken"], ["taken already holds"]),
        (["run", "broken.toml"], ["broken.toml is not valid TOML"]),
        (["run", "absent.toml"], ["absent.toml does not exist"]),
        (
            ["run", "toy.toml", "--engine", "cloud"],
            ["engine.name must be one of local, ray, flower; got 'cloud'"],
        ),
        (["run", "toy.toml", "--set", "rounds"], ["path.to.field=value"]),
        (["run", "--set", "task.dataset=svhn"], ["svhn/train_32x32.mat", "md5:e26dedcc", "SHOAL_DATA"]),
        (["resume", "nowhere"], ["nowhere is not a run directory"]),
        (["compare", "fedavg", "--seeds", "a,b"], ["--seeds must be whole numbers", "a,b"]),
        (["compare", "fedavg", "fedavg"], ["every method must be named once"]),
        (["compare", "fedavg", "--spec", "toy.toml", "--set", "method.mu=1"], ["unknown key method.mu"]),
        (["partition", "toy.toml"], ["--out picture.png"]),
        (["partition", "toy.toml", "--out", "picture.doc"], ["picture.doc must end in one of .png"]),
        (["report", "toy.toml", "--out", "page.html"], ["toy.toml is not a run"]),
    ],
)
def test_bad_input_ends_with_two_and_a_line(call, tmp_path, arguments, said, monkeypatch):
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "broken.toml").write_text("rounds = = 3")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) <= 2
    assert "Traceback" not in err
    for words in said:
        assert words in err
    after = sorted(str(path) for path in tmp_path.rglob("*") if "data" not in path.parts)
    assert after == before


def test_ctrl_c_ends_a_run_without_losing_it(tmp_path):
    """As a user presses it: in another process, in the middle of a run."""
    tables = table(rounds=2000, evaluate={"every": 1})
    (tmp_path / "toy.toml").write_text(tomli_w.dumps(tables))
    code = "from shoal.cli import main; main()"
    command = [sys.executable, "-c", code, "run", "toy.toml", "--out", "here"]
    environment = processes.environment()
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeds_ctrl_c,
    )
    deadline = time.monotonic() + 60
    rounds = tmp_path / "here" / "rounds.jsonl"
    while not rounds.exists() or len(rounds.read_bytes().splitlines()) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1] == "shoal: stopped; go on with: shoal resume here"
    assert "Traceback" not in err


def test_help_of_every_command(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "Print the version and exit." in out
    for command in COMMANDS:
        assert command in out
        assert call(command, "--help")[0] == 0


def test_version(call):
    code, out, _ = call("--version")
    assert code == 0
    assert out == f"shoal {shoal.__version__}\n"


def test_explaining_and_listing_load_nothing_slow(tmp_path):
    """In another process, which starts without them; it prints those that it has loaded in the end."""
    explained = [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)]
    listed = [[command, *flags] for command in LISTS for flags in ((), ("--json",))]
    code = f"""
import sys
from shoal.cli import app
for arguments in {explained + listed}:
    app(arguments, standalone_mode=False)
print({SLOW} & set(sys.modules))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_lists_are_those_of_the_catalogues():
    assert json.loads(FILE.read_text(encoding="utf-8")) == listed(), "a catalogue changed: run `make lists`"


def test_refused_replies_are_said(call):
    code, _, err = call("run", "toy.toml", "--set", "local.lr=1e30")
    assert code == 0
    assert "replies were refused, the first because its numbers are not finite" in " ".join(err.split())


def test_compare_with_fields_of_the_spec(call, tmp_path):
    code, _, _ = call(
        "compare", "fedavg:local.lr=0.01", "--spec", "toy.toml", "--seeds", "0", "--out", "both"
    )
    assert code == 0
    assert "lr = 0.01" in (tmp_path / "both" / "fedavg-local.lr=0.01-seed0" / "spec.toml").read_text()
    code, _, err = call("compare", "fedavg", "--spec", "toy.toml", "--set", "seed=5")
    assert code == 2
    assert "seeds come from --seeds" in err
