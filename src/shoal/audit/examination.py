"""Examine one upload: what it contains, and how much of the victims' samples attacks recover from it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from shoal.audit.inversion import AttackName, Effort, from_updates
from shoal.audit.scene import Scene, pixels
from shoal.audit.side_channels import from_losses, from_signatures
from shoal.audit.wiretap import Victim, first_round
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Method, overridden
from shoal.core.training import solver_of
from shoal.runs.build import Setup
from shoal.runs.result import Result
from shoal.runs.runner import one_thread
from shoal.solver.sgd import Sgd


def examine(
    result: Result, attack: AttackName = "auto", iterations: int = 300, restarts: int = 2
) -> dict[str, Any]:
    """Attack the first uploads of a run's clients; returns plain data."""
    with one_thread():
        setup, victims = first_round(result.spec)
        scene = _scene(setup, result.spec.seed)
        _check(scene, setup, victims)
        heard = [victim for victim in victims if victim.replied]
        return {
            "method": result.spec.method_name,
            "victims": len(heard),
            "samples": victims[0].data.count,
            "steps": 0 if scene.solver is None else scene.solver.epochs,
            **_described(scene, heard),
            "reason": "" if heard else _reason(victims),
            **_attacked(scene, heard, Effort(attack, iterations, restarts)),
            "signature": from_signatures(scene, victims),
            "originals": [pixels(scene, victim.data.all.x) for victim in heard],
        }


def _scene(setup: Setup, seed: int) -> Scene:
    side, dataset = setup.side, setup.dataset
    assert dataset is not None  # an audit simulates its victims
    solver = solver_of(side.method)
    if solver is not None and not isinstance(solver, Sgd):
        raise SpecError(f"the audit can repeat the steps of sgd, not those of {type(solver).__name__}")
    lossy = not side.codec.transparent or overridden(side.method, Method, "upload")
    low, high = float(dataset.x_train.min()), float(dataset.x_train.max())
    return Scene(side.task, dataset.shape, solver, lossy, Key.from_seed(seed).fold("audit"), low, high)


def _check(scene: Scene, setup: Setup, victims: Sequence[Victim]) -> None:
    samples = victims[0].data.count
    assert setup.dataset is not None
    if not setup.dataset.x_train.is_floating_point():
        raise SpecError(f"the audit reconstructs real numbers, and {setup.dataset.name} has none")
    if scene.solver is not None and scene.solver.batch < samples:
        raise SpecError(
            f"local.batch = {scene.solver.batch} splits the {samples} samples of a victim; the audit repeats "
            f"steps on all of them: set local.batch = {samples}"
        )
    if scene.task.noise_shapes and scene.task.batch_norms:
        raise SpecError("the audit cannot repeat a model with both BatchNorm and dropout; take another model")


def _reason(victims: Sequence[Victim]) -> str:
    """Why no victim uploaded anything."""
    told = [upload.reason for victim in victims for upload in victim.uploads if upload.reason]
    return told[0] if told else "nobody was asked"


def _described(scene: Scene, victims: Sequence[Victim]) -> dict[str, Any]:
    """What the uploads contain, by the example of the first victim."""
    total = sum(shape.numel() for shape in scene.task.shapes.values())
    if not victims:
        return {"travelled": [], "numbers": 0, "total": total, "bytes_up": 0, "beside": []}
    first = victims[0].uploads[0]
    return {
        "travelled": list(first.update),
        "numbers": sum(value.numel() for value in first.update.values()),
        "total": total,
        "bytes_up": fmean(sum(upload.bytes_up for upload in victim.uploads) for victim in victims),
        "beside": [name for name in first.fields if name != "update"],
    }


def _attacked(scene: Scene, victims: Sequence[Victim], effort: Effort) -> dict[str, Any]:
    nothing: dict[str, Any] = {"attack": None, "rules": {}, "knows": None, "lacks": None, "statistics": None}
    if not victims:
        return nothing
    trained = bool(victims[0].uploads[0].update)
    return nothing | (from_updates(scene, victims, effort) if trained else from_losses(scene, victims))
