"""The workloads: a federation as a spec, and the same federation in the form that a plain loop needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from shoal.catalogues import MODEL
from shoal.config import Catalogue, arguments, choose, unknown
from shoal.core.data import Shards
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.selector import Selector
from shoal.core.types import Moment
from shoal.methods.fedavg import FedAvg
from shoal.models.layers import batch_norms
from shoal.runs.build import load_and_partition
from shoal.solver.sgd import Sgd
from shoal.spec import Spec, from_table


class Material(NamedTuple):
    """A workload in a form independent of Shoal: arrays, the rows of each client, and local SGD settings."""

    build: Callable[[], nn.Module]  # the model, its weights drawn from torch's global generator
    key: Key  # for all random draws
    x: Tensor  # [n, *shape] float32
    y: Tensor  # [n] int64
    shards: Shards  # the rows that each client holds
    cohort: Callable[[int], tuple[int, ...]]  # the clients of a round, counted from 0
    batch: int
    epochs: int
    lr: float
    momentum: float
    full: bool  # whether all batches are full, which BatchNorm needs

    def samples(self, clients: tuple[int, ...]) -> int:
        """The number of samples on which these clients train in a round, over all epochs."""
        return self.epochs * sum(self.shards.count(client) for client in clients)


@dataclass(frozen=True)
class Workload:
    """A federation to time. The spec determines everything; a stretch of `rounds` rounds is timed at once."""

    name: str
    summary: str
    table: Mapping[str, Any]
    rounds: int
    directory: bool = False  # whether Shoal writes checkpoint, model, summary and report after each stretch

    @cached_property
    def spec(self) -> Spec:
        """The spec, without anything that should not be timed."""
        off = {"evaluate": {"every": 0, "clients": 0}, "checkpoint": {"every": 0}}
        return from_table({"rounds": self.rounds, **off, **self.table})

    @cached_property
    def clients(self) -> int:
        """The size of the population."""
        return int(self.table["partition"]["clients"])

    @property
    def local(self) -> Sgd:
        """How clients train."""
        if not isinstance(self.spec.method, FedAvg):
            raise SpecError(f"workload {self.name} must be of fedavg, which every contestant has")
        return self.spec.method.local

    def material(self) -> Material:
        """What a loop without Shoal needs, with the spec's partition."""
        spec, local = self.spec, self.local
        dataset, shards = load_and_partition(spec)
        builder = choose(MODEL, spec.task.model, "task.model")
        options = {name: spec.task.options[name] for name in arguments(builder) if name in spec.task.options}
        key, build = Key.from_seed(spec.seed), partial(builder, dataset.shape, dataset.classes, **options)
        with key.seeded():
            full = bool(batch_norms(build()))
        return Material(
            build,
            key,
            dataset.x_train,
            dataset.y_train,
            shards,
            partial(_cohort, spec.selector, len(shards), key),
            local.batch,
            local.epochs,
            local.lr,
            local.momentum,
            full,
        )


def _cohort(selector: Selector, clients: int, key: Key, round: int) -> tuple[int, ...]:
    """The clients that Shoal selects in this round, so that all contestants do the same work."""
    moment = Moment(round, 0, False, key.fold("round", round).fold("select"))
    return selector.select(selector.init(), range(clients), {}, moment).ids


def _fedavg(
    task: Mapping[str, Any], partition: Mapping[str, Any], cohort: int, local: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "task": task,
        "partition": partition,
        "selector": {"name": "uniform", "count": cohort},
        "method": "fedavg",
        "local": {"epochs": 1, **local},
    }


_DIGITS, _NOISE = "shoal.bench.datasets:mnist5k_whole", "shoal.bench.datasets:noise_images"
_MLP = {"dataset": _DIGITS, "model": "mlp"}


def _million(name: str, clients: int) -> Workload:
    table = _fedavg(
        _MLP, {"kind": "synthetic", "clients": clients, "samples": 50}, 50, {"batch": 10, "lr": 0.05}
    )
    told = f"mlp with {clients:,} clients of 50 digits, 50 per round, and the run directory with its report"
    return Workload(name, told, table, rounds=10, directory=True)


