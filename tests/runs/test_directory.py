"""Directories are made whole, locked while in use, and outlive disks that fail."""

import errno
import os
import resource
import signal

import pytest
from chaos.disk import acting_at, die, fails_with, in_a_fork
from toy import table

import shoal
from shoal import SpecError
from shoal.runs import lock
from shoal.runs.directory import RunDirectory
from shoal.runs.verify import verify

TABLE = table("scaffold", rounds=2, evaluate={"every": 0, "clients": 0}, checkpoint={"every_seconds": 0})


def operations(tmp_path):
    """How many there are in the life of a run, and its result."""
    whole = shoal.run(TABLE)  # first, as kernels may be written to their cache
    with acting_at(-1, die) as seen:
        shoal.run(TABLE, tmp_path / "whole", report=False)
    return len(seen), whole


def again(path):
    """What a user does after a crash: the same command, or, if it says so, `shoal resume`."""
    try:
        return shoal.run(TABLE, path, report=False)
    except SpecError as error:
        told = str(error)
    assert "already holds another run; continue it with `shoal resume" in told
    return shoal.resume(path, report=False)


def test_killed_at_any_operation_a_run_goes_on_to_the_same_bits(tmp_path):
    """Here at every eleventh; `make chaos` does all."""
    count, whole = operations(tmp_path)
    assert count > 50
    for place in range(0, count, 11):
        path = tmp_path / str(place)

        def work(place=place, path=path):
            with acting_at(place, die):
                shoal.run(TABLE, path, report=False)

        assert in_a_fork(work) == -signal.SIGKILL
        resumed = again(path)
        assert resumed.weights_sha256 == whole.weights_sha256
        assert resumed.memory_sha256 == whole.memory_sha256
        assert not verify(path).flaws
        assert {p.name for p in tmp_path.iterdir()} <= {"whole", *map(str, range(count))}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_fails_at_any_operation_is_one_line_and_the_run_goes_on(tmp_path, number):
    count, whole = operations(tmp_path)
    for place in range(number % 5, count, 17):
        path = tmp_path / str(place)
        with acting_at(place, fails_with(number)) as seen:
            try:
                shoal.run(TABLE, path, report=False)
            except SpecError as error:
                told = str(error)
            else:
                assert seen[place] in ("unlink", "mkdir")  # clearing away may fail
                continue
        assert os.strerror(number) in told
        assert "\n" not in told
        assert again(path).weights_sha256 == whole.weights_sha256


def test_a_run_in_use_is_refused_with_the_process(tmp_path, monkeypatch):
    shoal.run(TABLE, tmp_path / "run", report=False)
    ready, go_on = os.pipe(), os.pipe()

    def other():
        directory, _ = RunDirectory.open(tmp_path / "run")
        directory.lock()
        os.write(ready[1], b"!")
        os.read(go_on[0], 1)

    child = os.fork()
    if not child:
        try:
            other()
        finally:
            os._exit(0)
    os.read(ready[0], 1)
    with monkeypatch.context() as patch:
        patch.setattr(lock, "PATIENCE", 0.0)
        with pytest.raises(SpecError, match=f"run is in use by the process {child};"):
            shoal.resume(tmp_path / "run")

    def ended(seconds):
        os.write(go_on[1], b"!")
        os.waitpid(child, 0)

    monkeypatch.setattr(lock.time, "sleep", ended)  # the other one ends while we wait for it
    shoal.resume(tmp_path / "run", report=False)


def test_a_run_in_use_is_refused_in_the_same_process_too(tmp_path):
    def twice(record):
        shoal.resume(tmp_path / "run")

    with pytest.raises(SpecError, match=f"in use by the process {os.getpid()}"):
        shoal.run(TABLE, tmp_path / "run", twice)
    assert shoal.resume(tmp_path / "run", report=False).rounds == 2


def test_an_empty_folder_and_the_rest_of_a_crash_can_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".experiment.json.7.part").write_text("half")
    (tmp_path / ".run.7.part" / "checkpoint").mkdir(parents=True)
    shoal.run(TABLE, tmp_path / "run", report=False)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_directory_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    shoal.run(TABLE, tmp_path / "link", report=False)
    assert (tmp_path / "real" / "summary.json").exists()
    assert (tmp_path / "link").is_symlink()


def test_a_comparison_goes_on_over_an_empty_folder(tmp_path):
    from shoal.study.compare import plan, run_missing

    planned = plan(["fedavg"], table(rounds=1), [], [0], tmp_path)
    planned[0].directory.mkdir()
    run_missing(planned, lambda one: None)
    assert (planned[0].directory / "summary.json").exists()


def test_checkpoints_take_a_fortieth_of_the_time(tmp_path, monkeypatch):
    """A clock on which a round takes a second and a checkpoint two: one every eighty seconds."""
    from shoal.runs import runner

    now, saved = [0.0], []

    def saving(setup, directory, progress, before):
        saved.append(progress.round)
        now[0] += 2

    def advanced(*arguments):
        now[0] += 1
        return real(*arguments)

    real = runner.advance
    monkeypatch.setattr(runner, "save", saving)
    monkeypatch.setattr(runner, "advance", advanced)
    monkeypatch.setattr(runner.time, "perf_counter", lambda: now[0])
    shoal.run(table(rounds=90, local={"lr": 0.1, "batch": 8, "epochs": 1}), tmp_path / "run", report=False)
    assert saved == [1, 81, 90]


def test_the_real_thing_a_file_that_may_not_grow(tmp_path):
    """With the system's own limit: files of at most two kilobytes."""

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
        with pytest.raises(SpecError, match=r"run/checkpoint/.* cannot be written: File too large"):
            shoal.run(TABLE, tmp_path / "run", report=False)

    whole = shoal.run(TABLE)
    assert in_a_fork(work) == 0
    assert shoal.resume(tmp_path / "run", report=False).weights_sha256 == whole.weights_sha256
