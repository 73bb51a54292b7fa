"""A federation small enough for a test: eight unequal clients, four classes in ten dimensions.

Specs name its functions as `toy:blobs` and so on, just as a user's specs name a user's functions.
"""

from __future__ import annotations

import signal
from contextlib import closing
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from shoal import Dataset
from shoal.config import arguments
from shoal.core.key import Key
from shoal.core.types import Cohort, message_for
from shoal.loop import Progress, advance, start
from shoal.methods import METHODS
from shoal.runs.build import Setup, build
from shoal.runs.runner import one_thread
from shoal.spec import Spec, from_table

KEY = Key.from_seed(7)

# every method with every kind of model that it can learn
NORMED = [
    (name, norm)
    for name, entry in METHODS.items()
    for norm in ("none", "batch")
    if norm == "none" or name not in ("fsi", "pso")
]
DENSE, BATCH_NORM = ({"dataset": "toy:blobs", "model": "toy:net", "norm": norm} for norm in ("none", "batch"))


def hardest_task(method: str) -> dict[str, str]:
    """With BatchNorm, whose buffers travel too, if the method can learn such a model."""
    return BATCH_NORM if (method, "batch") in NORMED else DENSE


def blobs() -> Dataset:
    """Four Gaussian clouds."""
    rng = KEY.fold("blobs").numpy()
    centres = 2 * rng.normal(size=(4, 10))
    y = rng.integers(4, size=480)
    x = torch.from_numpy((centres[y] + rng.normal(size=(480, 10))).astype(np.float32))
    labels = torch.from_numpy(y)
    return Dataset("blobs", x[:320], labels[:320], x[320:], labels[320:], classes=4)


def line() -> Dataset:
    """A regression: y = 3 x + 1 with a little noise."""
    rng = KEY.fold("line").numpy()
    x = rng.uniform(-1, 1, size=(120, 1)).astype(np.float32)
    y = 3 * x[:, 0] + 1 + 0.01 * rng.normal(size=120).astype(np.float32)
    values, targets = torch.from_numpy(x), torch.from_numpy(y)
    return Dataset("line", values[:80], targets[:80], values[80:], targets[80:], classes=0)


def net(shape: tuple[int, ...], classes: int, *, norm: Literal["batch", "none"] = "none") -> nn.Module:
    """A hidden layer of twelve, with or without BatchNorm."""
    middle = nn.BatchNorm1d(12) if norm == "batch" else nn.Identity()
    return nn.Sequential(nn.Linear(shape[0], 12), middle, nn.ReLU(), nn.Linear(12, classes))


def dropping(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A user's model with torch's own dropout."""
    return nn.Sequential(nn.Linear(shape[0], 12), nn.Dropout(0.3), nn.ReLU(), nn.Linear(12, classes))


def stripes() -> Dataset:
    """Small images of four kinds of stripes, with noise."""
    rng = KEY.fold("stripes").numpy()
    y, at = rng.integers(4, size=480), np.arange(8)
    kinds = np.stack(
        [(at[:, None] + 0 * at) % 2, (at[:, None] + at) % 3, (0 * at[:, None] + at) % 2, at[:, None] * at % 4]
    )
    x = (kinds[y, None] + rng.normal(size=(480, 1, 8, 8))).astype(np.float32)
    values, labels = torch.from_numpy(x), torch.from_numpy(y)
    return Dataset("stripes", values[:320], labels[:320], values[320:], labels[320:], classes=4)


def small_cnn(shape: tuple[int, ...], classes: int, *, dropout: bool = False) -> nn.Module:
    """A user's convolutional model of the kind that the kernels train."""
    first, second, third = ([nn.Dropout(0.3)] if dropout else [] for _ in range(3))
    return nn.Sequential(
        *(nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), *first),
        *(nn.Conv2d(5, 9, 3), nn.ReLU(), nn.Flatten(), *second),
        *(nn.Linear(36, 7), *third, nn.ReLU(), nn.Linear(7, classes)),
    )


