"""`shoal audit` as a user has it."""

import json
import sys

import pytest

from shoal import cli


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "spec.toml").write_text('task = { dataset = "digits", model = "linear" }\nlocal.lr = 1.0\n')

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["shoal", "audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def test_a_spec_is_audited_and_shown(call, tmp_path):
    code, out, _ = call(
        *("spec.toml", "--uploads", "fedavg,genefl,local", "--images", 3, "--out", "here"),
        *("--iterations", 3, "--restarts", 1),
    )
    assert code == 0
    assert "Audit of linear on digits" in out
    assert "its signature" in out
    page = (tmp_path / "here" / "report.html").read_text()
    assert "Originals and reconstructions" in page
    assert "fc.weight, fc.bias" in page
    assert (tmp_path / "here" / "reconstructions.png").exists()
    kept = json.loads((tmp_path / "here" / "audit.json").read_text())["uploads"]
    assert len(kept["fedavg"]["knows"]["images"]) == 3


def test_json_and_going_on(call):
    code, out, _ = call("spec.toml", "--images", 2, "--out", "here", "--json")
    printed = json.loads(out)
    assert code == 0
    assert printed["uploads"]["fedavg"]["knows"]["psnr"] == 100.0
    assert "images" not in printed["uploads"]["fedavg"]["knows"]
    assert call("spec.toml", "--images", 2, "--out", "here")[0] == 0  # finished: nothing is run again
    code, _, err = call("spec.toml", "--images", 3, "--out", "here")
    assert code == 2
    assert "other options; choose another --out" in err


def test_errors_are_one_line(call):
    code, _, err = call("spec.toml", "--uploads", "fedavg+nois")
    assert code == 2
    assert "unknown codec or noise nois" in err
    assert err.count("\n") == 1
    code, _, err = call("spec.toml", "--set", "task.model=resnet18", "--images", 2)
    assert code == 2
    assert "BatchNorm" in err
