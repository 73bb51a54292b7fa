"""The population of a simulation: which clients are present in which round, and their devices."""

from __future__ import annotations

import numpy as np

from shoal.core.arrivals import Timetable
from shoal.core.data import Shards
from shoal.core.devices import Crowd, Fleet
from shoal.core.errors import SpecError
from shoal.core.population import Population, Spans
from shoal.core.task import Task
from shoal.runs.evaluation import shown_clients
from shoal.spec import Spec


def _population(spec: Spec, shards: Shards) -> Population:
    """The clients that can take part: all, or those that hold at least `privacy.min_samples`."""
    everyone = range(len(shards))
    if spec.privacy is None or not spec.privacy.min_samples:
        return everyone
    counts, least = np.array(shards.counts(everyone)), spec.privacy.min_samples
    if counts.min() >= least:
        return everyone
    if counts.max() < least:
        raise SpecError(
            f"privacy.min_samples = {least}, but no client holds more than {counts.max()} "
            "samples; choose a smaller value, or fewer clients"
        )
    return tuple(np.flatnonzero(counts >= least).tolist())


def fleet_of(spec: Spec, task: Task, shards: Shards) -> Fleet | None:
    """The simulated devices; None without `[devices]`."""
    if spec.devices is None:
        limits = {
            "faults.deadline": spec.faults.deadline is not None,
            "faults.over_select": spec.faults.over_select > 1,
            "evaluate.stop_at_virtual_seconds": spec.evaluate.stop_at_virtual_seconds is not None,
        }
        for name, given in limits.items():
            if given:
                raise SpecError(f"{name} is in virtual seconds, which need [devices]; add that table")
        return None
    clients = len(shards)
    try:
        spec.devices.check(clients)
    except SpecError as error:
        raise SpecError(f"[devices] {error}") from None
    some = shown_clients(spec, clients)
    mean = float(np.mean(shards.counts(some)))  # over a sample, for a very large population
    size = 4 * sum(shape.numel() for shape in task.shapes.values())
    key = spec.seeds.key("order", spec.seed).fold("devices")
    return Fleet(spec.devices, Crowd(clients, mean, size), key)


def timetable_of(spec: Spec, shards: Shards) -> Timetable:
    """The clients that can take part in each round: the present ones with enough samples."""
    population, clients = _population(spec, shards), len(shards)
    if spec.arrivals is None:
        return lambda round: population
    try:
        there = spec.arrivals.timetable(clients)
    except SpecError as error:
        raise SpecError(f"[arrivals] {error}") from None
    if len(population) == clients:
        return there
    able = Spans.of(population)
    return lambda round: able.common(Spans.of(there(round)))


def check_population(spec: Spec, most: int) -> None:
    """Raise `SpecError` if `most`, the largest number of clients present in a round, is too small."""
    if not most:
        raise SpecError(
            f"[arrivals] nobody is there in any of the {spec.rounds} rounds; let clients join earlier, "
            "or raise rounds"
        )
    spec.selector.check(most)
