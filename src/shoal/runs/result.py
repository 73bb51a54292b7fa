"""The result of a run, as Python code gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import nn

from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, message_for
from shoal.loop import Progress
from shoal.runs.build import Setup
from shoal.runs.record import Record
from shoal.spec import Spec


@dataclass(frozen=True)
class Result:
    """The result of a run: the numbers of summary.json, the records of all rounds, and the models."""

    rounds: int
    final_accuracy: float | None  # None for regression, which has final_mse
    max_accuracy: float | None
    mean_accuracy: float | None
    final_mse: float | None
    mean_client_accuracy: float | None
    worst_client_accuracy: float | None  # the mean of the lowest tenth
    bytes_up: int
    bytes_down: int
    seconds: float
    virtual_seconds: float | None
    weights_sha256: str
    memory_sha256: str | None
    summary: Mapping[str, Any]  # all of summary.json
    records: Sequence[Record]  # one per round, as in rounds.jsonl
    spec: Spec
    directory: Path | None
    _setup: Setup = field(repr=False)
    _progress: Progress = field(repr=False)

    @property
    def setup(self) -> Setup:
        """The federation that was run, for a study that goes on from here."""
        return self._setup

    @property
    def progress(self) -> Progress:
        """The state of the federation after the last round."""
        return self._progress

    @property
    def dataset(self) -> Dataset:
        """The data set of the run."""
        assert self._setup.dataset is not None  # only a server of a real federation has none
        return self._setup.dataset

    def model(self, client: int | None = None) -> nn.Module:
        """The global model, or the model that a client would use, as an `nn.Module` in evaluation mode."""
        federation, progress = self._setup.federation, self._progress
        if client is not None:
            if not 0 <= client < len(self._setup.shards):
                raise SpecError(f"there is no client {client}; ids are 0 to {len(self._setup.shards) - 1}")
            cohort = Cohort((client,), {}, len(self._setup.shards))
            message = message_for(federation.method.serve(progress.state, cohort), 0)
            memory = federation.engine.memory(client, progress.accepted.get(client))
            if memory is None:
                raise SpecError(f"client {client} keeps its model to itself; for the global one call model()")
            return federation.task.module(federation.method.local_model(memory.method, message))
        weights = federation.method.model(progress.state)
        if weights is None:
            raise SpecError(
                f"{self.spec.method_name} has no global model; for a client's model call model(client=0)"
            )
        return federation.task.module(weights)


def as_result(
    setup: Setup,
    progress: Progress,
    records: Sequence[Record],
    summary: Mapping[str, Any],
    directory: Path | None,
) -> Result:
    """The result of a run that is over."""
    own = {"summary", "records", "spec", "directory", "_setup", "_progress"}
    numbers: dict[str, Any] = {f.name: summary.get(f.name) for f in fields(Result) if f.name not in own}
    return Result(
        **numbers,
        summary=summary,
        records=records,
        spec=setup.spec,
        directory=directory,
        _setup=setup,
        _progress=progress,
    )
