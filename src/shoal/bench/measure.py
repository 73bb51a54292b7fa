"""Time contestants against each other in turns, so that load on the machine affects all of them alike."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from shoal.bench.contestant import exact_exists
from shoal.bench.other_frameworks import MOST_CLIENTS, NEEDED, available
from shoal.bench.workloads import Workload, named
from shoal.config import unknown
from shoal.core.errors import SpecError, StageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
Answer = Mapping[str, float]  # from a contestant: seconds, samples, rounds, peak_rss_mb, others
Watcher = Callable[[str, str, int], None]  # called with (workload, contestant, turn); turn 0 is the warm-up

PEER_TURNS = 3  # at most for a peer, which may take a hundred times as long
QUIET = 0.1  # a turn counts if other programs take at most this share of the processors
FEWEST = 3  # number of such turns that is enough
_PATIENCE = 20.0  # seconds in which a contestant has to end by itself


def measure(
    names: Sequence[str],
    pairs: int = 7,
    peers: Sequence[str] | None = None,
    watcher: Watcher | None = None,
) -> list[Row]:
    """One row per workload and contestant: medians over `pairs` turns, after a warm-up turn.

    Shoal and the plain loop take turns; then each peer (by default all that can be imported) takes turns
    with the plain loop. `ratio_to_plain` is the median, over the turns, of a contestant's samples per second
    over those of the plain loop in the same turn, so it may differ a little from the ratio of the medians.

    Ratios are only meaningful on a quiet machine: a contestant that assigns work dynamically loses less to
    other processes than one that splits it beforehand. So only turns count in which other programs were idle;
    if there are too few of them, all count, and a warning says so.
    """
    if pairs < 1:
        raise SpecError(f"pairs must be at least 1, got {pairs}")
    workloads = [workload for name in names for workload in named(name)]
    peers = _known(available() if peers is None else peers)
    rows = []
    for workload in workloads:
        some = peers if workload.clients <= MOST_CLIENTS else []
        rows += _measured(workload, pairs, some, watcher or _nobody)
    return rows


def chart(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A bar chart of the ratios to the plain loop."""
    from shoal.bench.picture import bars  # matplotlib is slow to import

    return bars(rows)


def _known(peers: Sequence[str]) -> list[str]:
    for peer in peers:
        if peer not in NEEDED:
            raise unknown(peer, peer, NEEDED, "peer")
        if peer not in available():
            raise SpecError(f"peer {peer} cannot be imported here; install {' and '.join(NEEDED[peer])}")
    return list(peers)


def _nobody(workload: str, contestant: str, turn: int) -> None:
    """A watcher that does nothing."""


def _measured(workload: Workload, pairs: int, peers: Sequence[str], watcher: Watcher) -> list[Row]:
    own = ["shoal", *(["shoal-exact"] if exact_exists() else []), "plain"]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-"))
        racers = {name: stack.enter_context(_started(workload.name, name, folder)) for name in own}
        turns = _turns(workload.name, racers, pairs, watcher)
        rows = [_row(workload.name, name, turns[name], turns["plain"]) for name in own]
        for peer in peers:
            try:
                with _started(workload.name, peer, folder) as racer:
                    pair = {peer: racer, "plain": racers["plain"]}
                    turns = _turns(workload.name, pair, min(pairs, PEER_TURNS), watcher)
            except StageError as error:  # a failure of another framework is no reason to stop
                warnings.warn(str(error), stacklevel=3)
                continue
            rows.append(_row(workload.name, peer, turns[peer], turns["plain"]))
    return rows


def _turns(
    workload: str, racers: Mapping[str, Callable[[], Answer]], pairs: int, watcher: Watcher
) -> dict[str, list[Answer]]:
    turns: dict[str, list[Answer]] = {name: [] for name in racers}
    for turn in range(pairs + 1):
        for name, racer in racers.items():
            watcher(workload, name, turn)
            answer = racer()
            if turn:
                turns[name].append(answer)
    return _quiet(workload, turns)


def _row(workload: str, peer: str, turns: Sequence[Answer], plain: Sequence[Answer]) -> Row:
    return {
        "workload": workload,
        "peer": peer,
        "client_samples_per_second": statistics.median(_speed(turn) for turn in turns),
        "seconds_per_round": statistics.median(turn["seconds"] / turn["rounds"] for turn in turns),
        "peak_rss_mb": max(turn["peak_rss_mb"] for turn in turns),
        "ratio_to_plain": statistics.median(_speed(a) / _speed(b) for a, b in zip(turns, plain)),
    }


def _quiet(workload: str, turns: dict[str, list[Answer]]) -> dict[str, list[Answer]]:
    """The turns without load from other programs; if there are too few, all of them, with a warning."""
    beside = list(zip(*turns.values(), strict=True))
    kept = [i for i, some in enumerate(beside) if max(turn["others"] for turn in some) <= QUIET]
    if len(kept) >= min(FEWEST, len(beside)):
        return {name: [some[i] for i in kept] for name, some in turns.items()}
    others = statistics.median(turn["others"] for some in beside for turn in some)
    warnings.warn(
        f"while {workload} was timed, others took {others:.0%} of the processors; "
        "such ratios are rough: repeat it on a quiet machine",
        stacklevel=5,
    )
    return turns


def _speed(turn: Answer) -> float:
    return turn["samples"] / turn["seconds"]


@contextmanager
def _started(workload: str, peer: str, folder: str) -> Iterator[Callable[[], Answer]]:
    """Start a contestant in its own process; yields a function that makes it run one stretch.

    It leads a process group, so that all processes that it has started end with it.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    surroundings = {**os.environ, "PYTHONPATH": paths, "TMPDIR": folder, "RAY_TMPDIR": folder}
    with (Path(folder) / f"{peer}.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal.bench.contestant", workload, peer],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=surroundings,
            text=True,
            start_new_session=True,
        )
        where = f"{peer} on {workload}"
        try:
            yield lambda: _answer(process, log, where)
            process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _swept(process)


def _answer(process: subprocess.Popen[str], log: IO[str], where: str) -> Answer:
    """Ask a contestant to run one stretch."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write("go\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if line:
        answer: Answer = json.loads(line)
        return answer
    process.wait()
    log.seek(0)
    said = [text for text in log.read().splitlines() if text.strip()]
    raise StageError(
        f"{where} ended ({process.returncode}): {said[-1].strip() if said else 'it said nothing'}"
    )


def _swept(process: subprocess.Popen[str]) -> None:
    """End a contestant, and any processes left in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # a request that the process never read
                pipe.close()
