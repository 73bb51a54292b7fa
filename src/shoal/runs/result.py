"""The result of a run: its metrics, records, clients and models."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, message_for
from shoal.loop import Progress
from shoal.runs.build import Setup
from shoal.runs.json_text import to_json
from shoal.runs.record import Record
from shoal.spec import Spec, to_table

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from shoal.report.runs import RunView


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run: the values of summary.json, the records of all rounds, and the models."""

    rounds: int
    final_accuracy: float | None  # None for regression, which has final_mse
    max_accuracy: float | None
    mean_accuracy: float | None
    final_mse: float | None
    mean_client_accuracy: float | None
    worst_client_accuracy: float | None  # the mean of the worst tenth
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
    _restore: Callable[[], tuple[Setup, Progress]]  # slow for a run that was read from its directory

    @classmethod
    def of(
        cls,
        summary: Mapping[str, Any],
        records: Sequence[Record],
        directory: Path | None,
        spec: Spec,
        restore: Callable[[], tuple[Setup, Progress]],
    ) -> Result:
        """Create a result from a summary."""
        own = {"summary", "records", "spec", "directory", "_restore"}
        numbers: dict[str, Any] = {f.name: summary.get(f.name) for f in fields(cls) if f.name not in own}
        return cls(
            **numbers,
            summary=summary,
            records=records,
            spec=spec,
            directory=directory,
            _restore=restore,
        )

    @cached_property
    def _restored(self) -> tuple[Setup, Progress]:
        return self._restore()

    @property
    def setup(self) -> Setup:
        """The federation that was run, for studies that continue from its end."""
        return self._restored[0]

    @property
    def progress(self) -> Progress:
        """The state of the federation after the last round."""
        return self._restored[1]

    @property
    def dataset(self) -> Dataset:
        """The data set of the run."""
        assert self.setup.dataset is not None  # only a server of a real federation has none
        return self.setup.dataset

    @property
    def clients(self) -> Sequence[Mapping[str, Any]]:
        """The results of each client, as in summary.json (above 1,000 clients, the evaluated sample)."""
        found: Sequence[Mapping[str, Any]] = self.summary["clients"]
        return found

    def model(self, client: int | str | None = None) -> nn.Module:
        """The global model, or the model that a client would use, as an `nn.Module` in evaluation mode.

        A client is named by its number, or by its name if it has one.
        """
        federation, progress = self.setup.federation, self.progress
        if client is not None:
            number = self._number(client)
            cohort = Cohort((number,), {}, len(self.setup.shards))
            message = message_for(federation.method.serve(progress.state, cohort), 0)
            memory = federation.engine.memory(number, progress.accepted.get(number))
            if memory is None:
                raise SpecError(f"client {client} keeps its model to itself; for the global one call model()")
            return federation.task.module(federation.method.local_model(memory.method, message))
        weights = federation.method.model(progress.state)
        if weights is None:
            raise SpecError(
                f"{self.spec.method_name} has no global model; for a client's model call model(client=0)"
            )
        return federation.task.module(weights)

    def _number(self, client: int | str) -> int:
        shards = self.setup.shards
        if isinstance(client, str):
            if client not in shards.names:
                raise SpecError(
                    f"there is no client {client!r}; names are {', '.join(shards.names[:8]) or 'not given'}"
                )
            return list(shards.names).index(client)
        if not 0 <= client < len(shards):
            raise SpecError(f"there is no client {client}; ids are 0 to {len(shards) - 1}")
        return client

    def frame(self, what: str = "rounds") -> pandas.DataFrame:
        """A pandas data frame with one row per round ("rounds") or per client ("clients")."""
        import pandas

        if what not in ("rounds", "clients"):
            raise SpecError(f'frame() has "rounds" or "clients", got {what!r}')
        return pandas.DataFrame(list(self.records if what == "rounds" else self.clients))

    def plot(self, metric: str = "") -> Figure:
        """A chart of a metric over rounds; by default, of the accuracy or the error."""
        from shoal.report.charts import metric_chart

        metric = metric or ("accuracy" if self.final_mse is None else "mse")
        chart = metric_chart([self.view()], metric)
        if chart is None:
            raise SpecError(f"no round has measured {metric!r}; records have {', '.join(self.records[-1])}")
        return chart

    def view(self, label: str = "") -> RunView:
        """The run as reports and tables see it."""
        from shoal.report.runs import RunView

        records, summary = json.loads(to_json([list(self.records), dict(self.summary)]))
        return RunView(label or self.spec.method_name, to_table(self.spec), records, summary)

    def lines(self) -> dict[str, str]:
        """The most important values, by title."""
        from shoal.report.table import comparison_rows, shown_columns, stat_text

        (row,) = comparison_rows([self.view()])
        return {
            column.title: stat_text(name, row.stat(name)) for name, column in shown_columns([row]).items()
        }

    def __repr__(self) -> str:
        told = ", ".join(f"{title} {text}" for title, text in list(self.lines().items())[:4])
        rounds = f"{self.rounds} round{'s' * (self.rounds != 1)}"
        return f"<Result of {self.spec.method_name}, {rounds}: {told}>"

    def _repr_html_(self) -> str:
        cells = {"Method": self.spec.method_name, "Rounds": f"{self.rounds}", **self.lines()}
        rows = (
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in cells.items()
        )
        return f"<table>{''.join(rows)}</table>"
