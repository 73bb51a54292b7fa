"""Attacks on what clients send beside updates: the losses of a swarm, and the signatures of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shoal.audit.closed_form import from_signature
from shoal.audit.losses import Statistics, logistic_sample, regression, unknowns
from shoal.audit.observation import Reconstruction
from shoal.audit.scene import Scene, attempt, judged
from shoal.audit.wiretap import Victim
from shoal.parts.landscape import kind_of


def from_losses(scene: Scene, victims: Sequence[Victim]) -> dict[str, Any]:
    """Reconstruct the statistics of a regression, or single samples of a classifier; returns plain data."""
    if "losses" not in victims[0].uploads[0].fields:
        return {}
    kind = kind_of(scene.task)
    if kind == "quadratic":
        return {"attack": "losses", "statistics": _statistics(victims)}
    if kind == "logistic" and victims[0].data.count == 1:
        attempts = [attempt(scene, victim, _sample) for victim in victims]
        return {"attack": "losses", "knows": judged(scene, attempts)}
    return {}


def _asked(victim: Victim) -> tuple[Tensor, Tensor]:
    """All questions [n, problems, dimension], and their answers [n, problems]."""
    points = [upload.sent.candidates.permute(2, 1, 0) for upload in victim.uploads]
    answers = [upload.payload.losses.T for upload in victim.uploads]
    return torch.cat(points), torch.cat(answers)


def _sample(scene: Scene, victim: Victim) -> Reconstruction:
    x, label = logistic_sample(*_asked(victim))
    return Reconstruction(x.reshape(1, *scene.shape), [label], 0.0)


def _statistics(victims: Sequence[Victim]) -> dict[str, Any]:
    """The relative errors of X'X and X'y as reconstructed from the answers."""
    grams, moments, asked = [], [], [_asked(victim) for victim in victims]
    for victim, (points, answers) in zip(victims, asked, strict=True):
        found, true = regression(points[:, 0], answers[:, 0]), Statistics.of(*victim.data.all)
        grams.append(float((found.gram - true.gram).norm() / true.gram.norm()))
        moments.append(float((found.moment - true.moment).norm() / true.moment.norm()))
    count, _, width = asked[0][0].shape
    return {
        "answers": count,
        "unknowns": unknowns(width),
        "gram_error": max(grams),
        "moment_error": max(moments),
    }


def from_signatures(scene: Scene, victims: Sequence[Victim]) -> dict[str, Any] | None:
    """What the profiles of clients with a single sample reveal; None if no client sent a signature."""
    told = [victim for victim in victims if "signature" in getattr(victim.profile, "_fields", ())]
    if not told or told[0].data.count > 1:
        return None
    return judged(scene, [attempt(scene, victim, _of_signature) for victim in told])


def _of_signature(scene: Scene, victim: Victim) -> Reconstruction:
    x = from_signature(victim.profile.signature, scene.high)
    return Reconstruction(x.reshape(1, *scene.shape), [], 0.0)
