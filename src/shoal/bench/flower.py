"""Flower's simulation as a contestant, set up to be fast.

One CPU per client, so that two run at a time; a model and the data resident in each Ray worker; the weights
as one flat array. The client functions are in this module, which Ray can import: functions in `__main__`
would be copied with every message.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.bench.other_frameworks import Serve
from shoal.bench.plain_pytorch import Trainer, flatten, initial, visit
from shoal.bench.workloads import Material, Workload, named

_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
_ROUNDS = 3  # at most in a stretch, since rounds take long in Flower


class Resident(NamedTuple):
    """The state that stays in a Ray worker between messages."""

    material: Material
    worker: Trainer
    weights: Tensor  # from which the worker starts
    trained: Tensor
    generator: torch.Generator


@lru_cache(maxsize=1)
def resident(name: str) -> Resident:
    """Prepare everything, once in each worker."""
    torch.set_num_threads(1)
    (workload,) = named(name)
    material = workload.material()
    module = initial(material)
    flat = flatten(module)
    weights, trained = torch.empty_like(flat), torch.empty_like(flat)
    generator = material.key.fold("flower").torch()
    return Resident(material, Trainer(material, module, flat, weights), weights, trained, generator)


def train(message: Any, context: Any) -> Any:
    """Train one client: the function of Flower's client app."""
    app = import_module("flwr.app")
    here = resident(message.content["config"]["workload"])
    here.weights.copy_(torch.from_numpy(message.content["arrays"].to_numpy_ndarrays()[0]))
    client = int(context.node_config["partition-id"])
    here.worker.train([visit(here.material, client, 1.0, here.generator)], here.trained)
    content = {
        "arrays": app.ArrayRecord([here.trained.numpy()]),
        "metrics": app.MetricRecord({"num-examples": here.material.shards.count(client)}),
    }
    return app.Message(app.RecordDict(content), reply_to=message)


def flower(workload: Workload, serve: Serve) -> None:
    """Flower's FedAvg on its simulation engine."""
    os.environ.update(_QUIET)
    app, clientapp, serverapp = (import_module(f"flwr.{name}") for name in ("app", "clientapp", "serverapp"))
    strategies, simulation = import_module("flwr.serverapp.strategy"), import_module("flwr.simulation")
    material = workload.material()
    cohort, samples = len(material.cohort(0)), 0

    def count(replies: list[Any], key: str) -> Any:
        nonlocal samples
        samples += sum(int(reply["metrics"][key]) for reply in replies)
        return app.MetricRecord({})

    server = serverapp.ServerApp()

    @server.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        strategy = strategies.FedAvg(
            fraction_train=cohort / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=cohort,
            min_available_nodes=workload.clients,
            train_metrics_aggr_fn=count,
        )
        arrays = app.ArrayRecord([flatten(initial(material)).numpy()])

        def run(first: int, rounds: int) -> tuple[float, int]:
            nonlocal arrays, samples
            samples, started = 0, time.perf_counter()
            told = app.ConfigRecord({"workload": workload.name})
            arrays = strategy.start(grid, arrays, num_rounds=rounds, train_config=told).arrays
            if not samples:
                raise RuntimeError("no client of Flower's returned anything")
            return time.perf_counter() - started, material.epochs * samples

        serve(run, min(workload.rounds, _ROUNDS))

    client = clientapp.ClientApp()
    client.train()(train)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    simulation.run_simulation(server, client, num_supernodes=workload.clients, backend_config=resources)
