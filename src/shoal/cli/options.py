"""Options shared by several commands, and helpers that interpret them."""

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
TABLES = (".csv", ".tex", ".md")  # suffixes of tables
PICTURES = (".png", ".svg", ".pdf")  # suffixes of pictures
FILES = (".html", ".htm", ".json", ".txt", ".xlsx", ".pdf", ".png", ".svg", ".toml", ".yaml")  # not folders

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
    typer.Option(metavar="PICTURE.png", help="Also draw the result as a picture (png, svg, pdf)."),
]

INTERRUPTED, PIPE_CLOSED = 128 + signal.SIGINT, 128 + 13  # exit codes, as in shells


def print_error(message: str) -> None:
    """Print an error, one or two lines, on stderr."""
    with suppress(OSError):  # if stderr is closed too, there is nowhere left to report to
        print(f"shoal: {message}", file=sys.stderr, flush=True)


def discard_stdout() -> None:
    """Discard further output to stdout, which is closed or full."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def install_interrupt_handler() -> None:
    """Let the first Ctrl-C end a command cleanly, and a second one end the process at once.

    Nothing is lost in the second case either: files are written atomically, and worker processes end with
    this one.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # it is ignored, as in the background of a shell, or the caller has its own handler

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _end_at_once)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h")  # progress bars hide the cursor
    os._exit(INTERRUPTED)


def free_folder(name: str) -> Path:
    """runs/001-name, runs/002-name, ...: the first number that is not taken."""
    taken = {path.name.split("-")[0] for path in Path("runs").glob("*")}
    number = next(n for n in range(1, 10**6) if f"{n:03d}" not in taken)
    return Path("runs") / f"{number:03d}-{name.replace(':', '.')}"


def numbers(seeds: str) -> list[int]:
    """Parse the seeds of an option: `0,1,2`, or with ranges `0-4,10`."""
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
    """Refuse a file name without the suffix of a picture."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise SpecError(f"{option} {path} must end in one of {', '.join(PICTURES)}")


def save_picture(figure: Figure, path: Path, option: str = "--picture") -> None:
    """Write a figure on a white background."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, facecolor="white")
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}; choose another {option}") from None


def grid_of(options: Sequence[str]) -> dict[str, list[str]]:
    """The values of `--grid local.lr=0.01,0.1` by field, as strings."""
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
    """The folder for the runs, and the file for a table if the suffix of `--out` names one."""
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
def gc_paused_for_imports() -> Iterator[None]:
    """Disable garbage collection during the imports of a command, where it takes a tenth of the time.

    Imports leave hardly any garbage, and their objects stay alive: later collections need not scan them.
    """
    if "torch" in sys.modules:  # called from Python, where the slow imports are done
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def own_modules() -> None:
    """Let a spec name functions in the user's own modules in the current folder.

    The folder comes last on the module path, so that no file in it shadows an installed package.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


@contextmanager
def interruptible(cure: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end a run without losing it, and say how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        advice = cure()
        print_error(f"stopped; {advice}" if advice else "stopped")
        sys.exit(INTERRUPTED)
