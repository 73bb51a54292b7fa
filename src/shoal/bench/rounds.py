"""Rounds of several federations, timed in turns, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from shoal.loop import Progress, advance, start
from shoal.runs.build import Setup
from shoal.runs.runner import closing, one_thread
from shoal.spec import EngineSpec, Spec, from_table

WARM_UP = 2  # rounds before the clock counts: processes start, memory is taken


class Timed:
    """A federation whose rounds are timed one by one."""

    def __init__(self, setup: Setup) -> None:
        self._federation = setup.federation
        self._progress: Progress = start(setup.federation)
        self.engine: EngineSpec = setup.spec.engine  # with the mode that was chosen

    def round(self) -> float:
        """The seconds that the next round takes."""
        started = time.perf_counter()
        self._progress, _ = advance(self._federation, self._progress)
        return time.perf_counter() - started


@contextmanager
def timed(specs: Sequence[Spec]) -> Iterator[list[Timed]]:
    """The federations of these specs, warmed up."""
    with one_thread(), ExitStack() as stack:
        made = [Timed(stack.enter_context(closing(spec))) for spec in specs]
        for one in made:
            for _ in range(WARM_UP):
                one.round()
        yield made


def in_turns(federations: Sequence[Timed], turns: int) -> list[list[float]]:
    """The seconds of so many rounds of each federation; all have a round before the first has its next."""
    rows = [[one.round() for one in federations] for _ in range(turns)]
    return [list(column) for column in zip(*rows, strict=True)]


def ratio(seconds: Sequence[float], beside: Sequence[float]) -> float:
    """The median of the ratios of rounds that were played side by side."""
    return statistics.median(a / b for a, b in zip(seconds, beside, strict=True))


def digits(model: str, method: str, local: Mapping[str, Any], **tables: Any) -> Spec:
    """A federation of a hundred clients with digits, ten a round, without evaluation or checkpoints."""
    return from_table(
        {
            "task": {"dataset": "mnist5k", "model": model},
            "partition": {"kind": "dirichlet", "beta": 0.5, "clients": 100},
            "selector": {"count": 10},
            "method": method,
            "local": {"batch": 10, "epochs": 1, **local},
            "evaluate": {"every": 0, "clients": 0},
            "checkpoint": {"every": 0},
            **tables,
        }
    )
