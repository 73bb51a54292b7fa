import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from chaos.disk import in_a_fork
from safetensors.torch import load_file
from toy import table

import shoal
from shoal import SpecError, StageError
from shoal.methods.situa_cq import SituaCQ
from shoal.runs.model_file import weights_sha256


def lines(path):
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def test_a_run_directory_holds_what_it_should(tmp_path):
    result = shoal.run(table(evaluate={"every": 2}, rounds=5), tmp_path / "run")
    out = tmp_path / "run"
    assert {path.name for path in out.iterdir()} == {
        "spec.toml",
        "rounds.jsonl",
        "model.safetensors",
        "summary.json",
        "report.html",
        "checkpoint",
    }
    assert shoal.load_spec(out / "spec.toml") == result.spec
    rounds = lines(out)
    assert [r["round"] for r in rounds] == [1, 2, 3, 4, 5]
    assert [r["accuracy"] is not None for r in rounds] == [False, True, False, True, True]
    for field in ("loss", "bytes_up", "bytes_down", "seconds", "virtual_seconds", "cohort", "rejected"):
        assert field in rounds[0]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["bytes_up"] == sum(r["bytes_up"] for r in rounds)
    assert summary["final_accuracy"] == rounds[-1]["accuracy"] == result.final_accuracy
    judged = [r["accuracy"] for r in rounds if r["accuracy"] is not None]
    assert summary["max_accuracy"] == max(judged)
    assert summary["mean_accuracy"] == pytest.approx(sum(judged) / 3)
    assert summary["rounds"] == 5
    weights = load_file(out / "model.safetensors")
    assert weights_sha256(weights) == summary["weights_sha256"] == result.weights_sha256
    assert all(torch.equal(weights[name], value) for name, value in result.model().state_dict().items())


def test_bytes_are_lengths_of_packets(tmp_path):
    result = shoal.run(table(rounds=1))
    parameters = 10 * 12 + 12 + 12 * 4 + 4
    assert 4 * 4 * parameters < result.bytes_down < 4 * (4 * parameters + 600)
    half = shoal.run(table(rounds=1, codec="float16"))
    assert 4 * 2 * parameters < half.bytes_down < 4 * (2 * parameters + 900)


def test_evaluation_only_at_the_end(tmp_path):
    result = shoal.run(table(rounds=3, evaluate={"every": 0}))
    assert [r["accuracy"] is not None for r in result.records] == [False, False, True]


def test_stops_where_it_should():
    result = shoal.run(table(rounds=30, evaluate={"every": 1, "stop_at": 0.6}))
    assert result.rounds < 30
    assert result.final_accuracy >= 0.6
    assert all(r["accuracy"] < 0.6 for r in result.records[:-1])


def test_nothing_is_overwritten(tmp_path):
    shoal.run(table(rounds=1), tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(SpecError, match="already holds another run; continue it with `shoal resume"):
        shoal.run(table(rounds=2), tmp_path / "run")
    assert before == {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(SpecError, match="already holds other files"):
        shoal.run(table(rounds=1), tmp_path / "notes")


def test_bad_specs_leave_no_directory(tmp_path):
    with pytest.raises(SpecError):
        shoal.run(table(selector={"name": "uniform", "count": 99}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_cannot_be_resumed(tmp_path):
    with pytest.raises(SpecError, match="is not a run directory"):
        shoal.resume(tmp_path)


def after_round_5(tables, out):
    def watcher(record):
        if record["round"] == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    shoal.run(tables, out, watcher)


def inside_a_chain(tables, out):
    finish = SituaCQ.finish

    def dying(self, task, state, acc, moment):
        if (moment.round, moment.leg) == (5, 1) and not moment.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return finish(self, task, state, acc, moment)

    SituaCQ.finish = dying
    shoal.run(tables, out)


CHAINS = {"name": "situa_cq", "theta_d": 0.05, "theta_k": 1.0}


@pytest.mark.parametrize(
    ("run", "method", "every"),
    [
        (after_round_5, "scaffold", 1),
        (after_round_5, "scaffold", 2),
        (after_round_5, "scaffold", 0),
        (inside_a_chain, CHAINS, 2),
    ],
)
def test_a_killed_process_goes_on_to_the_same_bits(tmp_path, run, method, every):
    """SIGKILL after five rounds, in another process; then resume in this one."""
    often = {"every": every, "every_seconds": 0}
    tables, out = table(method, rounds=8, evaluate={"every": 1}, checkpoint=often), tmp_path / "run"
    assert in_a_fork(lambda: run(tables, out)) == -signal.SIGKILL
    assert len(lines(out)) == 5
    assert not (out / "summary.json").exists()
    resumed, whole = shoal.resume(out, report=False), shoal.run(tables)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.memory_sha256 == whole.memory_sha256
    assert [r["accuracy"] for r in lines(out)] == [r["accuracy"] for r in whole.records]


def test_old_checkpoints_are_cleared_away(tmp_path):
    tables = table("scaffold", rounds=6, checkpoint={"every_seconds": 0})
    result = shoal.run(tables, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoint"
    kept = sorted(p.name for p in folder.glob("progress-*"))  # the last, and the one before it
    assert kept == ["progress-5.safetensors", "progress-6.safetensors"]
    clients = {int(p.name.split("-")[0]) for p in (folder / "memory").iterdir()}
    assert clients == {c for r in result.records for c in r["cohort"]}
    assert not list(folder.rglob("*.part"))


def test_another_machine_is_worth_a_warning(tmp_path, monkeypatch):
    class CrashError(Exception):
        pass

    def crash(record):
        raise CrashError

    with pytest.raises(CrashError):
        shoal.run(table(), tmp_path / "run", crash)
    monkeypatch.setattr("shoal.runs.resume.environment", lambda: "torch 9.9, abacus")
    with pytest.warns(UserWarning, match="continues on torch 9.9, abacus"):
        shoal.resume(tmp_path / "run")


def test_an_error_says_where_it_happened():
    def broken(*args, **kwargs):
        raise ZeroDivisionError("by zero")

    from toy import setup

    from shoal.loop import advance, start

    made = setup()
    method = made.federation.method

    class Broken(type(method)):
        client_update = broken

    side = replace(made.side, method=Broken(local=method.local))
    engine = shoal.engines.local.LocalEngine(side, made.shards)
    federation = replace(made.federation, engine=engine)
    progress = start(federation)
    with pytest.raises(
        StageError, match=r"update of client \d failed in round 1: ZeroDivisionError: by zero"
    ):
        advance(federation, progress)


def test_a_diverging_run_says_so_and_ends():
    result = shoal.run(table(rounds=3, local={"lr": 1e30, "batch": 8, "epochs": 2}))
    assert result.summary["rejected"] > 0
    assert result.records[0]["rejected"][0]["reason"] == "its numbers are not finite"
    assert all(torch.isfinite(p).all() for p in result.model().parameters())


def test_threads_are_given_back():
    before = torch.get_num_threads()
    shoal.run(table(rounds=1))
    assert torch.get_num_threads() == before
