"""Evaluation: the global model on the test set, each client's model on its own test samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.core.attack import Attack
from shoal.core.data import Data, Dataset
from shoal.core.engine import Engine, Work
from shoal.core.key import Key
from shoal.core.population import Spans
from shoal.core.task import Task
from shoal.core.types import Cohort, Weights
from shoal.loop import Federation, Progress
from shoal.metrics import MetricName, fairness, measures
from shoal.run_settings import Evaluate
from shoal.solver.outputs import outputs_of
from shoal.spec import Spec

OWN = "own_"  # prefix of the metrics of each client, {client: value}
MUCH = 20  # the whole test set is evaluated at once if it has at most this many times a client's samples
FEW = 20  # up to this number of clients, every evaluation records the results of each
MOST_SHOWN = 1000  # clients; for a larger population, lists and pictures show the evaluated sample


class Evaluator:
    """Computes the loss, and the accuracy or mean squared error, of a model on a client's data.

    If several clients use the same model, its outputs on the whole test set are computed once and shared,
    unless the test set is much larger than the clients' own samples.
    """

    def __init__(self) -> None:
        self._model: Weights | None = None  # the last one evaluated; weights are never changed in place
        self._outputs: Tensor | None = None  # its outputs on the whole test set, from its second use on

    def __call__(self, task: Task, weights: Weights, data: Data) -> dict[str, Tensor]:
        """Evaluate a model on the data."""
        outputs, y = self._of(task, weights, data), data.all_y
        loss = task.objective(outputs, y)
        if not task.classes:
            return {"mse": loss.double()}
        hits = task.scores(outputs).argmax(1) == y
        return {"accuracy": hits.double().mean(), "loss": loss.double()}

    def _of(self, task: Task, weights: Weights, data: Data) -> Tensor:
        if weights is not self._model:
            self._model, self._outputs = weights, None
            return outputs_of(task, weights, data.all.x)
        if self._outputs is None and len(data.x) <= MUCH * data.count:
            self._outputs = outputs_of(task, weights, data.x)
        if self._outputs is None:
            return outputs_of(task, weights, data.all.x)
        return self._outputs[torch.from_numpy(data.rows)]


def global_measures(
    task: Task, weights: Weights, dataset: Dataset, metrics: Sequence[MetricName]
) -> dict[str, float]:
    """The metrics of a model on the whole test set."""
    outputs = outputs_of(task, weights, dataset.x_test)
    loss = float(task.objective(outputs, dataset.y_test))
    if not task.classes:
        return {"mse": loss, "loss": loss}
    scores, y = task.scores(outputs).cpu().numpy(), dataset.y_test.cpu().numpy()
    classes = len(np.unique(scores.argmax(1)))
    return {"loss": loss, **measures(scores, y, metrics), "predicted_classes": classes}


def measured(
    spec: Spec, federation: Federation, progress: Progress, dataset: Dataset | None, *, ended: bool
) -> dict[str, Any]:
    """The metrics after a round, which may be the last one (`ended`); None if no evaluation is due.

    A server without test samples averages the metrics that its clients report.
    """
    wanted = spec.evaluate
    found: dict[str, Any] = {"accuracy" if federation.task.classes else "mse": None, "loss": None}
    if ended or (wanted.every and progress.round % wanted.every == 0):
        found |= evaluate(federation, progress, dataset, wanted.metrics, wanted.clients, spec.attack)
        for name in [name for name in found if name.startswith(OWN)]:
            if len(found[name]) > FEW and not (ended or reached(spec, found)):
                del found[name]
    if wanted.finetune and (ended or reached(spec, found)):
        found |= finetuned(federation, progress, wanted.clients, wanted.finetune)
    return found


def reached(spec: Spec, record: Mapping[str, Any]) -> bool:
    """Whether the run has reached the accuracy or error at which it may stop."""
    goal = spec.evaluate.stop_at
    if goal is None:
        return False
    accuracy, error = record.get("accuracy"), record.get("mse")
    return (accuracy is not None and accuracy >= goal) or (error is not None and error <= goal)


def evaluate(
    federation: Federation,
    progress: Progress,
    dataset: Dataset | None,
    metrics: Sequence[MetricName],
    clients: int,
    attack: Attack | None = None,
) -> dict[str, Any]:
    """All metrics after a round.

    Without a global model, the clients' models are evaluated on samples of the whole test set; without a test
    set, on the clients' own samples.
    """
    model = federation.method.model(progress.state)
    found: dict[str, Any] = {}
    if model is not None and dataset is not None:
        found = global_measures(federation.task, model, dataset, metrics)
        if attack is not None:
            found |= _success(federation.task, model, dataset, attack)
    shared = model is None and dataset is not None
    replies = _ask_clients(federation, progress, clients, {"common": shared, "finetune": 0})
    if (shared or dataset is None) and replies:
        found |= _means([reply["common" if shared else "own"] for reply in replies.values()])
    return found | _among_clients(federation, replies)


def finetuned(federation: Federation, progress: Progress, clients: int, epochs: int) -> dict[str, Any]:
    """The metrics over clients after each has trained its model for `epochs` more local epochs."""
    replies = _ask_clients(federation, progress, clients, {"common": False, "finetune": epochs})
    return {f"finetuned_{name}": value for name, value in _among_clients(federation, replies).items()}


def _among_clients(federation: Federation, replies: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The metrics over clients; if there are newcomers, also separately for these and the known clients.

    A newcomer is a client that was absent in the first round.
    """
    if not replies:
        return {}
    measure = "accuracy" if federation.task.classes else "mse"
    own = {client: reply["own"] for client, reply in replies.items()}
    found: dict[str, Any] = fairness([*own.values()], measure)
    found[f"{OWN}{measure}"] = {client: float(told[measure]) for client, told in own.items()}
    first = federation.engine.clients(0)
    groups: dict[str, list[Mapping[str, Tensor]]] = {"newcomers": [], "known": []}
    for client, told in own.items():
        groups["known" if client in first else "newcomers"].append(told)
    if not groups["newcomers"]:
        return found
    mean = f"mean_client_{measure}"
    return found | {
        name: {"clients": len(some), mean: fairness(some, measure)[mean]}
        for name, some in groups.items()
        if some
    }


