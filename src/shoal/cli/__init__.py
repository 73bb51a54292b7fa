"""The command line. Each module holds some commands; here they get their names."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from shoal.cli.arena import arena
from shoal.cli.bench import bench
from shoal.cli.lists import LISTS, lister
from shoal.cli.pictures import partition, report
from shoal.cli.reproduce import reproduce
from shoal.cli.runs import compare, resume, run
from shoal.core.errors import SpecError
from shoal.terminal import complain

app = typer.Typer(
    help="Federated learning between clients that are nothing alike.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"shoal {version('shoal')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """Federated learning between clients that are nothing alike."""


for command in (run, resume, compare, arena, reproduce, partition, report, bench):
    app.command()(command)
for name, catalogue in LISTS.items():
    app.command(name, help=f"List the {name}.")(lister(catalogue))


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