_ALL = (
    Workload(
        "lr-mnist",
        "Logistic regression on digits: 1,000 clients of two digits each, sizes by a power law, 10 per round",
        _fedavg(
            {"dataset": "mnist5k", "model": "linear"},
            {"kind": "shoal.bench.partitions:PowerLaw", "clients": 1000},
            10,
            {"batch": 10, "lr": 0.03},
        ),
        rounds=100,
    ),
    Workload(
        "mlp",
        "784-200-200-10 on digits: 100 clients of 50, 10 per round, batch 10",
        _fedavg(_MLP, {"kind": "iid", "clients": 100}, 10, {"batch": 10, "lr": 0.05}),
        rounds=40,
    ),
    Workload(
        "logreg-1k",
        "Logistic regression on digits: 1,000 clients of 5, 100 per round, batch 5",
        _fedavg(
            {"dataset": _DIGITS, "model": "linear"},
            {"kind": "iid", "clients": 1000},
            100,
            {"batch": 5, "lr": 0.05},
        ),
        rounds=100,
    ),
    Workload(
        "lenet-cifar",
        "LeNet as in FedQP: 100 clients of 500 images 3x32x32, 10 per round, batch 50, 5 epochs",
        _fedavg(
            {"dataset": _NOISE, "model": "lenet"},
            {"kind": "synthetic", "clients": 100, "samples": 500},
            10,
            {"batch": 50, "epochs": 5, "lr": 0.01, "momentum": 0.5},
        ),
        rounds=1,
    ),
    Workload(
        "lenet-digits",
        "LeNet on digits: 100 clients of 50, 10 per round, batch 10",
        _fedavg(
            {"dataset": _DIGITS, "model": "lenet"},
            {"kind": "iid", "clients": 100},
            10,
            {"batch": 10, "lr": 0.05},
        ),
        rounds=20,
    ),
    Workload(
        "cnn-pfl",
        "pfl-research's CNN with dropout: 1,000 clients of 50 images 3x32x32, 50 per round, batch 10",
        _fedavg(
            {"dataset": _NOISE, "model": "cnn_pfl"},
            {"kind": "synthetic", "clients": 1000, "samples": 50},
            50,
            {"batch": 10, "lr": 0.1},
        ),
        rounds=1,
    ),
    Workload(
        "cnn-mcmahan",
        "McMahan's CNN: 100 clients of 500 images 1x28x28, 10 per round, batch 50, 5 epochs, momentum",
        _fedavg(
            {"dataset": _NOISE, "channels": 1, "side": 28, "model": "cnn"},
            {"kind": "synthetic", "clients": 100, "samples": 500},
            10,
            {"batch": 50, "epochs": 5, "lr": 0.01, "momentum": 0.5},
        ),
        rounds=1,
    ),
    Workload(
        "cnn-small-batch",
        "McMahan's CNN on digits: 100 clients of 50, 10 per round, batch 10",
        _fedavg(
            {"dataset": _DIGITS, "model": "cnn"},
            {"kind": "iid", "clients": 100},
            10,
            {"batch": 10, "lr": 0.05},
        ),
        rounds=2,
    ),
    _million("million-1k", 10**3),
    _million("million-10k", 10**4),
    _million("million-100k", 10**5),
    _million("million-1m", 10**6),
)
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
GROUPS: dict[str, tuple[str, ...]] = {
    "million": tuple(name for name in WORKLOADS if name.startswith("million-")),
}


def named(name: str) -> list[Workload]:
    """The workload with this name, those of a group, or the one from a function `package.module:function`."""
    if name in GROUPS:
        return [WORKLOADS[member] for member in GROUPS[name]]
    if name in WORKLOADS:
        return [WORKLOADS[name]]
    if ":" not in name:
        raise unknown(name, name, [*WORKLOADS, *GROUPS], "workload")
    made = choose(Catalogue("workload", {}), name, "workload")()
    if not isinstance(made, Workload):
        raise SpecError(f"workload {name!r} returned a {type(made).__name__}; it must return a Workload")
    return [replace(made, name=name)]
