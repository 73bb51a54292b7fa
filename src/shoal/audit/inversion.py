"""Gradient inversion, by an attacker that knows all weights and by one that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

from torch import Tensor, nn

from shoal.audit import matching
from shoal.audit.closed_form import inverted, readable
from shoal.audit.labels import LabelRule, found_labels
from shoal.audit.measures import labels_found
from shoal.audit.observation import Observation, Reconstruction, Window, window
from shoal.audit.scene import Attempt, Scene, attempt, judged
from shoal.audit.wiretap import Victim
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.solver.torch_sgd import Rule

AttackName = Literal["auto", "closed", "dlg", "idlg", "cosine", "either"]
ATTACKS: tuple[AttackName, ...] = get_args(AttackName)
SEARCHES = {"idlg": matching.idlg, "cosine": matching.cosine, "either": matching.either}  # with known labels
Attacker = Literal["knows", "lacks"]  # knows all initial weights, or lacks those that were not transmitted


class Effort(NamedTuple):
    """An attack and its computing budget."""

    attack: AttackName
    iterations: int
    restarts: int


def from_updates(scene: Scene, victims: Sequence[Victim], effort: Effort) -> dict[str, Any]:
    """Attack the first update of every victim; returns plain data."""
    update = victims[0].uploads[0].update
    effort = effort._replace(attack=_chosen(scene, victims[0], update, effort.attack))
    lacking = any(name not in update for name in scene.task.shapes)
    found: dict[Attacker, list[Attempt]] = {"knows": [], "lacks": []}
    for victim in victims:
        found["knows"].append(attempt(scene, victim, _rebuilt, "knows", effort))
        if lacking:
            found["lacks"].append(attempt(scene, victim, _rebuilt, "lacks", effort))
    return {
        "attack": effort.attack,
        "rules": _rules(scene, victims),
        **{attacker: judged(scene, attempts) for attacker, attempts in found.items()},
    }


def _chosen(scene: Scene, victim: Victim, update: Mapping[str, Tensor], attack: AttackName) -> AttackName:
    """Resolve `auto`: closed form where it applies, iDLG for smooth models, both searches for ReLU models."""
    if attack != "auto":
        return attack
    if victim.data.count == 1 and readable(scene.task, scene.shape, update) is not None:
        return "closed"
    layers = scene.task.module(scene.task.init(scene.key)).modules()
    return "either" if any(isinstance(layer, nn.ReLU) for layer in layers) else "idlg"


def _rebuilt(scene: Scene, victim: Victim, attacker: Attacker, effort: Effort) -> Reconstruction:
    key, samples, update = (
        scene.key.fold("victim", victim.client),
        victim.data.count,
        victim.uploads[0].update,
    )
    labels = next(iter(_labels(scene, victim).values()), None)
    if effort.attack == "closed":
        return _read_off(scene, samples, update, labels)
    evidences = [
        _evidence(scene, victim, attacker, key.fold("guess", number)) for number in range(effort.restarts)
    ]
    if effort.attack == "dlg" or labels is None:
        return matching.dlg(evidences, key, effort.iterations)
    return SEARCHES[effort.attack](evidences, labels, key, effort.iterations)


def _evidence(scene: Scene, victim: Victim, attacker: Attacker, key: Key) -> Observation:
    start, update = victim.uploads[0].start, victim.uploads[0].update
    assert start is not None
    assert scene.solver is not None
    return Observation(
        scene.task,
        _believed(scene.task, start, update, attacker, key),
        update,
        {name: window(value) if scene.lossy else Window() for name, value in update.items()},
        Rule(scene.solver.rate(0), scene.solver.momentum, scene.solver.weight_decay),
        scene.solver.epochs,
        (victim.data.count, *scene.shape),
        scene.low,
        scene.high,
    )


def _believed(
    task: Task, start: Weights, update: Mapping[str, Tensor], attacker: Attacker, key: Key
) -> Weights:
    """The weights that the attacker computes with; those it lacks are drawn like initial weights."""
    guess = task.init(key).params if attacker == "lacks" else start.params
    params = {n: (v if n in update else guess[n]).double() for n, v in start.params.items()}
    buffers = {n: v.double() if v.is_floating_point() else v for n, v in start.buffers.items()}
    return Weights(params, buffers)


def _read_off(
    scene: Scene, samples: int, update: Mapping[str, Tensor], labels: list[int] | None
) -> Reconstruction:
    prefix = readable(scene.task, scene.shape, update)
    if prefix is None or samples > 1:
        raise SpecError(
            "the attack closed needs a dense first layer that travels, and one sample a victim; "
            "use idlg or cosine"
        )
    x = inverted(update[f"{prefix}weight"], update[f"{prefix}bias"])
    return Reconstruction(x.reshape(1, *scene.shape), labels or [], 0.0)


def _labels(scene: Scene, victim: Victim) -> dict[LabelRule, list[int]]:
    """The labels found by each rule; the gradient is the negated update, up to a factor."""
    gradient = {name: -value for name, value in victim.uploads[0].update.items()}
    return found_labels(scene.task, gradient, victim.data.count)


def _rules(scene: Scene, victims: Sequence[Victim]) -> dict[str, float]:
    """The share of labels that each rule finds, for the rules whose tensor was uploaded."""
    shares: dict[str, list[float]] = {}
    for victim in victims:
        for rule, labels in _labels(scene, victim).items():
            shares.setdefault(rule, []).append(labels_found(victim.data.all_y.tolist(), labels))
    return {rule: fmean(values) for rule, values in shares.items()}
