"""Run directories and specs from strangers: refused or harmless."""

import pytest
import tomli_w
from processes import called
from toy import table

import shoal
from shoal import SpecError
from shoal.spec import from_table, load_table

POISON = "open('POISONED', 'w').close()\nraise SystemExit(7)\n"
SHADOWED = ("matplotlib", "numpy", "rich", "jinja2", "torch", "typer", "evil", "tomllib")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A finished run whose spec names a module that lies beside it, with others that hide real ones."""
    path = tmp_path_factory.mktemp("stranger") / "run"
    shoal.run(table(rounds=1), path, report=False)
    for name in SHADOWED:
        (path / f"{name}.py").write_text(POISON)
    text = (path / "spec.toml").read_text().replace("toy:blobs", "evil:data").replace("toy:net", "evil:net")
    (path / "spec.toml").write_text(text + '\n[privacy]\nname = "evil:Privacy"\n')
    (path / "matplotlibrc").write_text("text.usetex: True\nsvg.fonttype: path\nfont.size: 99\n")
    (path / ".numba_config.yaml").write_text("cache_dir: .\n")
    return path


def test_a_report_runs_nothing_of_the_directory(stranger):
    done = called(["report", ".", "--out", "page.html"], stranger)
    assert done.returncode == 0, done.stderr
    assert not (stranger / "POISONED").exists()
    assert "font-size: 99" not in (stranger / "page.html").read_text()
    assert done.stderr.startswith("shoal: warning: spec.toml was changed after the run had begun: ")


def test_a_check_runs_nothing_of_the_directory(stranger):
    done = called(["verify", "."], stranger)
    assert done.returncode == 2
    assert "spec.toml was changed" in done.stderr
    assert not (stranger / "POISONED").exists()


def test_modules_of_the_current_folder_hide_no_others(tmp_path):
    """A spec may name them, but numpy stays numpy."""
    for name in ("numpy", "torch", "rich"):
        (tmp_path / f"{name}.py").write_text(POISON)
    (tmp_path / "mine.py").write_text("from toy import blobs as data\n")
    tables = table(rounds=1, task={"dataset": "mine:data", "model": "toy:net"})
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(tables))
    done = called(["partition", "spec.toml", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "POISONED").exists()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            {"selector": {"name": "os:abort"}},
            "selector.name = 'os:abort' is a part of Python, not a selector",
        ),
        ({"method": {"name": "os:abort"}}, "is a part of Python, not a method"),
        ({"attack": {"name": "posix:abort"}}, "is a part of Python"),
        ({"task": {"dataset": "os:abort"}}, "is a part of Python, not a data set"),
        (
            {"selector": {"name": "torch:manual_seed"}},
            "is a function; it must be a class of the kind selector",
        ),
        ({"codec": {"name": "torch.nn:Linear"}}, "is a type; it must be a class of the kind codec"),
        ({"partition": {"kind": "shoal:run"}}, "it must be a class of the kind partition"),
        ({"task": {"dataset": "torch._C:_cuda_init"}}, "it must be a function or a class|cannot be imported"),
        ({"task": {"model": "numpy:zeros"}}, "it must be a function or a class"),
        ({"task": {"dataset": "exits:data"}}, r"cannot be imported \(SystemExit\(7\)\)"),
    ],
)
def test_a_name_is_of_the_right_kind_before_anything_is_called(tables, said, tmp_path, monkeypatch):
    (tmp_path / "exits.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SpecError, match=said):
        from_table(tables)


LIMITS = {
    "nested lists": ("frozen = " + "[" * 100_000, "is not"),
    "nested tables": ("[task]\n" + ".".join("x" * 3000) + " = 1", "nested more than 20 levels"),
    "nested inline tables": ("a = " + "{a = " * 5000, "is not"),
    "a number of many digits": ("seed = " + "9" * 5000, "is not a spec"),
    "a large number": ("seed = " + "9" * 400, "seed must be below 2\\^63"),
    "a large number where a fraction may be": ("[local]\nlr = " + "9" * 400, "local.lr must be below"),
    "too many rounds": ("rounds = 1_000_000_000_000", "rounds must be at most"),
    "a long text": ("[task]\ndataset = '" + "a" * 500_000 + "'", "unknown data set aaa"),
    "a long file": ("# " + "a" * 2_000_000, "has more than 1,048,576 bytes"),
    "a key of zero bytes": ("seed\0 = 1", "not valid TOML"),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_limits_of_a_spec_are_errors_of_one_line(kind, tmp_path):
    text, said = LIMITS[kind]
    (tmp_path / "spec.toml").write_text(text)
    with pytest.raises(SpecError, match=said) as refused:
        from_table(load_table(tmp_path / "spec.toml"))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"partition": {"kind": "synthetic", "clients": 10**12}},
            "partition.clients = 1,000,000,000,000 would",
        ),
        (
            {"partition": {"kind": "iid", "clients": 10**12}},
            "partition.clients = 1,000,000,000,000 would take",
        ),
        ({"engine": {"workers": 10**6}}, "engine.workers = 1,000,000 would take more than"),
        (
            {"task": {"model": "mlp", "hidden": 10**9, "dataset": "toy:blobs"}},
            "needs more memory than there is",
        ),
    ],
)
def test_what_does_not_fit_into_memory_is_refused(changes, said):
    with pytest.raises(SpecError, match=said):
        shoal.run(table(**changes))


def test_a_report_of_a_hostile_record_is_an_error(tmp_path):
    path = tmp_path / "run"
    shoal.run(table(rounds=1), path, report=False)
    lines = [
        "[" * 100_000,
        '{"round": ' + "9" * 5000 + "}",
        '{"round": 1, "accuracy": {"a": []}, "cohort": 3}',
    ]
    from shoal.report.page import write_report
    from shoal.report.runs import read_run

    for line in lines[:2]:
        (path / "rounds.jsonl").write_text(line + "\n")
        with pytest.raises(SpecError, match=r"rounds.jsonl, line 1"):
            read_run(path)
    (path / "rounds.jsonl").write_text(lines[2] + "\n")
    with pytest.raises(SpecError, match="their records are not what Shoal writes"):
        write_report([read_run(path)], tmp_path / "page.html", "stranger")
