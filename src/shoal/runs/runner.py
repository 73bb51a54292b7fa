"""Runs: from a spec to a result, with records, checkpoints and a report."""

from __future__ import annotations

import gc
import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from shoal.core.errors import SpecError, StageError
from shoal.core.serialization import to_bytes
from shoal.core.types import Version
from shoal.engines.os_settings import keep_freed_memory
from shoal.loop import Progress, advance, start
from shoal.run_settings import Checkpoint
from shoal.runs.arguments import Given, as_spec
from shoal.runs.build import Setup, build
from shoal.runs.clients import client_summary
from shoal.runs.directory import REPORT, RunDirectory
from shoal.runs.evaluation import MOST_SHOWN, measured, presence, reached, shown_clients
from shoal.runs.files import translate_os_errors
from shoal.runs.model_file import named_weights, weights_sha256
from shoal.runs.progress_line import progress_line
from shoal.runs.record import Record, as_record, attackers_step_share, attackers_weight, summarise
from shoal.runs.remarks import remarks
from shoal.runs.result import Result
from shoal.spec import Spec

Watcher = Callable[[Record], None]  # called with the record of every round
SPREAD = 40  # pause after a checkpoint, in multiples of its duration: checkpoints take 2.5 % of a run


def run(
    spec: Given = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    *,
    report: bool = True,
    progress: bool | None = None,
    **tables: Any,
) -> Result:
    """Run a spec, given as an object, as tables, as the path of a TOML file, or as keywords.

    Keywords are tables of the spec, and are merged into it: `rounds=5, method={"name": "fedprox"}`.
    `dataset` may be a `Dataset` or a function, `model` an `nn.Module`, its class or a function, `method` a
    `Method`. Without `out`, nothing is written. `report = False` skips the HTML report, which can take longer
    than a small run. A `watcher` is called with the record of every round; without one, a line shows the
    `progress`, by default in notebooks and terminals.
    """
    chosen = as_spec(spec, tables)
    watcher = watcher or progress_line(chosen.method_name, chosen.rounds, progress)
    if chosen.engine.name == "flower":
        from shoal.runs.on_flower import run_on_flower  # which uses this module

        return run_on_flower(chosen, None if out is None else Path(out), watcher)
    with one_thread(), closing(chosen) as setup:
        directory = None if out is None else RunDirectory.create(Path(out), setup.spec, environment())
        records: list[Record] = []
        try:
            return run_remaining_rounds(setup, start(setup.federation), records, directory, watcher, report)
        except (StageError, SpecError):
            if directory is not None and not records:
                directory.remove()  # nothing is lost, and `out` can be used again
            raise
        finally:
            if directory is not None:
                directory.close()


def environment() -> str:
    """What determines the exact results of a run besides the spec."""
    return f"torch {torch.__version__}, {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


@contextmanager
def closing(spec: Spec) -> Iterator[Setup]:
    """Build a federation, and stop its processes at the end of the block, however it ends."""
    setup = build(spec)
    try:
        yield setup
    finally:
        setup.federation.engine.close()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: otherwise, the last bits of some sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_freed_memory()
    gc.freeze()  # otherwise, Python's garbage collector scans all modules again and again
    try:
        with threadpool_limits(1, "blas"):  # NumPy's
            yield
    finally:
        gc.unfreeze()
        torch.set_num_threads(before)


def run_remaining_rounds(
    setup: Setup,
    progress: Progress,
    records: list[Record],
    directory: RunDirectory | None,
    watcher: Watcher | None,
    report: bool,
) -> Result:
    """Run the remaining rounds, and conclude the run."""
    spec, saved = setup.spec, progress.accepted
    pace, evaluating = Pace(spec.checkpoint), 0.0
    while not _over(spec, records):
        started = time.perf_counter()
        progress, record = _round(spec, setup, progress, records)
        evaluating += time.perf_counter() - started - record["seconds"]
        records.append(record)
        if directory is not None:
            directory.append_round(record)
            if pace.due(progress.round, last=_over(spec, records)):
                with pace.saving():
                    save(setup, directory, progress, saved)
                saved = progress.accepted
        if watcher is not None:
            watcher(record)
    summary = conclude(setup, progress, records, directory, report, evaluating)
    return Result.of(
        summary, records, None if directory is None else directory.path, spec, lambda: (setup, progress)
    )


