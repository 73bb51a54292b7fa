"""Rounds of several federations, timed in turns."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from shoal.core.errors import SpecError, StageError
from shoal.engines.block import trains_in_blocks
from shoal.engines.local import LocalEngine
from shoal.loop import Progress, advance, start
from shoal.runs.build import Setup
from shoal.runs.runner import closing, one_thread
from shoal.spec import Spec, from_table, to_table

TRIALS = 8  # rounds that warm up, or one if they are long
LONG = 0.5  # seconds
GROWING = 100  # rounds at most in which memories still grow
CALM = 5  # rounds in which they do not: now and then there is one without a new client
FEW_PAGES = 20  # that a round takes from the operating system once they no longer do

Row = dict[str, Any]


class Timed:
    """A federation whose rounds are timed one by one."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._progress: Progress = start(setup.federation)

    @property
    def mode(self) -> str:
        """How clients are visited at the moment."""
        engine = self._setup.federation.engine
        return engine.mode if isinstance(engine, LocalEngine) else ""

    @property
    def in_blocks(self) -> bool:
        """Whether its clients can be trained in blocks."""
        return trains_in_blocks(self._setup.side)

    def round(self) -> float:
        """The seconds that the next round takes."""
        started = time.perf_counter()
        self._progress, _ = advance(self._setup.federation, self._progress)
        return time.perf_counter() - started

    def settle(self) -> None:
        """Play until processes are started, memory is taken, and "auto" has made up its mind."""
        engine = self._setup.federation.engine
        for _ in range(TRIALS):
            if self.round() > LONG and self.round() > LONG:
                break
        while isinstance(engine, LocalEngine) and not engine.settled:
            self.round()
        calm = 0
        for _ in range(GROWING):
            before = _pages_taken()
            if self.round() > LONG / 10:
                return
            calm = calm + 1 if _pages_taken() - before <= FEW_PAGES else 0
            if calm == CALM:
                return


def _pages_taken() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@contextmanager
def closed_after(spec: Spec) -> Iterator[Timed]:
    """The federation of a spec."""
    with closing(spec) as setup:
        yield Timed(setup)


class Away:
    """A federation in a process of its own, with what `Timed` has."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    @property
    def mode(self) -> str:
        """See `Timed`."""
        return str(self._ask("mode"))

    @property
    def in_blocks(self) -> bool:
        """See `Timed`."""
        return bool(self._ask("in_blocks"))

    def round(self) -> float:
        """See `Timed`."""
        return float(self._ask("round"))

    def settle(self) -> None:
        """See `Timed`."""
        self._ask("settle")

    def _ask(self, name: str) -> Any:
        self._pipe.send(name)
        return received(self._pipe)


def received(pipe: Connection) -> Any:
    """What comes next; an error is raised here."""
    answer = pipe.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


@contextmanager
def apart(spec: Spec) -> Iterator[Away]:
    """The federation of a spec in a process of its own: beside one that forks, every page that it writes
    would be copied."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, to_table(spec)))
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    try:
        received(ours)
        yield Away(ours)
        ours.send(None)
        process.join()
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection, table: Mapping[str, Any]) -> None:
    """Answer with what a federation has by the names that come, until None does."""
    try:
        with one_thread(), closed_after(from_table(table)) as timed:
            pipe.send(None)
            for name in iter(pipe.recv, None):
                found = getattr(timed, name)
                pipe.send(found() if callable(found) else found)
    except (SpecError, StageError) as error:
        pipe.send(error)


def digits(model: str, method: str, **tables: Any) -> Spec:
    """A hundred clients with digits, ten a round, batch 10, one epoch; no evaluation and no checkpoints."""
    return from_table(
        {
            "task": {"dataset": "mnist5k", "model": model},
            "partition": {"kind": "dirichlet", "beta": 0.5, "clients": 100},
            "selector": {"count": 10},
            "method": method,
            "local": {"batch": 10, "epochs": 1},
            "evaluate": {"every": 0, "clients": 0},
            "checkpoint": {"every": 0},
            **tables,
        }
    )