def presence(engine: Engine, round: int) -> dict[str, int]:
    """The number of clients present in a round, and how many of them were absent in the first one."""
    there, first = (Spans.of(engine.clients(r)) for r in (round, 0))
    return {"present": len(there), "present_newcomers": len(there) - len(there.common(first))}


def _success(task: Task, weights: Weights, dataset: Dataset, attack: Attack) -> dict[str, float]:
    """The success rate of the attack on the global model, if the attack has a target."""

    def predict(x: Tensor) -> Tensor:
        return outputs_of(task, weights, x).argmax(1)

    share = attack.success(predict, dataset.x_test, dataset.y_test)
    return {} if share is None else {"attack_success": share}


def _ask_clients(
    federation: Federation, progress: Progress, clients: int, setting: Mapping[str, Any]
) -> dict[int, Mapping[str, Any]]:
    """The replies of the sampled clients, all with the same setting; clients without a reply are left out."""
    available = federation.engine.clients(max(progress.round - 1, 0))
    sample = _fixed_sample(available, clients, federation.key)
    if not sample:
        return {}
    settings = {name: (value,) * len(sample) for name, value in setting.items()}
    cohort = Cohort(sample, settings, len(available))
    message = federation.method.serve(progress.state, cohort)
    work = Work("evaluate", max(progress.round - 1, 0), 0, progress.accepted)
    key = federation.key.fold("evaluate", progress.round)
    deliveries = federation.engine.exchange(work, cohort, message, key)
    return {d.clients[0]: d.reply.payload for d in deliveries if d.reply is not None}


def _fixed_sample(available: Sequence[int], count: int, key: Key) -> tuple[int, ...]:
    """A sample that is the same in every round, as long as the same clients are available."""
    if count >= len(available):
        return tuple(available)
    picked = key.fold("evaluate").numpy().choice(len(available), count, replace=False, shuffle=False)
    return tuple(sorted(available[int(i)] for i in picked))


def shown_clients(spec: Spec, population: int) -> Sequence[int]:
    """The clients that lists and pictures show individually: all, or above 1,000 the evaluated sample.

    This keeps the cost of reports independent of the population.
    """
    if population <= MOST_SHOWN:
        return range(population)
    count = spec.evaluate.clients or Evaluate.clients  # without evaluation of clients, the default number
    return _fixed_sample(range(population), count, spec.seeds.key("order", spec.seed))


def _means(replies: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    return {name: float(np.mean([float(j[name]) for j in replies])) for name in replies[0]}
