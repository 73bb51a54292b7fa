"""Whatever happens to a run directory: it is refused with the file's name, or gives the same numbers."""

import json
import shutil
import warnings

import pytest
from runs.damages import BEYOND_REPAIR, FINISHED, UNFINISHED, UNHARMED
from toy import table

import shoal
from shoal import SpecError
from shoal.runs.manifest import LATEST
from shoal.runs.verify import verify

TABLE = table("scaffold", rounds=4, evaluate={"every": 2, "clients": 0}, checkpoint={"every_seconds": 0})
CLOCK = "seconds"


@pytest.fixture(autouse=True, scope="module")
def no_power_cuts():
    """Nothing here needs to reach the disk."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda handle: None)
        yield


class CrashError(Exception):
    pass


def crash(record):
    if record["round"] == 3:
        raise CrashError


def records(path):
    lines = (path / "rounds.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != CLOCK} for line in lines]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    path = tmp_path_factory.mktemp("unfinished") / "run"
    with pytest.raises(CrashError):
        shoal.run(TABLE, path, crash)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    shoal.run(TABLE, path, report=False)
    return path


def survives(path, whole):
    """Whether resuming gives the whole run's numbers; if not, the error must name a file of the directory."""
    result, refused = None, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            result = shoal.resume(path, report=False)
        except SpecError as error:
            refused = str(error)
    if result is None:
        assert any(name in refused for name in ("spec.toml", "rounds.jsonl", "checkpoint")), refused
        assert "\n" not in refused
        return False
    summary = json.loads((whole / "summary.json").read_text())
    assert result.weights_sha256 == summary["weights_sha256"]
    assert result.memory_sha256 == summary["memory_sha256"]
    assert records(path) == records(whole)
    assert not verify(path).flaws
    return True


@pytest.mark.parametrize("kind", UNFINISHED)
def test_damage_to_an_interrupted_run(unfinished, finished, tmp_path, kind):
    path = tmp_path / "run"
    shutil.copytree(unfinished, path)
    UNFINISHED[kind](path)
    if kind not in ("spec: missing", "index: of a newer format"):
        assert bool(verify(path).flaws) == (kind not in UNHARMED)
    assert survives(path, finished) == (kind not in BEYOND_REPAIR)


@pytest.mark.parametrize("kind", FINISHED)
def test_damage_to_a_finished_run(finished, tmp_path, kind):
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    FINISHED[kind](path)
    assert verify(path).flaws
    assert survives(path, finished) == (kind not in BEYOND_REPAIR)


def test_there_are_enough_kinds():
    assert len(UNFINISHED) + len(FINISHED) >= 40


def test_a_newer_format_is_refused_with_the_version_needed(unfinished, tmp_path):
    shutil.copytree(unfinished, tmp_path / "run")
    UNFINISHED["index: of a newer format"](tmp_path / "run")
    with pytest.raises(SpecError, match=r"has the format 99.* up to 1; install one that knows format 99"):
        shoal.resume(tmp_path / "run")


def test_a_changed_field_is_named(unfinished, tmp_path):
    shutil.copytree(unfinished, tmp_path / "run")
    UNFINISHED["spec: a field changed"](tmp_path / "run")
    with pytest.raises(SpecError, match=r"local\.lr is 0\.2 and was 0\.1"):
        shoal.resume(tmp_path / "run")


def test_damage_is_named_when_the_checkpoint_before_is_used(unfinished, tmp_path):
    shutil.copytree(unfinished, tmp_path / "run")
    UNFINISHED["progress: cut"](tmp_path / "run")
    with pytest.warns(UserWarning, match=r"progress-3\.safetensors is damaged: .*going on from round 3"):
        shoal.resume(tmp_path / "run", report=False)


def test_engine_evaluation_and_checkpoints_may_change(unfinished, finished, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(unfinished, path)
    text = (path / "spec.toml").read_text()
    for old, new in (('mode = "auto"', 'mode = "block"'), ("clients = 0", "clients = 2")):
        assert old in text
        text = text.replace(old, new)
    (path / "spec.toml").write_text(text.replace("every_seconds = 0.0", "every_seconds = 5.0"))
    resumed, whole = shoal.resume(path), json.loads((finished / "summary.json").read_text())
    assert resumed.weights_sha256 == whole["weights_sha256"]


def test_a_run_can_be_made_longer(finished, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    longer, whole = shoal.resume(path, rounds=6, report=False), shoal.run({**TABLE, "rounds": 6})
    assert longer.weights_sha256 == whole.weights_sha256
    assert longer.memory_sha256 == whole.memory_sha256
    assert longer.rounds == 6
    assert "rounds = 6" in (path / "spec.toml").read_text()
    assert not verify(path).flaws
    with pytest.raises(SpecError, match=r"rounds can only be raised: .* has 6, got 5"):
        shoal.resume(path, rounds=5)


def test_the_index_names_every_file_by_its_hash(unfinished):
    index = json.loads((unfinished / LATEST).read_text())
    assert index["format"] == 1
    assert len(index["spec_sha256"]) == 64
    there = {p.relative_to(unfinished).as_posix() for p in (unfinished / "checkpoint").rglob("*.safetensors")}
    before = json.loads((unfinished / "checkpoint/previous.json").read_text())
    assert {*index["files"], *before["files"]} == there
    length, digest = index["rounds"]
    assert length == (unfinished / "rounds.jsonl").stat().st_size
    assert len(digest) == 64
