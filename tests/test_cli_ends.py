"""How commands end: exit codes as shells count them, no traceback, no stray text."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import processes
import pytest
import tomli_w
from chaos.disk import in_a_fork
from toy import table

from shoal import cli

LIST = [sys.executable, "-P", "-c", processes.SHOAL, "methods"]


def test_a_reader_that_has_seen_enough(tmp_path):
    """As `shoal methods | head -1`."""
    for arguments in ([], ["--json"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*LIST, *arguments],
            cwd=tmp_path,
            env=processes.environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_output(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*LIST, "--json"],
            cwd=tmp_path,
            env=processes.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "shoal: the output cannot be written: No space left on device\n"


def ended(arguments, folder, when=None, presses=1, **tables):
    """How a command ends in a fork, and what it says; Ctrl-C is pressed once `when` is true."""
    (folder / "toy.toml").write_text(tomli_w.dumps(table(**tables)))
    said = folder / "stderr.txt"

    def work():
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = os.open(said, os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, 2)
        sys.stderr, sys.stdout = os.fdopen(2, "w"), open(os.devnull, "w")  # noqa: SIM115
        sys.argv = ["shoal", *arguments]
        try:
            cli.main()
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(end.code)

    if when is None:
        return in_a_fork(work), said.read_text()
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(99)
    limit = time.monotonic() + 60
    while not when() and time.monotonic() < limit:
        time.sleep(0.005)
    for _ in range(presses):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGINT)
        time.sleep(0.02)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.read_text()


@pytest.mark.parametrize("presses", [1, 2, 3])
def test_ctrl_c_once_and_more_often(tmp_path, presses):
    rounds = tmp_path / "run" / "rounds.jsonl"
    engine = {"mode": "workers", "workers": 2}
    code, said = ended(
        ["run", "toy.toml", "--out", "run"],
        tmp_path,
        lambda: rounds.exists() and rounds.stat().st_size > 0,
        presses,
        rounds=100_000,
        engine=engine,
    )
    assert code == 130
    assert said in ("shoal: stopped; go on with: shoal resume run\n", *([""] if presses > 1 else []))


def test_ctrl_c_before_there_is_a_run_advises_nothing(tmp_path):
    (tmp_path / "pressed.py").write_text(
        "import os, signal\ndef data():\n    os.kill(os.getpid(), signal.SIGINT)\n    raise AssertionError\n"
    )
    task = {"dataset": "pressed:data", "model": "toy:net"}
    code, said = ended(["run", "toy.toml", "--out", "run"], tmp_path, task=task)
    assert (code, said) == (130, "shoal: stopped\n")
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, said = ended(["run", "toy.toml", "--out", "file/run"], tmp_path, rounds=1)
    assert code == 2
    assert said == "shoal: file/run cannot be created: File exists; choose another --out\n"


def test_a_finished_run_without_a_report_gets_one(tmp_path):
    assert ended(["run", "toy.toml", "--out", "run"], tmp_path, rounds=1)[0] == 0
    (tmp_path / "run" / "report.html").unlink()
    code, said = ended(["resume", "run"], tmp_path, rounds=1)
    assert code == 0
    assert "is finished" in said
    assert (tmp_path / "run" / "report.html").exists()
    assert ended(["verify", "run"], tmp_path)[0] == 0
    code, _ = ended(["resume", "run", "--rounds", "3"], tmp_path)
    assert code == 0
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["methods", "nope"], 2)])
def test_the_console_script_ends_with_the_codes_of_the_command(arguments, code):
    """It ends without Python's tidying up, and says everything before."""
    ended = subprocess.run([sys.executable, "-m", "shoal", *arguments], capture_output=True, text=True)
    assert ended.returncode == code
    assert ("shoal 0" in ended.stdout) == (code == 0)
    assert ("unknown method nope" in ended.stderr) == (code == 2)
