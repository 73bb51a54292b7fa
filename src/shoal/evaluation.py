"""How models are judged: the global one on the test set, each client's own on test samples of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shoal.core.attack import Attack
from shoal.core.data import Data, Dataset
from shoal.core.engine import Work
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Cohort, Weights
from shoal.loop import Federation, Progress

MetricName = Literal["accuracy", "balanced_accuracy", "f1", "auc"]
CHUNK = 1000  # samples that go through the model at once
MUCH = 20  # times a client's own samples


def outputs_of(task: Task, weights: Weights, x: Tensor) -> Tensor:
    """[n, heads]: the model's outputs, computed piece by piece."""
    with torch.no_grad():
        return torch.cat([task.forward(weights, piece)[0] for piece in torch.split(x, CHUNK)])


class Evaluator:
    """The loss, and the accuracy or the mean squared error, as they travel from a client.

    Clients that use one and the same model are judged by rows of its outputs on the whole test set, which
    are computed once, if that is not much more than their own samples.
    """

    def __init__(self) -> None:
        self._model: Weights | None = None  # the last one; weights are never changed in place
        self._outputs: Tensor | None = None  # its outputs on the whole test set, once it came twice

    def __call__(self, task: Task, weights: Weights, data: Data) -> dict[str, Tensor]:
        """Judge a model on the data."""
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
    """The measures of a model on the whole test set."""
    outputs = outputs_of(task, weights, dataset.x_test)
    loss = float(task.objective(outputs, dataset.y_test))
    if not task.classes:
        return {"mse": loss, "loss": loss}
    scores, y = task.scores(outputs).cpu().numpy(), dataset.y_test.cpu().numpy()
    return {"loss": loss, **measures(scores, y, metrics)}


def measures(scores: np.ndarray, y: np.ndarray, metrics: Sequence[MetricName]) -> dict[str, float]:
    """Accuracy and what else is asked for. Classes that the test set lacks do not count.

    F1 and AUC are of the positive class where there are two classes, and the mean over classes otherwise.
    A number that is not finite (AUC with one class only, a diverged model) stays so.
    """
    predicted = scores.argmax(1)
    present = np.unique(y)
    hits = predicted == y
    found: dict[str, float] = {"accuracy": float(hits.mean())}
    if "balanced_accuracy" in metrics:
        found["balanced_accuracy"] = float(np.mean([hits[y == c].mean() for c in present]))
    judged = [1] if scores.shape[1] == 2 else list(present)
    if "f1" in metrics:
        found["f1"] = float(np.mean([_f1(predicted == c, y == c) for c in judged]))
    if "auc" in metrics:
        found["auc"] = float(np.mean([auc(scores[:, c], y == c) for c in judged]))
    return found


def _f1(predicted: np.ndarray, true: np.ndarray) -> float:
    marked = int(predicted.sum()) + int(true.sum())
    return 2 * int((predicted & true).sum()) / marked if marked else 0.0


def auc(scores: np.ndarray, true: np.ndarray) -> float:
    """The chance that a positive sample scores higher than a negative one (ties count half)."""
    positives, negatives = int(true.sum()), int((~true).sum())
    if not positives or not negatives or not np.isfinite(scores).all():
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # equal scores share the mean of their ranks
    above = ranks[place][true].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def evaluate(
    federation: Federation,
    progress: Progress,
    dataset: Dataset,
    metrics: Sequence[MetricName],
    clients: int,
    attack: Attack | None = None,
) -> dict[str, Any]:
    """All measures after a round.

    A method without a global model is judged by its clients' models on samples of the whole test set.
    """
    model = federation.method.model(progress.state)
    found = {} if model is None else global_measures(federation.task, model, dataset, metrics)
    if model is not None and attack is not None:
        found |= _success(federation.task, model, dataset, attack)
    replies = _ask_clients(federation, progress, clients, common=model is None)
    if model is None and replies:
        found |= _means([reply["common"] for reply in replies])
    if replies:
        found |= fairness([reply["own"] for reply in replies], "accuracy" if dataset.classes else "mse")
    return found


def _success(task: Task, weights: Weights, dataset: Dataset, attack: Attack) -> dict[str, float]:
    """How often the attack has its way with the global model, if it wants more than harm."""

    def predict(x: Tensor) -> Tensor:
        return outputs_of(task, weights, x).argmax(1)

    share = attack.success(predict, dataset.x_test, dataset.y_test)
    return {} if share is None else {"attack_success": share}


def _ask_clients(
    federation: Federation, progress: Progress, clients: int, *, common: bool
) -> list[Mapping[str, Any]]:
    available = federation.engine.clients(max(progress.round - 1, 0))
    sample = _fixed_sample(available, clients, federation.key.fold("evaluate"))
    cohort = Cohort(sample, {"common": (common,) * len(sample)}, len(available))
    message = federation.method.serve(progress.state, cohort)
    work = Work("evaluate", max(progress.round - 1, 0), 0, progress.accepted)
    key = federation.key.fold("evaluate", progress.round)
    deliveries = federation.engine.exchange(work, cohort, message, key)
    return [delivery.reply.payload for delivery in deliveries if delivery.reply is not None]


def _fixed_sample(available: Sequence[int], count: int, key: Key) -> tuple[int, ...]:
    """The same clients in every round, as long as the same can be reached."""
    if count >= len(available):
        return tuple(available)
    picked = key.numpy().choice(len(available), count, replace=False, shuffle=False)
    return tuple(sorted(available[int(i)] for i in picked))


def _means(judged: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    return {name: float(np.mean([float(j[name]) for j in judged])) for name in judged[0]}


def fairness(judged: Sequence[Mapping[str, Tensor]], measure: str) -> dict[str, float]:
    """How the measure is spread over clients: mean, worst tenth (at least one client), deviation."""
    values = np.sort([float(j[measure]) for j in judged])
    worst = values if measure == "accuracy" else values[::-1]
    tenth = max(1, len(values) // 10)
    with np.errstate(invalid="ignore"):  # an infinite error has no deviation, and nobody needs to be warned
        return {
            f"mean_client_{measure}": float(values.mean()),
            f"worst_client_{measure}": float(worst[:tenth].mean()),
            f"client_{measure}_std": float(values.std()),
        }
