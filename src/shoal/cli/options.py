"""Options that several commands have, and what they stand for."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
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


INTERRUPTED, PIPE_CLOSED = 128 + signal.SIGINT, 128 + 13  # exit codes, as shells count them


def complain(message: str) -> None:
    """An error, in one or two lines on stderr."""
    with suppress(OSError):  # if that is closed too, nobody can be told
        print(f"shoal: {message}", file=sys.stderr, flush=True)


def discard_stdout() -> None:
    """Let nothing more be written to stdout, which is closed or full."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def heed_ctrl_c() -> None:
    """The first Ctrl-C ends a command in good order; another one ends the process at once.

    Nothing is lost then either: files are written whole, and worker processes end with this one.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # it is ignored, as in the background of a shell, or the caller has its own

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _end_at_once)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h")  # progress bars hide the cursor
    os._exit(INTERRUPTED)


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
        sys.exit(INTERRUPTED)
