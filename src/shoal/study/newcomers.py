"""Newcomers: the accuracy of new clients after some local epochs, by their initial weights.

A run whose newcomers have not arrived yet determines what each of them could start from:

    random              fresh initial weights
    gene                the nearest cluster's learnGene, other layers fresh (GENE-FL)
    gene with head      the same, with the classifier if it belongs to the learnGene
    cluster model       the nearest cluster's whole model
    global model        the global model
    fresh head          the global model with a fresh classifier
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shoal.core.codec import Packet
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.training import Training
from shoal.core.types import Cohort, Context, ModelMessage, Moment, Weights, message_for
from shoal.loop import Progress
from shoal.methods.gene import Gene, GeneState
from shoal.methods.per_cluster import ClusterStates, PerCluster
from shoal.parts.layers import some_layers
from shoal.runs.build import Setup
from shoal.runs.result import Result

EPOCHS = (0, 1, 5, 10)


class StartingPoint(NamedTuple):
    """The weights that a newcomer starts from, and the cost of sending them."""

    weights: Weights
    nbytes: int  # of the message that carries them


def newcomers_of(result: Result) -> list[int]:
    """The clients that were absent in the last round."""
    there = result.setup.federation.engine.clients(result.rounds - 1)
    return [client for client in range(len(result.setup.shards)) if client not in there]


def starts_compared(result: Result, epochs: Sequence[int] = EPOCHS) -> dict[str, Any]:
    """For each starting point: the newcomers' mean accuracy after each number of epochs, and the bytes."""
    newcomers = newcomers_of(result)
    if not newcomers:
        raise SpecError("every client was there in the last round; let some come later, see [arrivals]")
    found: dict[str, list[tuple[list[float], int]]] = {}
    for client in newcomers:
        for name, point in starting_points(result.setup, result.progress, client).items():
            course = [accuracy_after(result.setup, client, point.weights, count) for count in epochs]
            found.setdefault(name, []).append((course, point.nbytes))
    return {
        name: {
            "epochs": list(epochs),
            "accuracies": [sum(column) / len(each) for column in zip(*(c for c, _ in each), strict=True)],
            "bytes": sum(size for _, size in each) / len(each),
        }
        for name, each in found.items()
    }


def starting_points(setup: Setup, progress: Progress, client: int) -> dict[str, StartingPoint]:
    """The starting points available to this newcomer, by name."""
    method, task, state = setup.federation.method, setup.federation.task, progress.state
    fresh = task.init(_key(setup, client).fold("fresh"))
    points = {"random": StartingPoint(fresh, 0)}
    if isinstance(method, PerCluster):
        points |= _in_clusters(setup, method, state, client, fresh, progress.round)
        return points
    model = method.model(state)
    if model is not None:
        points["global model"] = _sent(model)
        if task.last is not None:
            kept = [name for name in model.params if name not in task.head_names]
            points["fresh head"] = StartingPoint(_on(fresh, some_layers(model, kept)), _sent(model).nbytes)
    return points


def _in_clusters(
    setup: Setup, method: PerCluster, state: ClusterStates, client: int, fresh: Weights, round: int
) -> dict[str, StartingPoint]:
    """The starting points from the cluster that the newcomer would join."""
    task, key, inner = setup.federation.task, _key(setup, client), method.client_method
    data = setup.side.data.train(client, None, key, full=False)
    joined = method.admit(state, {client: method.profile(task, data, key)}, Moment(round, 0, False, key))
    own = joined.inner[joined.clusters.home(client)]
    cohort = Cohort((client,), {}, 1)
    found = {}
    if isinstance(inner, Gene) and isinstance(own, GeneState):
        for name, state_of in (("gene", own), ("gene with head", own._replace(head=()))):
            message = message_for(inner.serve(state_of, cohort), 0)
            found[name] = StartingPoint(_on(fresh, message.model), _sent(message.model).nbytes)
        found["cluster model"] = _sent(own.model)
    else:
        model = inner.model(own)
        if model is not None:
            found["cluster model"] = _sent(model)
    return found


def _on(fresh: Weights, inherited: Weights) -> Weights:
    """The fresh weights, with the inherited layers in place of the same layers."""
    return Weights(*({**mine, **theirs} for mine, theirs in zip(fresh, inherited, strict=True)))


def _sent(model: Weights) -> StartingPoint:
    return StartingPoint(model, Packet(ModelMessage(model)).nbytes)


def accuracy_after(setup: Setup, client: int, start: Weights, epochs: int) -> float:
    """The accuracy on a client's own test samples after `epochs` epochs on its training samples."""
    side, method = setup.side, setup.federation.method.client_method
    if not isinstance(method, Training):
        raise SpecError(f"clients of {setup.spec.method_name} do not train; choose a method that does")
    weights = start
    if epochs:
        context = Context(0, 0, {}, _key(setup, client).fold("epochs"))
        weights = method.local.train(side.task, start, _data(setup, method, client, epochs), context).weights
    measured: Mapping[str, Any] = side.evaluator(side.task, weights, side.data.test(client))
    return float(measured["accuracy"])


def _data(setup: Setup, method: Training, client: int, epochs: int) -> Data:
    batching = method.batching._replace(epochs=epochs)
    key = _key(setup, client).fold("batches")
    return setup.side.data.train(client, batching, key, full=bool(setup.side.task.batch_norms))


def _key(setup: Setup, client: int) -> Key:
    return setup.federation.key.fold("newcomer", client)
