"""One upload under attack: what of the victims' samples can be reconstructed from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from shoal.audit import matching
from shoal.audit.closed_form import from_signature, inverted, readable
from shoal.audit.evidence import Evidence, Rebuilt, Window, window
from shoal.audit.labels import found_labels
from shoal.audit.losses import Statistics, logistic_sample, regression, unknowns
from shoal.audit.measures import labels_found, matched, mean_psnr, psnr
from shoal.audit.wiretap import Upload, Victim, first_round
from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Method, overridden
from shoal.core.task import Task
from shoal.core.training import solver_of
from shoal.core.tree import tensors
from shoal.core.types import Weights
from shoal.parts.landscape import kind_of
from shoal.runs.runner import Result, one_thread
from shoal.solver.sgd import Sgd
from shoal.solver.torch_sgd import Rule

AttackName = Literal["auto", "closed", "dlg", "idlg", "cosine"]
ATTACKS: tuple[AttackName, ...] = get_args(AttackName)
KNOWS, LACKS = "knows", "lacks"  # the attackers: one has all weights, one only those that travelled
DIGITS = 4  # of the pixels that are kept for the picture


class Scene(NamedTuple):
    """What all victims of an audit share."""

    task: Task
    dataset: Dataset
    solver: Sgd | None
    lossy: bool  # whether the codec or the method cuts something off
    key: Key
    low: float
    high: float


class Attempt(NamedTuple):
    """An attack on one victim, judged."""

    x: Tensor  # in the order of the originals
    psnrs: list[float]
    labels: float | None  # the share found; None if there are none
    seconds: float


def examine(
    result: Result, attack: AttackName = "auto", iterations: int = 300, restarts: int = 2
) -> dict[str, Any]:
    """Attack the first uploads of a run; returns plain data."""
    with one_thread():
        setup, victims = first_round(result.spec)
        solver = solver_of(setup.side.method)
        if solver is not None and not isinstance(solver, Sgd):
            raise SpecError(f"the audit can repeat the steps of sgd, not those of {type(solver).__name__}")
        dataset = setup.dataset
        scene = Scene(
            setup.side.task,
            dataset,
            solver,
            not setup.side.codec.transparent or overridden(setup.side.method, Method, "upload"),
            Key.from_seed(result.spec.seed).fold("audit"),
            float(dataset.x_train.min()),
            float(dataset.x_train.max()),
        )
        _check(scene, victims)
        heard = [victim for victim in victims if _replied(victim)]
        return {
            "method": result.spec.method_name,
            "victims": len(heard),
            "samples": victims[0].data.count,
            "steps": _steps(scene),
            "reason": "" if heard else _reason(victims),
            **_described(scene, heard),
            **_attacked(scene, heard, attack, iterations, restarts),
            "signature": _signatures(scene, victims),
            "originals": [_pixels(victim.data.all.x) for victim in heard],
        }


def _replied(victim: Victim) -> bool:
    return bool(victim.uploads) and all(upload.reply is not None for upload in victim.uploads)


def _reason(victims: Sequence[Victim]) -> str:
    """Why nobody uploaded anything."""
    told = [upload.reason for victim in victims for upload in victim.uploads if upload.reason]
    return told[0] if told else "nobody was asked"


def _check(scene: Scene, victims: Sequence[Victim]) -> None:
    samples = victims[0].data.count
    if not scene.dataset.x_train.is_floating_point():
        raise SpecError(f"the audit reconstructs real numbers, and {scene.dataset.name} has none")
    if scene.solver is not None and scene.solver.batch < samples:
        raise SpecError(
            f"local.batch = {scene.solver.batch} splits the {samples} samples of a victim; the audit repeats "
            f"steps on all of them: set local.batch = {samples}"
        )
    if scene.task.noise_shapes and scene.task.batch_norms:
        raise SpecError("the audit cannot repeat a model with both BatchNorm and dropout; take another model")


def _steps(scene: Scene) -> int:
    return scene.solver.epochs if scene.solver is not None else 0


def _described(scene: Scene, victims: Sequence[Victim]) -> dict[str, Any]:
    """What the uploads hold, of the first victim that uploaded anything."""
    total = sum(shape.numel() for shape in scene.task.shapes.values())
    if not victims:
        return {"travelled": [], "numbers": 0, "total": total, "bytes_up": 0, "beside": []}
    update = _update(victims[0].uploads[0])
    payload = victims[0].uploads[0].reply.payload  # type: ignore[union-attr]
    return {
        "travelled": list(update),
        "numbers": sum(value.numel() for value in update.values()),
        "total": total,
        "bytes_up": fmean(sum(u.bytes_up for u in victim.uploads) for victim in victims),
        "beside": [name for name in getattr(payload, "_fields", ()) if name != "update" and tensors(getattr(payload, name))],
    }


def _update(upload: Upload) -> dict[str, Tensor]:
    """The tensors that travelled, in float64; none if the reply has no update."""
    if upload.reply is None or "update" not in getattr(upload.reply.payload, "_fields", ()):
        return {}
    return {name: value.double() for name, value in upload.reply.payload.update.params.items()}


def _attacked(
    scene: Scene, victims: Sequence[Victim], attack: AttackName, iterations: int, restarts: int
) -> dict[str, Any]:
    nothing: dict[str, Any] = {"attack": None, "rules": {}, KNOWS: None, LACKS: None, "statistics": None}
    uploads = [victim.uploads[0] for victim in victims]
    updates = [_update(upload) for upload in uploads]
    if not updates:
        return nothing
    if not updates[0]:
        return nothing | _by_losses(scene, victims)
    chosen = _chosen(scene, victims[0], updates[0], attack)
    lacking = any(name not in updates[0] for name in scene.task.shapes)
    found: dict[str, list[Attempt]] = {KNOWS: [], LACKS: []}
    for victim, upload, update in zip(victims, uploads, updates, strict=True):
        for attacker in (KNOWS, LACKS) if lacking else (KNOWS,):
            found[attacker].append(
                _timed(
                    scene,
                    victim,
                    lambda v=victim, u=upload, d=update, a=attacker: _rebuilt(  # type: ignore[misc]
                        scene, v, u, d, a, chosen, iterations, restarts
                    ),
                )
            )
    return nothing | {
        "attack": chosen,
        "rules": _rules(scene, victims, updates),
        **{attacker: _judged(scene, attempts) for attacker, attempts in found.items()},
    }


def _chosen(scene: Scene, victim: Victim, update: dict[str, Tensor], attack: AttackName) -> AttackName:
    """The attack that is meant: what can be read off needs no optimisation, and corners need the cosine."""
    if attack != "auto":
        return attack
    if victim.data.count == 1 and readable(scene.task, scene.dataset.shape, update) is not None:
        return "closed"
    layers = scene.task.module(scene.task.init(scene.key)).modules()
    return "cosine" if any(isinstance(layer, nn.ReLU) for layer in layers) else "idlg"


def _rebuilt(
    scene: Scene,
    victim: Victim,
    upload: Upload,
    update: dict[str, Tensor],
    attacker: str,
    attack: AttackName,
    iterations: int,
    restarts: int,
) -> Rebuilt:
    key = scene.key.fold("victim", victim.client)
    gradient = {name: -value for name, value in update.items()}  # up to a positive factor
    shape = (victim.data.count, *scene.dataset.shape)
    labels = next(iter(found_labels(scene.task, gradient, shape[0]).values()), None)
    if attack == "closed":
        return _read_off(scene, update, shape, labels)
    assert scene.solver is not None
    assert upload.start is not None
    rule = Rule(scene.solver.rate(0), scene.solver.momentum, scene.solver.weight_decay)
    windows = {name: window(value) if scene.lossy else Window() for name, value in update.items()}
    evidences = [
        Evidence(
            scene.task,
            _believed(scene.task, upload.start, update, attacker, key.fold("guess", number)),
            update,
            windows,
            rule,
            scene.solver.epochs,
            shape,
            scene.low,
            scene.high,
        )
        for number in range(restarts)
    ]
    if attack == "dlg" or labels is None:
        return matching.dlg(evidences, key, iterations)
    return (matching.cosine if attack == "cosine" else matching.idlg)(evidences, labels, key, iterations)


def _read_off(
    scene: Scene, update: dict[str, Tensor], shape: tuple[int, ...], labels: list[int] | None
) -> Rebuilt:
    prefix = readable(scene.task, scene.dataset.shape, update)
    if prefix is None or shape[0] > 1:
        raise SpecError(
            "the attack closed needs a dense first layer that travels, and one sample a victim; "
            "use idlg or cosine"
        )
    x = inverted(update[f"{prefix}weight"], update[f"{prefix}bias"])
    return Rebuilt(x.reshape(shape), labels or [], 0.0)


def _believed(task: Task, start: Weights, update: dict[str, Tensor], attacker: str, key: Key) -> Weights:
    """The weights that the attacker computes with; what it lacks, it draws as initial weights are drawn."""
    guess = task.init(key).params if attacker == LACKS else start.params
    params = {n: (v if n in update else guess[n]).double() for n, v in start.params.items()}
    buffers = {n: v.double() if v.is_floating_point() else v for n, v in start.buffers.items()}
    return Weights(params, buffers)


def _timed(scene: Scene, victim: Victim, attempt: Callable[[], Rebuilt]) -> Attempt:
    started = time.perf_counter()
    found = attempt()
    seconds = time.perf_counter() - started
    x, y = victim.data.all
    rebuilt = matched(x, found.x)
    shares = labels_found(y.tolist(), found.labels) if found.labels else None
    return Attempt(
        rebuilt,
        [psnr(*pair, scene.low, scene.high) for pair in zip(x, rebuilt, strict=True)],
        shares,
        seconds,
    )


def _judged(scene: Scene, attempts: Sequence[Attempt]) -> dict[str, Any] | None:
    if not attempts:
        return None
    shares = [attempt.labels for attempt in attempts if attempt.labels is not None]
    values = [value for attempt in attempts for value in attempt.psnrs]
    return {
        "psnr": mean_psnr(values),
        "psnrs": values,
        "labels": fmean(shares) if shares else None,
        "seconds": fmean(attempt.seconds for attempt in attempts) / len(attempts[0].psnrs),
        "images": [_pixels(attempt.x.clamp(scene.low, scene.high)) for attempt in attempts],
    }


def _rules(scene: Scene, victims: Sequence[Victim], updates: Sequence[dict[str, Tensor]]) -> dict[str, float]:
    """How many of the labels each rule finds, of those whose tensor travelled."""
    shares: dict[str, list[float]] = {}
    for victim, update in zip(victims, updates, strict=True):
        gradient = {name: -value for name, value in update.items()}
        for rule, labels in found_labels(scene.task, gradient, victim.data.count).items():
            shares.setdefault(rule, []).append(labels_found(victim.data.all_y.tolist(), labels))
    return {rule: fmean(values) for rule, values in shares.items()}


# -- other things that travel


def _by_losses(scene: Scene, victims: Sequence[Victim]) -> dict[str, Any]:
    """From the answers of swarm clients: the statistics of a regression, or single samples."""
    payload = victims[0].uploads[0].reply.payload  # type: ignore[union-attr]
    if "losses" not in getattr(payload, "_fields", ()):
        return {}
    kind, samples = kind_of(scene.task), victims[0].data.count
    if kind == "quadratic":
        return {"attack": "losses", "statistics": _statistics(victims)}
    if kind == "logistic" and samples == 1:
        attempts = [_timed(scene, victim, lambda v=victim: _from_losses(scene, v)) for victim in victims]  # type: ignore[misc]
        return {"attack": "losses", KNOWS: _judged(scene, attempts)}
    return {}


def _asked(victim: Victim) -> tuple[Tensor, Tensor]:
    """All questions [n, problems, dimension] and their answers [n, problems]."""
    points = torch.cat([upload.sent.candidates.permute(2, 1, 0) for upload in victim.uploads])
    answers = torch.cat([upload.reply.payload.losses.T for upload in victim.uploads])  # type: ignore[union-attr]
    return points, answers


def _from_losses(scene: Scene, victim: Victim) -> Rebuilt:
    x, label = logistic_sample(*_asked(victim))
    return Rebuilt(x.reshape(1, *scene.dataset.shape), [label], 0.0)


def _statistics(victims: Sequence[Victim]) -> dict[str, Any]:
    """How far what the answers say of X'X and X'y is from the truth, relative to its size."""
    grams, moments, asked = [], [], 0
    for victim in victims:
        points, answers = _asked(victim)
        asked = len(points)
        found, true = regression(points[:, 0], answers[:, 0]), Statistics.of(*victim.data.all)
        grams.append(float((found.gram - true.gram).norm() / true.gram.norm()))
        moments.append(float((found.moment - true.moment).norm() / true.moment.norm()))
    width = points.shape[2]
    return {
        "answers": asked,
        "unknowns": unknowns(width),
        "gram_error": max(grams),
        "moment_error": max(moments),
    }


def _signatures(scene: Scene, victims: Sequence[Victim]) -> dict[str, Any] | None:
    """What the signatures that clients told before the first round show of single samples."""
    told = [victim for victim in victims if "signature" in getattr(victim.profile, "_fields", ())]
    if not told or victims[0].data.count > 1:
        return None
    shape = (1, *scene.dataset.shape)
    attempts = [
        _timed(
            scene,
            victim,
            lambda v=victim: Rebuilt(from_signature(v.profile.signature, scene.high).reshape(shape), [], 0.0),  # type: ignore[misc]
        )
        for victim in told
    ]
    return _judged(scene, attempts)


def _pixels(x: Tensor) -> list[Any]:
    """The values of samples, rounded."""
    return [[round(value, DIGITS) for value in sample.flatten().tolist()] for sample in x.double()]
