"""Options that several commands have, and what they stand for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from shoal.core.errors import SpecError
from shoal.terminal import complain

SpecFile = Annotated[
    Path | None, typer.Argument(metavar="[SPEC.toml]", help="The spec; without it, defaults.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH.TO.FIELD=VALUE", help="Change a field of the spec.")
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
OutFolder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where to write; it must be new.")
]


def free_folder(name: str) -> Path:
    """runs/001-name, runs/002-name, ...: the first number that no folder has."""
    taken = {path.name.split("-")[0] for path in Path("runs").glob("*")}
    number = next(n for n in range(1, 10**6) if f"{n:03d}" not in taken)
    return Path("runs") / f"{number:03d}-{name.replace(':', '.')}"


def numbers(seeds: str) -> list[int]:
    """The seeds of an option."""
    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise SpecError(f"--seeds must be whole numbers such as 0,1,2; got {seeds!r}") from None


@contextmanager
def interruptible(cure: str) -> Iterator[None]:
    """Ctrl-C ends a run without losing it, and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        complain(f"stopped; {cure}")
        sys.exit(130)
