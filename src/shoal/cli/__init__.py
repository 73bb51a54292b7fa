"""The command line. Each module holds some commands; here they get their names.

At their top, modules import only what it takes to explain a command. What it takes to run one, such as
torch, is imported in its body, so that `--help` and the lists come at once.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated

import typer

import shoal
from shoal.cli.arena import arena
from shoal.cli.audit import audit
from shoal.cli.bench import bench
from shoal.cli.lists import LISTS, lister
from shoal.cli.options import complain
from shoal.cli.reports import partition, report
from shoal.cli.reproduce import reproduce
from shoal.cli.runs import compare, resume, run
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


for command in (run, resume, compare, arena, audit, reproduce, partition, report, bench):
    app.command()(command)
for name, entry in LISTS.items():
    app.command(name, help=f"List the {entry}s, with their fields and defaults.")(lister(name))


def main() -> None:
    """The console script: bad input ends with 2 and a line on stderr, not with a traceback."""
    sys.path.insert(0, os.getcwd())  # so that a spec can name functions of the user's own modules
    try:
        app()
    except SpecError as error:
        complain(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        complain("stopped")
        sys.exit(130)
    finally:
        gc.freeze()  # the process ends: nobody needs a last search for garbage, which takes half a second