def narrowing_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two convolutions, computed in different layouts: the second has far more weights than outputs."""
    first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 64, 8)
    return nn.Sequential(
        first, nn.BatchNorm2d(8), nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(64, classes)
    )


def table(method: Any = "fedavg", legs: int = 4, **changes: Any) -> dict[str, Any]:
    """A spec of the toy federation. A method given by its name alone gets small numbers where it lets one
    choose: rounds of `legs` exchanges, a generator that takes few steps."""
    tables = {
        "seed": 3,
        "rounds": 3,
        "task": {"dataset": "toy:blobs", "model": "toy:net"},
        "partition": {"kind": "dirichlet", "clients": 8, "beta": 0.5, "min_size": 5},
        "selector": {"count": 4},  # uniform, unless the method brings its own
        "method": method,
        "local": {"lr": 0.1, "batch": 8, "epochs": 2},
        "evaluate": {"every": 0},
        **changes,
    }
    name = method if isinstance(method, str) else getattr(method, "get", {}.get)("name")
    fields = arguments(METHODS[name]) if name in METHODS else {"local": None}
    if not {"local", "inner"} & set(fields):
        del tables["local"]
    if getattr(METHODS.get(name), "selector", "") == "all" and "selector" not in changes:
        tables["selector"] = "all"  # it chooses among all clients
    small = {field: value for field, value in (("epochs", legs), ("steps", 5)) if field in fields}
    if method == name and small:
        tables["method"] = {"name": name, **small}
    return tables


def spec(method: Any = "fedavg", **changes: Any) -> Spec:
    return from_table(table(method, **changes))


def setup(method: Any = "fedavg", **changes: Any) -> Setup:
    return build(spec(method, **changes))


def play(made: Setup, rounds: int = 3, progress: Progress | None = None) -> Progress:
    """Some rounds, without a record."""
    with one_thread():
        progress = start(made.federation) if progress is None else progress
        for _ in range(rounds):
            progress, _ = advance(made.federation, progress)
    return progress


def played(method: Any = "fedavg", rounds: int = 3, **changes: Any) -> Progress:
    made = setup(method, **changes)
    with closing(made.federation.engine):
        return play(made, rounds)


class Federated(NamedTuple):
    """All that server and clients know after some rounds."""

    state: Any
    selector: Any
    accepted: Any
    memories: list[Any]


def after(made: Setup, rounds: int = 3) -> Federated:
    """Play some rounds and close the engine."""
    engine = made.federation.engine
    try:
        progress = play(made, rounds)
        memories = [engine.memory(client, version) for client, version in sorted(progress.accepted.items())]
        return Federated(progress.state, progress.selector, progress.accepted, memories)
    finally:
        engine.close()


def own_models(method: Any = "fedavg", rounds: int = 3, **changes: Any) -> list[Any]:
    """The model that each client uses after some rounds: its parameters and buffers, sorted by name."""
    made = setup(method, **changes)
    engine, used = made.federation.engine, made.federation.method
    progress = play(made, rounds)
    cohort = Cohort(tuple(range(len(made.shards))), {}, len(made.shards))
    message = used.serve(progress.state, cohort)
    models = []
    for client in cohort.ids:
        version = progress.accepted.get(client)
        memory = made.side.fresh if version is None else engine.memory(client, version)
        model = used.client_method.local_model(memory.method, message_for(message, client))
        models.append([dict(sorted(part.items())) for part in model])
    return models


def same(first: Any, second: Any) -> bool:
    """Whether two trees are equal to the bit."""
    from shoal.core.serialization import to_bytes

    return to_bytes(first) == to_bytes(second)


CURVATURES, OPTIMA = np.array([1.0, 6.0]), np.array([2.0, -1.0])


def quadratics() -> Dataset:
    """Two clients with the losses (h / 2) (w - a)^2, as regressions y = w x on one sample each."""
    x = np.sqrt(CURVATURES / 2)
    values = torch.from_numpy(x[:, None].astype(np.float32))
    targets = torch.from_numpy((x * OPTIMA).astype(np.float32))
    groups = np.array([0, 1])
    return Dataset("quadratics", values, targets, values, targets, 0, groups, groups)


def scalar(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The model w x."""
    return nn.Linear(1, 1, bias=False)


def on_quadratics(method: Any, rounds: int, lr: float, steps: int, momentum: float = 0.0) -> float:
    """Where a method ends on the two quadratics."""
    made = setup(
        method,
        task={"dataset": "toy:quadratics", "model": "toy:scalar"},
        partition="natural",
        selector="all",
        local={"lr": lr, "batch": 1, "epochs": steps, "momentum": momentum},
    )
    state = play(made, rounds).state
    return float(made.federation.method.model(state).params["weight"])


def own_on_quadratics(method: Any, rounds: int, lr: float, steps: int) -> list[float]:
    """The models that the two clients of the quadratics use."""
    models = own_models(
        method,
        rounds,
        task={"dataset": "toy:quadratics", "model": "toy:scalar"},
        partition="natural",
        selector="all",
        local={"lr": lr, "batch": 1, "epochs": steps},
    )
    return [float(params["weight"]) for params, _ in models]


def start_on_quadratics() -> float:
    """Where every method begins on the two quadratics."""
    made = setup(
        task={"dataset": "toy:quadratics", "model": "toy:scalar"}, partition="natural", selector="all"
    )
    return float(start(made.federation).state.model.params["weight"])


def averaged_step(w: float, lr: float, steps: int) -> float:
    """The step of FedAvg from w on the two quadratics, in closed form."""
    shares = 1 - (1 - lr * CURVATURES) ** steps  # of its way to the optimum, what a client goes
    return float(np.mean(shares * (OPTIMA - w)))


def heeds_ctrl_c() -> None:
    """For a new process: a shell that starts tests in the background lets them ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
