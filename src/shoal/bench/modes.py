"""The time of a round in every mode of the local engine, and whether "auto" finds the fastest one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from shoal.bench.plain_pytorch import Plain
from shoal.bench.rounds import RemoteFederation, Row, digits, in_own_process
from shoal.bench.workloads import Workload
from shoal.core.errors import SpecError
from shoal.models import MODELS
from shoal.runs.runner import one_thread
from shoal.spec import Spec, to_table

METHODS = ("fedavg", "scaffold", "fedntd", "dsvd", "fedgen")
MODES = ("auto", "serial", "block", "workers")
LONGEST = 20.0  # seconds per round; models that take longer are left out
SPENT = 3.0  # seconds of rounds for each mode; the number of turns stays within the bounds below
FEWEST, MOST = 2, 15


def measure(
    models: Sequence[str] | None = None,
    methods: Sequence[str] = METHODS,
    watcher: Callable[[str, str], None] | None = None,
) -> Iterator[Row]:
    """One row per model and method: the median seconds per round in each mode.

    For FedAvg, the plain two-process loop is timed too.
    """
    for model in models or list(MODELS):
        for method in methods:
            if watcher is not None:
                watcher(model, method)
            row = _measured(model, method)
            if row is None:
                break
            yield row


def _measured(model: str, method: str) -> Row | None:
    """A row; None if a round takes too long, or if the model does not fit digits."""
    with one_thread(), ExitStack() as stack:
        try:
            specs = {mode: digits(model, method, engine={"mode": mode}) for mode in MODES}
            racers = {mode: stack.enter_context(in_own_process(spec)) for mode, spec in specs.items()}
        except SpecError:
            return None
        plain = _plain_rounds(stack, specs["auto"]) if method == "fedavg" else None
        if plain is not None:  # its processes load torch, and "auto" would mistake that for a mode's time
            plain()
        first = racers["auto"].round()
        if first > LONGEST:
            return None
        turns = int(min(max(SPENT / max(first, 1e-9), FEWEST), MOST))
        race: dict[str, Callable[[], float]] = {mode: racer.round for mode, racer in racers.items()}
        if plain is not None:
            race["plain"] = plain
        for racer in racers.values():
            racer.settle()
        for play in race.values():
            play()
        times: dict[str, list[float]] = {name: [] for name in race}
        for _ in range(turns):
            for name, play in race.items():
                times[name].append(play())
        found = {name: statistics.median(seconds) for name, seconds in times.items()}
        return {"model": model, "method": method, "chosen": racers["auto"].mode, **_told(found, racers)}


def _told(found: dict[str, float], racers: dict[str, RemoteFederation]) -> dict[str, Any]:
    """The seconds of each mode; the mode block is left out if clients are trained one by one."""
    if not racers["block"].in_blocks:
        found.pop("block")
    best = min(seconds for name, seconds in found.items() if name not in ("auto", "plain"))
    return {**found, "behind_best": found["auto"] / best - 1}


def _plain_rounds(stack: ExitStack, spec: Spec) -> Callable[[], float]:
    loop = stack.enter_context(Plain(Workload("", "", to_table(spec), 1).material()))
    played = 0

    def play() -> float:
        nonlocal played
        seconds, _ = loop.run(played, 1)
        played += 1
        return seconds

    return play
