"""The tables of a spec that say how a run is evaluated, saved and executed, with all their defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.metrics import MetricName
from shoal.round_faults import DropoutStage, FaultRates


@dataclass(frozen=True)
class Evaluate:
    """When and how models are evaluated."""

    every: int = 1  # rounds; 0: only after the last one
    clients: int = 100  # a fixed sample, each client with the model that it would use
    metrics: tuple[MetricName, ...] = ("accuracy", "balanced_accuracy", "f1", "auc")
    stop_at: float | None = None  # stop when the accuracy, in [0, 1], or the mean squared error reaches this
    stop_at_virtual_seconds: float | None = None  # stop when the virtual time of all rounds reaches this
    finetune: int = 0  # local epochs after which the clients' models are evaluated once more, at the end

    def __post_init__(self) -> None:
        for name, value in (
            ("every", self.every),
            ("clients", self.clients),
            ("finetune", self.finetune),
        ):
            if value < 0:
                raise SpecError(f"{name} must be at least 0, got {value}")
        if self.stop_at_virtual_seconds is not None and not self.stop_at_virtual_seconds > 0:
            raise SpecError(f"stop_at_virtual_seconds must be above 0, got {self.stop_at_virtual_seconds:g}")
        if self.finetune and not self.clients:
            raise SpecError(
                f"finetune = {self.finetune} is for the clients that are evaluated, but clients = 0; "
                "set clients = 100"
            )
        if self.stop_at is not None and not self.every:
            raise SpecError(
                f"stop_at = {self.stop_at:g} needs evaluations during the run, but every = 0 "
                "evaluates only once, at its end; set every = 1"
            )


@dataclass(frozen=True)
class Checkpoint:
    """How often a checkpoint is saved."""

    every: int = 1  # rounds; 0: never
    every_seconds: float | None = (
        None  # at least; by default as many as keep saving below 5 % of the running time
    )

    def __post_init__(self) -> None:
        if self.every < 0:
            raise SpecError(f"every must be at least 0, got {self.every}")
        if self.every_seconds is not None and not 0 <= self.every_seconds < math.inf:
            raise SpecError(f"every_seconds must be at least 0, got {self.every_seconds:g}")


@dataclass(frozen=True)
class Faults:
    """What happens when clients fail."""

    on_error: Literal["stop", "refuse"] = "stop"  # an error at a client stops the run, or costs its reply
    min_replies: int = 1  # with fewer replies, an exchange is treated as if it had none
    deadline: float | None = None  # seconds since the round began; later replies are refused
    over_select: float = 1.0  # this many times the clients needed are asked, and the first replies count
    dropout: float = 0.0  # the probability that a client drops out, in each exchange
    dropout_stage: DropoutStage = "any"  # how far a client gets before it drops out
    late: float = 0.0  # the probability that a reply comes too late
    corrupt: float = 0.0  # the probability that a reply arrives damaged

    def __post_init__(self) -> None:
        if self.deadline is not None and not self.deadline > 0:
            raise SpecError(f"deadline must be above 0 seconds, got {self.deadline:g}")
        if not 1 <= self.over_select < math.inf:
            raise SpecError(
                f"over_select must be at least 1, got {self.over_select:g}; with 1.25, four of five count"
            )
        if self.min_replies < 1:
            raise SpecError(f"min_replies must be at least 1, got {self.min_replies}")
        for name, rate in (("dropout", self.dropout), ("late", self.late), ("corrupt", self.corrupt)):
            if not 0 <= rate <= 1:
                raise SpecError(f"{name} must be a probability in [0, 1], got {rate:g}")

    @property
    def rates(self) -> FaultRates:
        """How probable faults between server and clients are."""
        return FaultRates(self.dropout, self.dropout_stage, self.late, self.corrupt)


@dataclass(frozen=True)
class Seeds:
    """Separate seeds for parts of a run; those left out are derived from `seed`."""

    partition: int | None = None  # the partition of training and test samples
    model: int | None = None  # initial weights
    order: int | None = None  # everything else: sampling of clients, attackers, order of samples, noise

    def __post_init__(self) -> None:
        for name, value in (("partition", self.partition), ("model", self.model), ("order", self.order)):
            if value is not None and value < 0:
                raise SpecError(f"{name} must be at least 0, got {value}")

    def key(self, part: Literal["partition", "model", "order"], seed: int) -> Key:
        """The root key of that part, in a run with this seed."""
        own = getattr(self, part)
        return Key.from_seed(seed if own is None else own)


@dataclass(frozen=True)
class Sites:
    """What the sites of a real federation hold, described so that the server needs no data."""

    columns: tuple[str, ...] = ()  # of each site's table: the features, in order
    label: str = "label"  # the column with the classes, or with the target of a regression
    classes: tuple[str, ...] = ()  # their names in that column; empty: a regression
    min_samples: int = 1  # for training; a site with fewer does not take part

    def __post_init__(self) -> None:
        if len(self.classes) == 1:
            raise SpecError(f"classes must be at least two, got {self.classes[0]!r} only")
        if self.min_samples < 1:
            raise SpecError(f"min_samples must be at least 1, got {self.min_samples}")
        if self.label in self.columns:
            raise SpecError(f"label = {self.label!r} is among the columns; remove it there")


@dataclass(frozen=True)
class EngineSpec:
    """Where clients run."""

    name: Literal["local", "ray", "flower"] = "local"
    mode: Literal["auto", "serial", "block", "workers"] = "auto"
    workers: int = 0  # processes or threads; 0: one per processor. Does not change results
    exact: bool = False  # accepted, but without effect: all modes give the same bits
    device: str = "cpu"
    address: str = ""  # of a Ray cluster; "auto": one that runs here; empty: start one on this machine
    timeout: float = 3600.0  # seconds for one client, after which a worker process that hangs is replaced

    def __post_init__(self) -> None:
        if self.address and self.name != "ray":
            raise SpecError(f"address = {self.address!r} is for engine ray, not {self.name}; leave it out")
        if not self.timeout > 0:
            raise SpecError(f"timeout must be above 0 seconds, got {self.timeout:g}")
        if self.workers < 0:
            raise SpecError(f"workers must be at least 0, got {self.workers}; 0 uses all processors")
