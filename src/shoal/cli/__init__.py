"""The command line. Each module holds some commands; here they get their names.

At their top, modules import only what it takes to explain a command. What it takes to run one, such as
torch, is imported in its body, so that `--help` and the lists come at once.
"""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Annotated, Any

import typer

import shoal
from shoal.cli.arena import arena
from shoal.cli.bench import bench
from shoal.cli.lists import LISTS, lister
from shoal.cli.options import INTERRUPTED, PIPE_CLOSED, complain, discard_stdout, heed_ctrl_c
from shoal.cli.reports import partition, report
from shoal.cli.reproduce import reproduce
from shoal.cli.runs import compare, resume, run, verify
from shoal.core.errors import SpecError

# typer loads pydantic, a third of its time, to read an absent --help that has no default
NO_HELP = {"help": False}
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "default_map": NO_HELP | dict.fromkeys(LISTS, NO_HELP),
    },
)


def _version(asked: bool) -> None:
    if asked:
        print(f"shoal {shoal.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Federated learning between clients that are nothing alike."""


for command in (run, resume, verify, compare, arena, reproduce, partition, report, bench):
    app.command()(command)
for name, entry in LISTS.items():
    app.command(name, help=f"List the {entry}s, with their fields and defaults.")(lister(name))


def main() -> None:
    """The console script: bad input ends with 2 and a line on stderr, not with a traceback."""
    heed_ctrl_c()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app()
    except SystemExit as ended:
        sys.exit(_ended(ended))
    except SpecError as error:
        complain(str(error))
        sys.exit(2)
    except OSError as error:
        if error.filename is None:  # files have names, stdout has none
            sys.exit(_unwritten(error))
        complain(f"{error.filename} cannot be used: {error.strerror}")
        sys.exit(2)
    except KeyboardInterrupt:
        complain("stopped")
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()  # the process ends: nobody needs a last search for garbage, which takes half a second


def _ended(ended: SystemExit) -> int | str | None:
    """The exit code of a command that has ended, once its output has arrived where it goes."""
    code, problem = ended.code, ended.__context__
    try:
        sys.stdout.flush()
    except OSError as error:
        problem = error
    return _unwritten(problem) if isinstance(problem, OSError) else code


def _unwritten(problem: OSError) -> int:
    """The exit code where stdout is closed or full."""
    discard_stdout()
    if isinstance(problem, BrokenPipeError):  # its reader, such as `head`, has seen enough
        return PIPE_CLOSED
    complain(f"the output cannot be written: {problem.strerror or problem}")
    return 2


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    complain(f"warning: {message}")
