"""The process that draws the page of a run which another process has trained."""

import json
import os
import subprocess
import sys

import tomli_w

from shoal.report.page import render
from shoal.report.runs import read_run


def drawer(told, **more):
    line = [sys.executable, "-P", "-m", "shoal.report.drawer"]
    return subprocess.run(line, input=told, capture_output=True, check=False, **more)


def test_it_writes_the_page_of_the_folder_that_it_is_told(make_run, tmp_path):
    run, folder = make_run(), tmp_path / "a run\nwith a difficult näme"
    folder.mkdir()
    (folder / "spec.toml").write_text(tomli_w.dumps(run.spec), encoding="utf-8")
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run.rounds))
    (folder / "summary.json").write_text(json.dumps(run.summary))
    (tmp_path / "matplotlib.py").write_text("raise AssertionError('not this one')")
    assert drawer(os.fsencode(folder.relative_to(tmp_path)), cwd=tmp_path).returncode == 0
    assert (folder / "report.html").read_text(encoding="utf-8") == render([read_run(folder)], "fedavg")


def test_without_a_folder_it_ends_and_a_bad_one_is_told_by_its_exit_code(tmp_path):
    assert drawer(b"", cwd=tmp_path).returncode == 0
    assert drawer(b"nothing here", cwd=tmp_path).returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_the_process_that_trains_does_not_load_matplotlib(tmp_path):
    """It would take a second, while another process has it already."""
    told = ["run", "--set", "task.dataset=digits", "--set", "rounds=1", "--out", str(tmp_path / "run")]
    script = f"""
import sys
from shoal.cli import main
sys.argv = ["shoal", *{told!r}]
try:
    main()
except SystemExit as end:
    sys.exit(end.code or "matplotlib" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0
    assert (tmp_path / "run" / "report.html").exists()
