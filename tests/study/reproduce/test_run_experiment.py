"""An experiment from its name to its folder, and the command that does it."""

import json
import re
import sys
from pathlib import Path

import pytest
from study.reproduce.tiny import CATALOGUE, TINY, job

import shoal
import shoal.study.reproduce
from shoal import cli
from shoal.core.errors import SpecError
from shoal.study.reproduce.experiment import ComparisonTable, PaperNumber, compared
from shoal.study.reproduce.run_experiment import perform


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The tiny experiment, performed once."""
    folder = tmp_path_factory.mktemp("done") / "deep" / "tiny"
    return perform("toy-table0", "quick", folder, CATALOGUE), folder


def finals():
    return [100 * shoal.run(job(seed).spec).final_accuracy for seed in range(3)]


def test_the_result_has_the_agreed_shape(done):
    outcome, folder = done
    result = json.loads((folder / "result.json").read_text())
    assert result["name"] == "toy-table0"
    assert result["seconds"] > 0
    assert outcome.fresh == 3
    first, second = result["cells"]
    values = finals()
    mean = sum(values) / 3
    std = (sum((value - mean) ** 2 for value in values) / 2) ** 0.5
    assert first == {
        **{"table": "Accuracy", "row": "toy", "column": "final (%)", "paper": 75.0},
        **{"ours": pytest.approx(mean), "std": pytest.approx(std)},
    }
    assert second == {
        **{"table": "Accuracy", "row": "toy", "column": "nothing", "paper": None, "ours": None, "std": None}
    }
    assert result["command"] == f"shoal reproduce toy-table0 --scale quick --out {folder}"
    assert (result["scale"], result["notes"]) == ("quick", ["Told <apart>."])
    assert "torch" in result["environment"]


def test_the_folder_holds_pictures_a_page_and_the_runs(done):
    _, folder = done
    assert {path.name for path in folder.iterdir()} == {
        *("experiment.json", "runs", "result.json", "report.html", "curve.png")
    }
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (folder / "runs").iterdir()} == {"seed0", "seed1", "seed2"}
    assert [path.name for path in folder.rglob("*.part")] == []


def test_the_page_tells_all_and_needs_nothing(done):
    _, folder = done
    page = (folder / "report.html").read_text()
    for words in (
        "Table 0: a toy",
        "Nobody, Nothing",
        "75.00",
        "A &lt;curve&gt;",
        "Told &lt;apart&gt;.",
        "<svg",
    ):
        assert words in page
    assert "shoal reproduce toy-table0" in page
    assert "seed = 1" in page  # in what a run differs
    assert not re.search(r'(?:src|href)="http', page)


def test_the_same_command_plays_only_what_is_missing(done, tmp_path):
    before, folder = done
    marks = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*") if path.is_file()}
    again = perform("toy-table0", "quick", folder, CATALOGUE)
    assert again.fresh == 0
    assert again.result == before.result
    assert marks == {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*") if path.is_file()}
    (folder / "runs" / "seed1" / "answer.json").unlink()
    third = perform("toy-table0", "quick", folder, CATALOGUE)
    assert third.fresh == 1
    assert third.result["cells"] == before.result["cells"]
    assert third.result["seconds"] > before.result["seconds"]


def test_a_folder_of_something_else_is_refused(done, tmp_path):
    _, folder = done
    with pytest.raises(SpecError, match="holds toy-table0 at scale quick, not toy-table0 at scale machine"):
        perform("toy-table0", "machine", folder, CATALOGUE)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SpecError, match="already holds other files; choose another --out"):
        perform("toy-table0", "quick", tmp_path, CATALOGUE)
    with pytest.raises(SpecError, match=r"mine.txt already holds other files"):
        perform("toy-table0", "quick", tmp_path / "mine.txt", CATALOGUE)
    with pytest.raises(SpecError, match="cannot be made: Not a directory; choose another --out"):
        perform("toy-table0", "quick", tmp_path / "mine.txt" / "below", CATALOGUE)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# -- numbers


def test_cells_are_means_over_seeds():
    assert compared("r", "c", 1.0, [1.0, 3.0]) == PaperNumber("r", "c", 1.0, 2.0, 2**0.5)
    assert compared("r", "c", None, [4.0]) == PaperNumber("r", "c", None, 4.0, None)
    assert compared("r", "c", 1.0, [None]) == PaperNumber("r", "c", 1.0, None, None)


@pytest.mark.parametrize(
    ("ours", "std", "text"),
    [
        (23.19561, None, "23.1956"),
        (23.19561, 0.00001, "23.1956"),
        (33.12345, 5.1234, "33.1 ± 5.1"),
        (0.5, 0.0123, "0.500 ± 0.012"),
        (22332.6867, 4321.0, "22333 ± 4321"),
        (-20.5003, None, "-20.5003"),
        (-0.00001, None, "0.0000"),
        (22332.6867, None, "22332.69"),
        (123456789.5, None, "123456790"),
        (None, None, "–"),
    ],
)
def test_numbers_show_the_digits_that_mean_something(ours, std, text):
    table = ComparisonTable("t", [], decimals=4)
    assert table.ours(PaperNumber("r", "c", 1.0, ours, std)) == text
    assert table.papers(PaperNumber("r", "c", 24.7145, ours, std)) == "24.7145"


# -- the command


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder, in this process, with the tiny catalogue."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(shoal.study.reproduce, "EXPERIMENTS", CATALOGUE)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["shoal", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def test_without_a_name_it_lists(call):
    code, out, _ = call()
    assert code == 0
    assert "toy-table0" in out
    code, out, _ = call("--json")
    assert json.loads(out) == {
        "toy-table0": {"summary": TINY.summary, "paper": TINY.paper, "scales": ["quick", "machine"]}
    }


def test_a_name_runs_it(call):
    code, out, err = call("toy-table0")
    assert code == 0
    assert "75.00" in out
    assert "Told <apart>." in out
    assert "Report: runs/toy-table0-quick/report.html" in out
    assert "already" not in err
    code, out, err = call("toy-table0", "--json")
    printed = json.loads(out)
    assert printed["out"] == "runs/toy-table0-quick"
    assert {key: printed[key] for key in ("name", "cells", "seconds")} == {
        key: json.loads(Path("runs/toy-table0-quick/result.json").read_text())[key]
        for key in ("name", "cells", "seconds")
    }
    assert "All runs were in runs/toy-table0-quick already" in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["toy-tabel0"], "unknown experiment toy-tabel0; did you mean toy-table0?"),
        (["toy-table0", "--scale", "huge"], "--scale must be one of quick, machine, paper; got 'huge'"),
        (["toy-table0", "--scale", "paper"], "toy-table0 has no scale paper; it has: quick, machine"),
        (["--out", "here"], "--out needs the name of an experiment"),
    ],
)
def test_bad_input_ends_with_two_and_a_line(call, tmp_path, arguments, said):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_process_left")
def test_ctrl_c_says_how_to_go_on(call, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.study.jobs.run_jobs", interrupted)
    code, out, err = call("toy-table0", "--out", "here")
    assert (code, out) == (130, "")
    assert err == "shoal: stopped; the same command continues where it stopped\n"
    monkeypatch.undo()
    assert perform("toy-table0", "quick", tmp_path / "here", CATALOGUE).fresh == 3
