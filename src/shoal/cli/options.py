"""Options that several commands have, and what they stand for."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.core.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SEEDS = 1000
TABLES = (".csv", ".tex", ".md")  # what the name of a table may end in
PICTURES = (".png", ".svg", ".pdf")  # what the name of a picture may end in
FILES = (".html", ".htm", ".json", ".txt", ".xlsx", ".pdf", ".png", ".svg", ".toml", ".yaml")  # no folders

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
PictureOption = Annotated[
    Path | None,
    typer.Option(metavar="PICTURE.png", help="Also draw the result in one picture (png, svg, pdf)."),
]

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
    """The seeds of an option: `0,1,2`, or with ranges `0-4,10`."""
    found: list[int] = []
    for part in seeds.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise SpecError(f"--seeds must be whole numbers such as 0,1,2 or 0-4; got {seeds!r}")
        if dash and int(last) - int(first) > MOST_SEEDS:
            raise SpecError(f"--seeds {seeds!r} are more than {MOST_SEEDS}; give fewer")
        found += range(int(first), int(last) + 1) if dash else [int(first)]
    if not found:
        raise SpecError(f"--seeds {seeds!r} are none; a range goes up, such as 0-4")
    return found


def check_picture(path: Path | None, option: str = "--picture") -> None:
    """Refuse a name that no picture can have."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise SpecError(f"{option} {path} must end in one of {', '.join(PICTURES)}")


def save_picture(figure: Figure, path: Path, option: str = "--picture") -> None:
    """Write a figure, on white."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white")
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}; choose another {option}") from None


def grid_of(options: Sequence[str]) -> dict[str, list[str]]:
    """The values of `--grid local.lr=0.01,0.1`, by field, as texts."""
    grid: dict[str, list[str]] = {}
    for option in options:
        field, equals, values = option.partition("=")
        texts = [text.strip() for text in values.split(",")]
        if not equals or not field.strip() or not all(texts):
            raise SpecError(f"--grid {option!r} must look like field=value,value, e.g. local.lr=0.01,0.1")
        if field.strip() in grid or len(set(texts)) < len(texts):
            raise SpecError(f"--grid {option!r} repeats a field or a value; name each once")
        grid[field.strip()] = texts
    return grid


def folder_and_table(out: Path | None, name: str) -> tuple[Path, Path | None]:
    """Where the runs go, and the file for a table, if `--out` names one by its ending."""
    if out is None:
        return free_folder(name), None
    if out.suffix in TABLES:
        return free_folder(name), out
    if out.suffix in FILES:
        raise SpecError(
            f"--out {out} must be a folder, or a table that ends in {', '.join(TABLES)}; for a page: "
            "shoal report DIR --out page.html"
        )
    return out, None


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
