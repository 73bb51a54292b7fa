"""pfl-research as a contestant: two processes, each with a resident model and its users' data in memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import import_module
from itertools import count
from typing import IO, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoal.bench.other_frameworks import MOST_CLIENTS, Serve
from shoal.bench.plain_pytorch import initial
from shoal.bench.workloads import Material, Workload

_RANK, _ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"


class Learner(nn.Module):
    """A model in the form that pfl expects."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of local training."""
        return F.cross_entropy(self.net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """A placeholder, since evaluation is not timed."""
        return {"samples": import_module("pfl.metrics").Weighted(0, len(y))}


def pfl(workload: Workload, serve: Serve) -> None:
    """pfl's federated averaging on its simulated backend."""
    with _second(workload.name) as second:
        material = workload.material()
        with import_module("pfl.internal.ops.numpy_ops").NumpySeedScope(0):  # both must draw the same numbers
            algorithm = import_module("pfl.algorithm.federated_averaging").FederatedAveraging()
            model, backend = _model(material), _backend(material)
        training = import_module("pfl.hyperparam.base").NNTrainHyperParams(
            local_batch_size=material.batch, local_num_epochs=material.epochs, local_learning_rate=material.lr
        )
        settings = partial(
            import_module("pfl.algorithm.base").NNAlgorithmParams,
            evaluation_frequency=10**9,
            train_cohort_size=len(material.cohort(0)),
            val_cohort_size=0,
        )

        def run(first: int, rounds: int) -> tuple[float, int]:
            if second is not None:
                print("go", file=second, flush=True)
            total = settings(central_num_iterations=first + rounds)
            started = time.perf_counter()
            algorithm.run(total, backend, model, training, send_metrics_to_platform=False)
            seconds = time.perf_counter() - started
            return seconds, sum(material.samples(material.cohort(first + i)) for i in range(rounds))

        serve(run, workload.rounds)


def _model(material: Material) -> Any:
    learner = Learner(initial(material))
    central = torch.optim.SGD(learner.parameters(), lr=1.0)
    local = partial(torch.optim.SGD, momentum=material.momentum)
    return import_module("pfl.model.pytorch").PyTorchModel(learner, local, central)


def _backend(material: Material) -> Any:
    data = import_module("pfl.data.pytorch")

    @lru_cache(maxsize=MOST_CLIENTS)
    def held(client: int) -> Any:
        rows = torch.from_numpy(material.shards.indices(client))
        return data.PyTorchTensorDataset((material.x[rows], material.y[rows]), user_id=str(client))

    sizes = {client: material.shards.count(client) for client in range(len(material.shards))}
    weights = sizes if len(set(sizes.values())) > 1 else None  # for load balancing between the processes
    following = (client for round in count() for client in material.cohort(round))
    users = import_module("pfl.data.federated_dataset").FederatedDataset(held, following.__next__, weights)
    by_samples = import_module("pfl.aggregate.weighting").WeightByDatapoints()
    return import_module("pfl.aggregate.simulate").SimulatedBackend(users, users, [by_samples])


@contextmanager
def _second(name: str) -> Iterator[IO[str] | None]:
    """Start the second process, which runs the same program; yields its stdin (None in the second itself)."""
    if _RANK in os.environ:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    both = {_ADDRESSES: f"127.0.0.1:{port},127.0.0.1:{port}", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "shoal.bench.contestant", name, "pfl"]
    second = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **both, _RANK: "1"},
        text=True,
    )
    os.environ.update({**both, _RANK: "0"})
    with second:
        try:
            yield second.stdin
        except BaseException:
            second.kill()
            raise
