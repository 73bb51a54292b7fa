"""The awkward inputs, on the command line, in this process."""

import shlex
import sys

import pytest
import tomli_w
from awkward_inputs import AWKWARD, CSV, USUAL
from toy import table

from shoal import cli


@pytest.mark.parametrize("case", AWKWARD, ids=lambda case: case.name)
def test_it_works_or_says_why_not(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, content in {**USUAL, **case.files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = tomli_w.dumps(table(rounds=1)) if content is None else content
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    arguments = shlex.split(case.arguments.replace('"', '\\"').replace("{csv}", CSV))
    monkeypatch.setattr(sys, "argv", ["shoal", *arguments])
    monkeypatch.setattr("shoal.runs.runner.write_run_report", lambda path: None)  # which is slow
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    assert ended.value.code == (2 if case.said else 0), captured.err
    if case.said:
        assert case.said in captured.err
        assert len(captured.err.splitlines()) <= 2
        assert "Traceback" not in captured.err


def test_there_are_a_hundred():
    assert len(AWKWARD) >= 100
    assert len({case.name for case in AWKWARD}) == len(AWKWARD)
