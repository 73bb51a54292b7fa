"""Rounds of several federations, timed in turns, in one process."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shoal.engines.block import trains_in_blocks
from shoal.engines.local import LocalEngine
from shoal.loop import Progress, advance, start
from shoal.runs.build import Setup
from shoal.runs.runner import closing
from shoal.spec import Spec, from_table

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
