"""Many runs on all cores: what is done is kept, what breaks is named, and nobody stays behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from study.reproduce.tiny import accuracy, dies, fails, job, product
from toy import heeds_ctrl_c, spec

import shoal
from shoal.core.errors import SpecError, StageError
from shoal.study.jobs import ANSWER, Job, kept_answers, run_jobs, worker_pool

TESTS = Path(__file__).parents[1]


def played(jobs, folder, workers=2):
    told = []
    with worker_pool(jobs, folder, workers) as found:
        answers = run_jobs(found, jobs, folder, told.append)
    return answers, told


@pytest.mark.usefixtures("no_process_left")
def test_answers_are_those_of_plain_runs_in_any_number_of_processes(tmp_path):
    jobs = [job(seed) for seed in range(3)]
    answers, told = played(jobs, tmp_path / "two")
    assert told == sorted(told)
    assert set(told) == {1, 2, 3, 4, 5, 6}
    for one in jobs:
        records = shoal.run(one.spec).records
        assert answers[one.name] == {"accuracies": [r["accuracy"] for r in records], "nan": None}
    assert played(jobs, tmp_path / "one", workers=1)[0] == answers


def test_a_parent_that_computed_with_threads_does_not_block_its_jobs(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.ones(512, 512) @ torch.ones(512, 512)  # the threads exist from now on, but not in a fork
        answers, _ = played([Job("large", spec(rounds=1), product)], tmp_path, workers=1)
    finally:
        torch.set_num_threads(before)
    assert answers == {"large": 512.0}


def test_a_job_is_an_ordinary_run_directory_on_one_worker(tmp_path):
    played([job(0)], tmp_path)
    found = shoal.load_spec(tmp_path / "seed0" / "spec.toml")
    assert found.engine.workers == 1
    assert (
        shoal.run(found).weights_sha256
        == json.loads((tmp_path / "seed0/summary.json").read_text())["weights_sha256"]
    )
    assert not (tmp_path / "seed0" / "report.html").exists()


def test_what_is_there_is_kept(tmp_path):
    jobs = [job(seed) for seed in range(2)]
    assert kept_answers(jobs, tmp_path) == {}
    answers, _ = played(jobs[:1], tmp_path)
    assert kept_answers(jobs, tmp_path) == answers


def test_a_run_that_was_stopped_goes_on(tmp_path):
    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shoal.run(job(0).spec, tmp_path / "seed0", watcher=stop)
    assert kept_answers([job(0)], tmp_path) == {}
    answers, told = played([job(0)], tmp_path)
    assert told[-1] == 2
    assert answers["seed0"]["accuracies"] == [r["accuracy"] for r in shoal.run(job(0).spec).records]


def test_a_folder_of_another_spec_is_refused(tmp_path):
    played([job(0)], tmp_path)
    with pytest.raises(SpecError, match="seed0 holds a run of another spec; choose another --out"):
        kept_answers([Job("seed0", spec(seed=1), accuracy)], tmp_path)


def test_names_are_unique(tmp_path):
    with pytest.raises(ValueError, match="a name of its own"):
        kept_answers([job(0), job(0)], tmp_path)


@pytest.mark.usefixtures("no_process_left")
def test_an_error_names_the_job_and_ends_the_others(tmp_path):
    with pytest.raises(StageError, match=r"(?s)^seed1: divided by nothing.*tiny.py"):
        played([job(0, rounds=10**6), job(1, fails)], tmp_path)
    assert not (tmp_path / "seed1" / ANSWER).exists()


def test_a_process_that_dies_is_named(tmp_path):
    with pytest.raises(StageError, match=r"the process of seed0 ended \(-9\) before its job"):
        played([job(0, dies)], tmp_path)


def test_what_the_user_can_cure_stays_so(tmp_path):
    task = {"dataset": "toy:blobs", "model": "logistic_ova", "loss": "squared_error"}
    bad = Job("bad", spec(task=task), fails)
    with pytest.raises(SpecError, match=r"^bad: task.loss = 'squared_error' does not fit"):
        played([bad], tmp_path)


CTRL_C = """
import sys
from pathlib import Path
from study.reproduce.tiny import job
from shoal.study.jobs import run_jobs, worker_pool
jobs, folder = [job(0, rounds=10**6), job(1, rounds=10**6)], Path(sys.argv[1])
with worker_pool(jobs, folder, 2) as workers:
    print(*(worker.process.pid for worker in workers), flush=True)
    run_jobs(workers, jobs, folder, lambda rounds: None)
"""


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_nobody_stays_behind(tmp_path, blow):
    """After Ctrl-C, and after a parent that could not clean up."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=heeds_ctrl_c,
    )
    try:
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(workers) == 2
        process.send_signal(blow)
        process.wait(timeout=60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline
        os.sched_yield()


def alive(pid):
    try:
        # one that ended and that nobody has asked after is no longer at work
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
