"""The command line. Each module of this package defines some commands; they are registered here by name.

At module level, only what the help texts need is imported. What a command needs to run, such as torch, is
imported in its body, so that `--help` and the lists appear at once.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

import shoal
from shoal.cli.arena import arena
from shoal.cli.audit import audit
from shoal.cli.bench import bench
from shoal.cli.demo import demo
from shoal.cli.export import export
from shoal.cli.federation import client, keys, server
from shoal.cli.lists import LISTS, lister
from shoal.cli.options import INTERRUPTED, PIPE_CLOSED, discard_stdout, install_interrupt_handler, print_error
from shoal.cli.reports import partition, report
from shoal.cli.reproduce import reproduce
from shoal.cli.runs import compare, resume, run, verify
from shoal.cli.user_errors import users_error
from shoal.core.errors import SpecError, StageError

_UsageError: Any = typer.BadParameter.__base__  # which typer does not export

# without a default for --help, typer loads pydantic to parse it: a third of typer's import time
NO_HELP = {"help": False}
NO_COMPLETION = dict.fromkeys(("install_completion", "show_completion"), False)
app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "default_map": NO_HELP | NO_COMPLETION | dict.fromkeys(LISTS, NO_HELP),
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


EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {  # shown below the help of a command
    run: (
        "shoal run examples/digits.toml --out runs/first",
        "shoal run --method scaffold --set rounds=20 --set local.lr=0.1",
        "shoal run --set task.dataset=csv --set 'task.path=sites/*.csv' --set task.label=sick",
    ),
    demo: ("shoal demo", "shoal demo --rounds 5 --out runs/look"),
    resume: ("shoal resume runs/first", "shoal resume runs/first --rounds 200"),
    verify: ("shoal verify runs/first",),
    compare: (
        "shoal compare fedavg fedprox:mu=0.1 --spec examples/demo.toml --seeds 0-4",
        "shoal compare fedavg scaffold --grid local.lr=0.01,0.1 --out table.tex",
    ),
    arena: ("shoal arena --defences fedavg,krum,median --attacks sign_flip,min_max",),
    audit: ("shoal audit --uploads fedavg,genefl:gamma=6",),
    reproduce: ("shoal reproduce list", "shoal reproduce fedqp-table1 --scale quick"),
    partition: ("shoal partition examples/demo.toml --out who-holds-what.png",),
    report: (
        "shoal report runs/first --out first.html",
        "shoal report runs/compared --out table.csv",
        "shoal report runs/compared --out curves.png",
    ),
    export: ("shoal export runs/first --out model.pt", "shoal export runs/own --client all --out site.onnx"),
    bench: ("shoal bench methods",),
    keys: ("shoal keys federation --sites north,south,east",),
    server: ("shoal server spec.toml --dir federation",),
    client: ("shoal client --server host:9092 --dir north --data north.csv",),
}
for command, examples in EXAMPLES.items():
    app.command(epilog="\n\n".join(["Examples:", *examples]))(command)
for name, entry in LISTS.items():
    more = f"List the {entry}s; `shoal {name} NAME` shows the fields and defaults of one."
    app.command(name, help=more, context_settings={"allow_extra_args": True})(lister(name))


def console() -> None:
    """The console script: run `main`, then exit without Python's slow teardown.

    By then, all files are complete and all processes have ended. If something else remains to be cleaned up
    (worker processes, Ray), Python exits as usual.
    """
    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None) or "ray" in sys.modules or _children():
            raise
        with suppress(OSError):  # `main` has reported an output that cannot be written
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(ended.code or 0)


def _children() -> bool:
    """Whether any child process is alive."""
    processes: Any = sys.modules.get("multiprocessing")
    return processes is not None and bool(processes.active_children())


def main() -> None:
    """Run the command line: invalid input ends with exit code 2 and a line on stderr, without a traceback."""
    install_interrupt_handler()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            sys.exit((app(standalone_mode=False) or 0) if len(sys.argv) > 1 else app())
    except _UsageError as error:
        print_error(_what_is_wrong(error))
        sys.exit(2)
    except SystemExit as ended:
        sys.exit(_ended(ended))
    except SpecError as error:
        print_error(str(error))
        sys.exit(2)
    except StageError as error:
        if (told := users_error(error)) is None:
            raise
        print_error(told)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:  # files have names, stdout has none
            sys.exit(_unwritten(error))
        print_error(f"{error.filename} cannot be used: {error.strerror}")
        sys.exit(2)
    except KeyboardInterrupt:
        print_error("stopped")
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()  # the process ends: skip the last garbage collection, which takes half a second


def _what_is_wrong(error: Any) -> str:
    """Typer's message about a command line that it cannot parse, without the box around it."""
    command = error.ctx.command_path if error.ctx else "shoal"
    return f"{' '.join(error.format_message().split()).rstrip('.')}; see {command} --help"


def _ended(ended: SystemExit) -> int | str | None:
    """The exit code of a command that has ended, after its output has been flushed."""
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
    print_error(f"the output cannot be written: {problem.strerror or problem}")
    return 2


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    print_error(f"warning: {message}")
