"""What the documentation shows is run, resolved or looked up."""

import re
import shlex
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import typer

import shoal
from shoal.arrivals import ARRIVALS
from shoal.attacks import ATTACKS
from shoal.audit import plan as audit
from shoal.cli import app
from shoal.cli.options import grid_of, numbers
from shoal.codecs import CODECS
from shoal.config import arguments
from shoal.core.attack import Attack
from shoal.data import DATASETS
from shoal.data.partitions import PARTITIONS
from shoal.methods import METHODS
from shoal.models import MODELS
from shoal.overrides import value_of, with_method, with_settings
from shoal.run_settings import Checkpoint, EngineSpec, Evaluate
from shoal.selectors import SELECTORS
from shoal.solver.sgd import Sgd
from shoal.spec import Spec, from_table, load_table, to_table
from shoal.study import arena, compare
from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.run_experiment import chosen

ROOT = Path(__file__).parents[1]
PAGES = sorted(p.relative_to(ROOT) for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
EXAMPLES = sorted(p.relative_to(ROOT) for p in ROOT.glob("examples/*.toml"))
FETCHED = {"heart_disease", "fashion_mnist"}  # data sets whose examples need files that may not be there
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    """As the command line does: modules of the current directory can be named."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page, language):
    """The code blocks of a language; `toml fragment` and the like are another language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


def every(language):
    found = [(page, n, block) for page in PAGES for n, block in enumerate(blocks(page, language))]
    return pytest.mark.parametrize("block", [b for _, _, b in found], ids=[f"{p}-{n}" for p, n, _ in found])


# -- specs


@every("toml")
def test_specs_resolve(block):
    spec = from_table(tomllib.loads(block))
    assert from_table(to_table(spec)) == spec


def test_the_defaults_are_those_of_the_page():
    shown = to_table(from_table(tomllib.loads(blocks("docs/spec.md", "toml")[0])))
    assert shown["selector"].pop("fraction") == 0.1  # what no field at all means
    assert shown == to_table(Spec())


@pytest.mark.parametrize("part", [Sgd, Evaluate, Checkpoint, EngineSpec, Attack])
def test_every_field_is_on_the_page(part):
    for name, argument in arguments(part).items():
        (row,) = re.findall(rf"^\| `{name}` \| (.*?) \|", section(part), re.MULTILINE)
        if isinstance(argument.default, int | float) and not isinstance(argument.default, bool):
            assert float(row) == argument.default


def section(part):
    titles = {
        **{Sgd: "local", Evaluate: "evaluate", Checkpoint: "checkpoint", EngineSpec: "engine"},
        Attack: "attack",
    }
    title = titles[part]
    return text_of("docs/spec.md").split(f"## [{title}]")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    "catalogue",
    [METHODS, PARTITIONS, SELECTORS, CODECS, ATTACKS, ARRIVALS],
    ids=["methods", "partitions", "selectors", "codecs", "attacks", "arrivals"],
)
def test_every_entry_and_its_fields_are_on_the_page(catalogue):
    for name, entry in catalogue.items():
        rows = re.findall(rf"^\| `{name}` \|.*$", text_of("docs/spec.md"), re.MULTILINE)
        for field, argument in arguments(entry).items():
            if field == "local" or (catalogue is ATTACKS and field in arguments(Attack)):
                continue
            assert any(f"`{field}`" in row for row in rows), f"{name}.{field}"
            if isinstance(argument.default, int | float):
                shown = tomli_w.dumps({"default": argument.default}).removeprefix("default = ").strip()
                assert any(f"`{field}` = {shown}" in row for row in rows), f"{name}.{field}"


# -- commands


def commands(page):
    """The `shoal` commands of a page as lists of arguments, without comments and variables."""
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words[:1] == ["shoal"]:
                yield words[1:]


SHOWN = {shlex.join(words): words for page in PAGES for words in commands(page)}


@pytest.mark.parametrize("words", SHOWN.values(), ids=SHOWN)
def test_commands_exist_and_their_specs_resolve(words, tmp_path):
    name, *rest = words
    given = COMMANDS[name].make_context(name, list(rest)).params  # refuses what it does not know
    table = load_table(given["spec"]) if given.get("spec") else {}
    if name == "compare":
        grid = {field: list(map(value_of, texts)) for field, texts in grid_of(given["grid"] or []).items()}
        seeds = numbers(given["seeds"])
        assert compare.plan(given["names"], table, given["settings"] or [], seeds, tmp_path, grid)
    elif name == "arena":
        defences, attacks = arena.names(given["defences"]), arena.names(given["attacks"])
        table = table if given.get("spec") else arena.QUICK
        for some in ((defences, attacks[:1]), (defences[:1], attacks)):  # every name once
            assert arena.plan(*some, table, given["settings"] or [], [0])
    elif name == "audit":
        uploads = audit.names(given["uploads"])
        table = table if given.get("spec") else audit.QUICK
        assert audit.plan(uploads, table, given["settings"] or [], audit.Options(given["images"]))
    elif name == "reproduce" and given["name"] not in (None, "list"):
        assert chosen(given["name"], given["scale"], EXPERIMENTS)
    elif name in ("run", "partition") and "task.init" not in str(given["settings"]):
        table = with_method(table, given["method"]) if given.get("method") else table
        assert from_table(with_settings(table, given["settings"] or []))