class Pace:
    """Decides when to save a checkpoint: every `every` rounds, but only for a small share of a run's time."""

    def __init__(self, wanted: Checkpoint) -> None:
        self._wanted = wanted
        self._next = 0.0

    def due(self, round: int, *, last: bool) -> bool:
        """Whether to save after this round."""
        every = self._wanted.every
        return every > 0 and (last or (round % every == 0 and time.perf_counter() >= self._next))

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Time a checkpoint, to set the time from which the next one is due."""
        started = time.perf_counter()
        yield
        ended, pause = time.perf_counter(), self._wanted.every_seconds
        self._next = ended + (SPREAD * (ended - started) if pause is None else pause)


def conclude(
    setup: Setup,
    progress: Progress,
    records: Sequence[Record],
    directory: RunDirectory | None,
    report: bool,
    evaluating: float = 0.0,
) -> dict[str, Any]:
    """The summary of a finished run; it is also written to its directory, with models and report."""
    weights = named_weights(setup.federation.method.models(progress.state))
    summary = summarise(setup.spec, records)
    summary |= {
        "total_seconds": summary["seconds"] + evaluating,
        "weights_sha256": weights_sha256(weights),
        "memory_sha256": _memory_sha256(setup, progress),
        "environment": environment(),
        **client_summary(setup, progress, records),
        "warnings": remarks(setup.spec, setup.dataset, records),
    }
    if setup.spec.attack is not None:
        share = len(setup.side.attackers) / len(setup.shards)
        summary |= {"attackers": _listed_attackers(setup), "attackers_share": share}
    if directory is not None:
        directory.write_result(weights, summary)
        if report:
            write_run_report(directory.path)
    return summary


def _listed_attackers(setup: Setup) -> list[int]:
    """All attackers; if there are very many, only those among the shown clients."""
    attackers = setup.side.attackers
    if len(attackers) <= MOST_SHOWN:
        return sorted(attackers)
    return [client for client in shown_clients(setup.spec, len(setup.shards)) if client in attackers]


def _over(spec: Spec, records: Sequence[Record]) -> bool:
    """Whether the run is over, because all rounds are done or it may stop early."""
    return bool(records) and (_out_of_time(spec, records) or reached(spec, records[-1]))


def _out_of_time(spec: Spec, records: Sequence[Record]) -> bool:
    limit = spec.evaluate.stop_at_virtual_seconds
    late = limit is not None and sum(record["virtual_seconds"] or 0.0 for record in records) >= limit
    return len(records) == spec.rounds or late


def _round(spec: Spec, setup: Setup, progress: Progress, before: Sequence[Record]) -> tuple[Progress, Record]:
    started = time.perf_counter()
    progress, done = advance(setup.federation, progress)
    seconds = time.perf_counter() - started
    ended = _out_of_time(spec, [*before, {"virtual_seconds": done.seconds}])
    evaluated = measured(spec, setup.federation, progress, setup.dataset, ended=ended)
    record = as_record(progress.round, evaluated, done, seconds, setup.shards.names)
    if spec.arrivals is not None:
        record |= presence(setup.federation.engine, progress.round - 1)
    if spec.attack is not None:
        liars = [client for client in done.cohort if setup.side.attacks(client, progress.round - 1)]
        record |= {"attackers": liars, **attackers_weight(record.get("weights"), liars)}
        record |= attackers_step_share(record.get("step_shares"), liars)
    return progress, record


def save(setup: Setup, directory: RunDirectory, progress: Progress, saved: Mapping[int, Version]) -> None:
    """Write a checkpoint. `saved` holds the versions of the memories in the last one."""
    engine = setup.federation.engine
    changed = {c: version for c, version in progress.accepted.items() if saved.get(c) != version}
    memories = (
        (c, version, memory)
        for c, version in changed.items()
        if (memory := engine.memory(c, version)) is not None
    )
    directory.save_checkpoint(progress, memories, environment())


def _memory_sha256(setup: Setup, progress: Progress) -> str | None:
    """A hash over all clients' memories; None if there are none, or if they stay at the clients."""
    digest, held = hashlib.sha256(), 0
    for client, version in sorted(progress.accepted.items()):
        memory = setup.federation.engine.memory(client, version)
        if memory is not None:
            digest.update(f"{client}\0".encode() + to_bytes(memory))
            held += 1
    return digest.hexdigest() if held else None


def write_run_report(path: Path) -> None:
    """Write the HTML report of a run into its directory."""
    from shoal.report.page import write_report  # matplotlib is slow to import
    from shoal.report.runs import read_run

    view = read_run(path)
    with translate_os_errors(path / REPORT):
        write_report([view], path / REPORT, title=view.label)
