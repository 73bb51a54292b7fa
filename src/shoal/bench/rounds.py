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

TRIALS = 8  # warm-up rounds; fewer if they are long
LONG = 0.5  # seconds
GROWING, PATIENCE = 100, 10.0  # limits in rounds and seconds while client memories still grow
CALM = 5  # consecutive rounds without growth: a single one may just have had no new client
FEW_PAGES = 20  # a round without growth takes at most this many pages from the operating system

Row = dict[str, Any]


class Timed:
    """A federation whose rounds are timed one by one."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._progress: Progress = start(setup.federation)

    @property
    def mode(self) -> str:
        """The current mode of the engine."""
        engine = self._setup.federation.engine
        return engine.mode if isinstance(engine, LocalEngine) else ""

    @property
    def in_blocks(self) -> bool:
        """Whether its clients can be trained in blocks."""
        return trains_in_blocks(self._setup.side)

    def round(self) -> float:
        """Run the next round; returns its seconds."""
        started = time.perf_counter()
        self._progress, _ = advance(self._setup.federation, self._progress)
        return time.perf_counter() - started

    def settle(self) -> None:
        """Run rounds until processes are started, memory is allocated, and "auto" has chosen a mode."""
        engine = self._setup.federation.engine
        for _ in range(TRIALS):
            if self.round() > LONG and self.round() > LONG:
                break
        while isinstance(engine, LocalEngine) and not engine.settled:
            self.round()
        calm, started = 0, time.perf_counter()
        for _ in range(GROWING):
            before = _pages_taken()
            self.round()
            calm = calm + 1 if _pages_taken() - before <= FEW_PAGES else 0
            if calm == CALM or time.perf_counter() - started > PATIENCE:
                return


def _pages_taken() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@contextmanager
def closed_after(spec: Spec) -> Iterator[Timed]:
    """The federation of a spec, closed at the end of the block."""
    with closing(spec) as setup:
        yield Timed(setup)


class RemoteFederation:
    """A federation in its own process, with the interface of `Timed`."""

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
    """The next answer from the pipe; if it is an error, it is raised here."""
    answer = pipe.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


@contextmanager
def in_own_process(spec: Spec) -> Iterator[RemoteFederation]:
    """The federation of a spec in its own process.

    In the process of another federation that forks, every page that it writes would be copied.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, to_table(spec)))
    process.start()
    theirs.close()  # so that the pipe closes when the process ends
    try:
        received(ours)
        yield RemoteFederation(ours)
        ours.send(None)
        process.join()
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection, table: Mapping[str, Any]) -> None:
    """Answer requests for attributes of a federation by name, until None arrives."""
    try:
        with one_thread(), closed_after(from_table(table)) as timed:
            pipe.send(None)
            for name in iter(pipe.recv, None):
                found = getattr(timed, name)
                pipe.send(found() if callable(found) else found)
    except (SpecError, StageError) as error:
        pipe.send(error)


def digits(model: str, method: str, **tables: Any) -> Spec:
    """A hundred clients with digits, ten per round, batch 10, one epoch; no evaluation, no checkpoints."""
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
