"""Install a wheel of Shoal into an environment of its own, and use it from an empty folder.

    python .ci/try_wheel.py dist/shoal-*.whl

Only Shoal comes from the wheel. What it depends on is seen through the environment that runs this script:
torch again would take a gigabyte and minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "shoal"
SMALL = ("task.dataset=digits", "task.model=linear", "partition.clients=10", "rounds=2")


def check_files(wheel: Path) -> None:
    """The wheel holds the package as it is here, data files included, and nothing else."""
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("shoal/")}
    here = {
        str(path.relative_to(SOURCE.parent))
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == here, f"only here or only in the wheel: {sorted(packed ^ here)}"
    assert any(not name.endswith(".py") for name in packed - {"shoal/py.typed"}), "no data file in the wheel"


def install(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel; returns its packages."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", scheme))
    # after its own packages, and without the .pth files there, among them that of an editable Shoal
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([*pip, "check"], check=True)
    return packages


def keep_kernels(installed: Path) -> None:
    """Kernels that were compiled here need not be compiled again: numba knows a file by its time and size."""
    for path in (SOURCE / "kernels").glob("*.py"):
        copy = installed / "kernels" / path.name
        assert copy.read_bytes() == path.read_bytes()
        os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    cache = installed / "kernels" / "__pycache__"
    cache.mkdir(exist_ok=True)
    for pattern in ("*.nb?", "*.sha256"):
        for path in (SOURCE / "kernels" / "__pycache__").glob(pattern):
            shutil.copy(path, cache)


def use(folder: Path, packages: Path) -> None:
    """A few commands, as a user would give them."""
    empty = folder / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def said(program: str, *arguments: str) -> str:
        command = [str(folder / "bin" / program), *arguments]
        return subprocess.run(
            command, cwd=empty, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    there = said("python", "-c", "import shoal; print(shoal.__file__)").strip()
    assert Path(there).is_relative_to(packages), f"shoal comes from {there}, not from the wheel"
    recorded = said("python", "-c", "from importlib.metadata import version; print(version('shoal'))")
    assert said("shoal", "--version") == f"shoal {recorded}"
    assert "fedavg" in json.loads(said("shoal", "methods", "--json"))
    settings = [word for setting in SMALL for word in ("--set", setting)]
    summary = json.loads(said("shoal", "run", *settings, "--out", "run", "--json"))
    assert summary["rounds"] == 2
    assert "<html" in (empty / "run" / "report.html").read_text(encoding="utf-8")


def main() -> None:
    """Try the wheel that is named on the command line."""
    wheel = Path(sys.argv[1]).resolve()
    check_files(wheel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        packages = install(wheel, folder)
        keep_kernels(packages / "shoal")
        use(folder, packages)
    print(f"{wheel.name} installs and runs")


if __name__ == "__main__":
    main()
