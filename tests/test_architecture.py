"""Arrows point one way, and randomness has one source. Read from the source files themselves."""

import ast
import inspect
import re
from collections import defaultdict
from pathlib import Path

import shoal

ROOT = Path(shoal.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# what each package may import of Shoal; everything may import its own package
CATALOGUES = {
    "aggregators",
    "arrivals",
    "devices",
    "attacks",
    "codecs",
    "data",
    "methods",
    "models",
    "privacy",
    "selectors",
}
ALLOWED = {
    "kernels": set(),
    "core": {"kernels"},
    "terms": {"core"},
    "server": {"core"},
    "solver": {"core", "kernels", "terms"},
    "parts": {"core", "kernels", "solver", "terms"},
    "aggregators": {"core", "kernels", "parts", "server", "solver"},
    "methods": {"core", "parts", "aggregators", "codecs", "server", "solver", "terms"},
    "selectors": {"core", "kernels"},
    "codecs": {"core", "kernels", "parts"},
    "arrivals": {"core"},
    "devices": {"core"},
    "attacks": {"core", "aggregators"},  # one attack runs a rule beforehand
    "privacy": {"core"},
    "models": {"core"},
    "data": {"core", "kernels"},
    "engines": {"core", "kernels"},
    "metrics": set(),
    "round_clock": {"core"},
    "round_faults": {"core"},
    "round_stats": {"core", "round_clock"},
    "loop": {"core", "round_clock", "round_faults", "round_stats"},
    "config": {"core"},
    "catalogues": {"core", "config", "parts", "server", "terms", *CATALOGUES},
    "run_settings": {"core", "metrics", "round_faults"},
    "task_parts": {"core", "config", "catalogues"},
    "spec": {"core", "config", "catalogues", "run_settings", "solver", "task_parts", *CATALOGUES},
    "overrides": {"core", "config", "catalogues", "spec"},
    "extend": {"core", "aggregators", "methods", "server", "solver"},
    "report": {"core"},
    "runs": {
        *("core", "kernels", "config", "catalogues", "spec", "data", "models", "engines", "loop", "metrics"),
        "solver",  # how a model is evaluated
        *("run_settings", "round_clock", "task_parts"),
        "report",  # the page of a run that is done
    },
    "audit": {
        *(
            "core",
            "config",
            "catalogues",
            "spec",
            "overrides",
            "codecs",
            "privacy",
            "data",
            "solver",
            "parts",
        ),
        *("loop", "runs", "report"),
    },
    "federation": {
        *("core", "engines", "loop", "round_clock", "runs", "run_settings", "spec", "catalogues", "data"),
        "solver",
    },
    "terminal": {"data", "report", "runs"},
    "study": {
        *("core", "config", "catalogues", "spec", "overrides", "metrics", "engines", "aggregators"),
        *("selectors", "methods", "models", "data", "parts", "loop", "runs", "report", "terminal", "audit"),
    },
    "bench": {
        *("core", "config", "catalogues", "spec", "data", "models", "methods", "solver", "engines", "loop"),
        *("codecs", "aggregators", "run_settings", "runs", "report"),
    },
    "__init__": {"core", "runs", "spec", "study"},
    "__main__": {"cli"},
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "shoal"  # then what is imported are packages
            names |= {f"shoal.{alias.name}" for alias in node.names} if whole else {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("shoal.")}


def test_arrows_point_one_way():
    wrong = []
    for path in FILES:
        package = path.relative_to(ROOT).parts[0].removesuffix(".py")
        found = imported(path) - {package}
        strange = found - (ALLOWED[package] if package != "cli" else found)
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(strange)]
    assert not wrong


def test_no_method_subclasses_another():
    """Two may share what is half a method; it is abstract, and it extends nothing but the protocol."""
    from shoal.core.method import Method, Recipe
    from shoal.core.training import Training
    from shoal.methods import METHODS

    for entry in METHODS.values():
        (base,) = entry.__bases__
        if base.__module__.startswith(("shoal.parts.", "shoal.aggregators.")):
            assert inspect.isabstract(base)
            (base,) = base.__bases__
        assert base in (Method, Recipe, Training)


def test_randomness_has_one_source():
    wrong = []
    for path in FILES:
        # a generator handed over is an argument; RandomState(113) deals Boston as everybody does
        text = path.read_text().replace("np.random.Generator", "").replace("np.random.RandomState(113)", "")
        if re.search(r"manual_seed|\brandom\.\w|np\.random\.|fork_rng|default_rng", text):
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == ["core/key.py"]


def test_files_stay_small():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: lines for name, lines in lengths.items() if lines > 300}


def test_a_class_name_means_one_thing():
    """`Outcome` in one package and `Outcome` in another are two things with one word."""
    where = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: paths for name, paths in where.items() if len(paths) > 1}


def test_a_papers_docstring_says_where_it_departs():
    for folder in ("methods", "aggregators"):
        for path in (ROOT / folder).glob("*.py"):
            text = ast.get_docstring(ast.parse(path.read_text()))
            paper = folder == "methods" and path.name != "__init__.py"
            if paper or re.search(r"(19|20)\d\d", text):  # it cites one
                assert "Departures:" in text, path


def test_extending_needs_one_import():
    """Examples and the page on extending import what they derive from in one place."""
    import shoal.extend

    assert all(hasattr(shoal.extend, name) for name in shoal.extend.__all__)
    root = ROOT.parents[1]
    for path in [*(root / "examples").glob("*.py"), root / "docs" / "extending.md", root / "README.md"]:
        found = set(re.findall(r"^from (shoal[\w.]*) import", path.read_text(), re.MULTILINE))
        assert found <= {"shoal", "shoal.extend"}, path
