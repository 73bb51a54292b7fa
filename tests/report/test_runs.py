from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.core.errors import SpecError
from shoal.report.runs import number, read_run, read_runs, relabel

SPEC = 'seed = {seed}\nrounds = 2\n\n[method]\nname = "fedprox"\nmu = {mu}\n\n[engine]\nworkers = {seed}\n'


def write_run(
    folder: Path, *, seed: int = 0, mu: float = 0.1, lines: str | None = None, summary: bool = True
) -> Path:
    folder.mkdir(parents=True)
    (folder / "spec.toml").write_text(SPEC.format(seed=seed, mu=mu))
    rows = [{"round": r, "accuracy": 0.5} for r in (1, 2)]
    text = "".join(json.dumps(row) + "\n" for row in rows) if lines is None else lines
    (folder / "rounds.jsonl").write_text(text)
    if summary:
        (folder / "summary.json").write_text('{"final_accuracy": 0.5}')
    return folder


def test_a_finished_run_is_read(tmp_path):
    run = read_run(write_run(tmp_path / "a"))
    assert run.label == "fedprox"
    assert run.spec["method"]["mu"] == 0.1
    assert [row["round"] for row in run.rounds] == [1, 2]
    assert run.finished
    assert run.summary["final_accuracy"] == 0.5


def test_the_label_can_be_given(tmp_path):
    assert read_run(write_run(tmp_path / "a"), "mine").label == "mine"


def test_an_unfinished_run_has_no_summary_and_may_end_in_half_a_line(tmp_path):
    run = read_run(write_run(tmp_path / "a", lines='{"round": 1}\n{"round": 2, "acc', summary=False))
    assert len(run.rounds) == 1
    assert not run.finished


def test_a_last_line_without_a_line_break_counts(tmp_path):
    assert len(read_run(write_run(tmp_path / "a", lines='{"round": 1}\n{"round": 2}')).rounds) == 2


def test_a_run_that_has_just_begun_has_no_rounds(tmp_path):
    folder = write_run(tmp_path / "a", summary=False)
    (folder / "rounds.jsonl").unlink()
    assert read_run(folder).rounds == []


@pytest.mark.parametrize("make", [False, True])
def test_what_is_no_run_is_refused_by_name(tmp_path, make):
    folder = tmp_path / "nothing"
    if make:
        folder.mkdir()
    with pytest.raises(SpecError, match="nothing is not a run"):
        read_run(folder)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("spec.toml", "seed = ", "spec.toml is not TOML"),
        ("rounds.jsonl", '{"round": 1}\nnonsense\n{"round": 2}\n', "line 2 is not JSON"),
        ("rounds.jsonl", '{"accuracy": 1}\n', "line 1 has no whole number `round`"),
        ("summary.json", "{", "summary.json is not JSON"),
        ("summary.json", "[]", "must hold one JSON object"),
    ],
)
def test_broken_files_are_named(tmp_path, name, text, told):
    folder = write_run(tmp_path / "a")
    (folder / name).write_text(text)
    with pytest.raises(SpecError, match=told):
        read_run(folder)


def test_runs_that_differ_only_in_seed_and_engine_share_a_label(tmp_path):
    folders = [write_run(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    assert [run.label for run in read_runs(folders)] == ["fedprox", "fedprox"]


def test_runs_of_one_method_with_other_settings_are_told_apart(tmp_path):
    folders = [write_run(tmp_path / str(i), seed=i, mu=mu) for i, mu in enumerate((0.1, 0.1, 0.01))]
    assert [run.label for run in read_runs(folders)] == [
        "fedprox mu=0.1",
        "fedprox mu=0.1",
        "fedprox mu=0.01",
    ]


def test_a_setting_that_one_run_lacks_tells_them_apart(make_run):
    plain = make_run()
    other = plain._replace(spec={**plain.spec, "attack": {"name": "sign_flip"}})
    assert [run.label for run in relabel([plain, other])] == ["fedavg", "fedavg name=sign_flip"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (None, None),
        (True, None),
        ("1", None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_number(value, expected):
    assert number(value) == expected