def test_commands_are_shown():
    assert {words[0] for words in SHOWN.values()} >= {
        "run",
        "compare",
        "partition",
        "resume",
        "report",
        "methods",
    }


def test_every_picture_has_a_command_and_a_page():
    there = {path.name for path in (ROOT / "docs/pictures").iterdir() if path.suffix in (".png", ".svg")}
    told = text_of("docs/pictures/README.md")
    shown = "".join(text_of(page) for page in PAGES if page.name != "README.md" or page.parent == Path())
    assert there == set(re.findall(r"pictures/([\w-]+\.(?:png|svg))", shown))
    assert there - {"round.svg"} == set(re.findall(r"docs/pictures/([\w-]+\.png)", told))


def test_make_knows_what_the_readme_says():
    targets = re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE)
    shown = re.findall(r"^make (\w+)$", text_of("README.md") + text_of("CONTRIBUTING.md"), re.MULTILINE)
    assert {"demo", "test"} <= set(shown) <= set(targets)


# -- Python


@pytest.mark.parametrize("page", ["README.md", "docs/extending.md", "docs/reproduce.md", "docs/results.md"])
def test_python_runs(page, monkeypatch):
    module = types.ModuleType("shown")
    monkeypatch.setitem(sys.modules, "shown", module)
    assert blocks(page, "python")
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page}, Python block {number}", "exec"), module.__dict__)


def test_the_readme_shows_the_examples_themselves():
    assert text_of("examples/new_method.py") in blocks("README.md", "python")
    assert text_of("examples/own.toml") in blocks("README.md", "toml")


# -- examples


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_examples_run(path):
    table = load_table(path)
    spec = from_table(table)
    if spec.task.dataset not in FETCHED:
        small = ["rounds=1", "evaluate.clients=4"]
        assert shoal.run(from_table(with_settings(table, small))).final_accuracy is not None


def test_the_new_method_goes_on_after_a_crash(tmp_path):
    class CrashError(Exception):
        pass

    def crash(record):
        if record["round"] == 2:
            raise CrashError

    small = ["rounds=4", "task.dataset=digits", "task.model=linear", "partition.clients=20"]
    spec = from_table(with_settings(load_table(Path("examples/new_method.toml")), small))
    with pytest.raises(CrashError):
        shoal.run(spec, tmp_path / "run", watcher=crash)
    assert shoal.resume(tmp_path / "run", report=False).weights_sha256 == shoal.run(spec).weights_sha256


# -- pages


def test_links_lead_somewhere():
    dead = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text_of(page)):
            if target.startswith(("http://", "https://")):
                continue
            there = (ROOT / page).parent / target if target else ROOT / page
            if not there.exists() or (anchor and anchor not in anchors(there)):
                dead.append(f"{page}: {target}#{anchor}")
    assert not dead


def anchors(page):
    """The headings as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_method_has_a_page_and_every_page_a_method():
    assert {p.stem for p in (ROOT / "docs/methods").glob("*.md")} == set(METHODS)


def test_a_methods_page_has_its_fields_and_a_result():
    for name in METHODS:
        page = f"docs/methods/{name}.md"
        for field in set(arguments(METHODS[name])) - {"local"}:
            assert re.search(rf"^\| `{field}` \|", text_of(page), re.MULTILINE), f"{page}: {field}"
        for heading in ("Equations", "Fields", "What we tested it against", "A result", "When to use it"):
            assert f"## {heading}\n" in text_of(page), f"{page}: {heading}"
        assert blocks(page, "sh"), page


@pytest.mark.parametrize(
    ("row", "catalogue"),
    [
        ("methods", METHODS),
        ("data sets", DATASETS),
        ("models", MODELS),
        ("partitions", PARTITIONS),
        ("selectors", SELECTORS),
        ("codecs", CODECS),
        ("attacks", ATTACKS),
        ("arrivals", ARRIVALS),
    ],
)
def test_the_readme_names_all_there_is(row, catalogue):
    (cell,) = re.findall(rf"^\| {row} \| (.*) \|$", text_of("README.md"), re.MULTILINE)
    named = re.findall(r"\w+", re.sub(r"\([^)]*\)", "", cell))
    assert sorted(named) == sorted(catalogue)


def test_every_attack_is_described():
    """By its formula, and by its fields and their defaults."""
    page = text_of("docs/attacks.md")
    for name, entry in ATTACKS.items():
        assert re.search(rf"^(\*\*{name}\b.*\*\*|\| {name} \| `)", page, re.MULTILINE), name
        (row,) = re.findall(rf"^\| {name} \| (.*) \|$", page.split("## Fields")[1], re.MULTILINE)
        for field, argument in arguments(entry).items():
            if field not in arguments(Attack):
                assert f"`{field}`" in row, f"{name}.{field}"
                if isinstance(argument.default, int | float):
                    assert f"`{field}` = {argument.default}" in row, f"{name}.{field}"


def test_every_data_set_partition_and_experiment_is_described():
    data, reproduce = text_of("docs/data.md"), text_of("docs/reproduce.md")
    wanted = {
        **{f"data set {name}": f"\n| `{name}` |" in data for name in DATASETS},
        **{f"partition {kind}": f"\n**{kind}.** " in data for kind in PARTITIONS},
        **{f"experiment {name}": f"\n| `{name}` |" in reproduce for name in EXPERIMENTS},
    }
    assert not [what for what, there in wanted.items() if not there]
