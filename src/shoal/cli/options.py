"""Options that several commands have, and what they stand for."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from shoal.core.errors import SpecError

SpecFile = Annotated[
    Path | None, typer.Argument(metavar="SPEC.toml", help="Spec of the run; without one, the defaults.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH.TO.FIELD=VALUE", help="Set a field of the spec: local.lr=0.1. Can be repeated."
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]


def complain(message: str) -> None:
    """An error, in one or two lines on stderr."""
    print(f"shoal: {message}", file=sys.stderr)


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
def loading() -> Iterator[None]:
    """Around the imports of a command: without looking for garbage, which takes a tenth of their time.

    There is hardly any, and what modules hold stays: later collections need not look at it again.
    """
    if "torch" in sys.modules:  # all that is slow has been loaded, by whoever called the command from Python
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def own_modules() -> None:
    """Let a spec name functions of the user's own modules, in the current folder.

    It comes last on the module path, so that no file there takes the place of an installed package.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


@contextmanager
def interruptible(cure: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C ends a run without losing it, and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        advice = cure()
        complain(f"stopped; {advice}" if advice else "stopped")
        sys.exit(130)
