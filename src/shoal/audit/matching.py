"""Search, by optimisation, for samples whose update matches the one that was uploaded.

    DLG     x, y = argmin ||u(x, y) - u*||^2 / ||u*||^2                     L-BFGS, x and soft labels together
    iDLG    x = argmin ||u(x, y) - u*||^2 / ||u*||^2                        L-BFGS, labels first: see `labels`
    cosine  x = argmin 1 - <u(x, y), u*> / (||u|| ||u*||) + tv TV(x)        Adam on gradient signs

Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019; Zhao, Mopuri, Bilen: iDLG, 2020; Geiping,
Bauermeister, Dröge, Moeller: Inverting Gradients, NeurIPS 2020. u(x, y) is the update that a client
with samples x and labels y would upload: the attacker repeats the local steps, knows the learning rate and
momentum, and compares the tensors that were uploaded. Loss terms of the method are not repeated; in the first
step most of them are zero.

All computations are in float64. Several starts are drawn, and the one with the lowest objective is kept: the
attacker has no other criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor

from shoal.audit.observation import Observation, Reconstruction
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Weights

GOOD_ENOUGH = 1e-10  # relative squared distance below which the search stops: the sample is found
EXPLAINED = 1e-6  # below it, the update equals that of the sample found, up to rounding
RATE, TV = 0.1, 1e-2  # of the cosine attack
DROPS = (3 / 8, 5 / 8, 7 / 8)  # where its learning rate is divided by ten


Objective = Callable[[Tensor], Tensor]  # the training loss of outputs [n, heads]


def simulated(evidence: Observation, x: Tensor, objective: Objective) -> dict[str, Tensor]:
    """The update of a client with these samples, as a differentiable function of them."""
    task, rule, steps = evidence.task, evidence.rule, evidence.steps
    begin = {name: value.detach().requires_grad_() for name, value in evidence.start.params.items()}
    buffers = evidence.start.buffers
    params: dict[str, Tensor] = dict(begin)
    speed: dict[str, Tensor] = {}
    for step in range(steps):
        outputs, buffers = task.forward(Weights(params, buffers), x, train=bool(task.batch_norms))
        wanted = list(evidence.update) if steps == 1 else list(params)
        values = [params[name] for name in wanted]
        found = torch.autograd.grad(
            objective(outputs), values, create_graph=True, allow_unused=True, materialize_grads=True
        )
        for name, value, gradient in zip(wanted, values, found, strict=True):
            gradient = gradient + rule.weight_decay * value if rule.weight_decay else gradient
            speed[name] = rule.momentum * speed[name] + gradient if step and rule.momentum else gradient
            params[name] = value - rule.rate * speed[name]
    return {name: params[name] - begin[name] for name in evidence.update}


def _squared(evidence: Observation, update: Mapping[str, Tensor]) -> Tensor:
    gaps = (evidence.windows[n](update[n] - seen) for n, seen in evidence.update.items())
    return _total(gap.square().sum() for gap in gaps) / _norm(evidence.update)


def _cosine(evidence: Observation, update: Mapping[str, Tensor]) -> Tensor:
    ours = {name: evidence.windows[name](value) for name, value in update.items()}
    product = _total((ours[name] * seen).sum() for name, seen in evidence.update.items())
    return 1 - product / (_norm(ours) * _norm(evidence.update)).sqrt().clamp(min=1e-30)


def _total(parts: Any) -> Tensor:
    return torch.stack(list(parts)).sum()


def _norm(tensors: Mapping[str, Tensor]) -> Tensor:
    """The squared norm of all tensors together."""
    return _total(value.square().sum() for value in tensors.values())


def variation(x: Tensor) -> Tensor:
    """[]: the mean absolute difference of neighbouring pixels of images [n, channels, rows, columns]."""
    if x.dim() != 4:
        return x.new_zeros(())
    return x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()


def dlg(evidences: Sequence[Observation], key: Key, iterations: int) -> Reconstruction:
    """DLG: samples and labels together, with one start per element of `evidences`."""
    return _best(evidences, key, lambda evidence, drawn: _descended(evidence, None, drawn, iterations))


def idlg(evidences: Sequence[Observation], labels: list[int], key: Key, iterations: int) -> Reconstruction:
    """iDLG: the samples, given their labels."""
    return _best(evidences, key, lambda evidence, drawn: _descended(evidence, labels, drawn, iterations))


def cosine(evidences: Sequence[Observation], labels: list[int], key: Key, iterations: int) -> Reconstruction:
    """The samples, given their labels, from the direction of the update; images are assumed to be smooth."""
    return _best(evidences, key, lambda evidence, drawn: _signed(evidence, labels, drawn, iterations))


def either(evidences: Sequence[Observation], labels: list[int], key: Key, iterations: int) -> Reconstruction:
    """iDLG, or the cosine attack if iDLG gets stuck before it explains the update."""
    found = idlg(evidences, labels, key, iterations)
    return found if found.value < EXPLAINED else cosine(evidences, labels, key, iterations)


def _best(
    evidences: Sequence[Observation],
    key: Key,
    attempt: Callable[[Observation, np.random.Generator], Reconstruction],
) -> Reconstruction:
    best: Reconstruction | None = None
    for number, evidence in enumerate(evidences):
        found = attempt(evidence, key.fold("restart", number).numpy())
        best = found if best is None or found.value < best.value else best
        if best.value < GOOD_ENOUGH:
            break
    assert best is not None
    return best


def _descended(
    evidence: Observation, labels: list[int] | None, drawn: np.random.Generator, iterations: int
) -> Reconstruction:
    """Run L-BFGS within the range of the samples."""
    size, samples = int(np.prod(evidence.shape)), evidence.shape[0]
    heads = 0 if labels is not None else evidence.task.classes or 1
    begin = np.concatenate(
        [drawn.uniform(evidence.low, evidence.high, size), drawn.normal(size=samples * heads)]
    )
    bounds = [(evidence.low, evidence.high)] * size + [(None, None)] * (samples * heads)

    def value(vector: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(vector).requires_grad_()
        x, raw = point[:size].reshape(evidence.shape), point[size:].reshape(samples, heads)
        objective = _of_labels(evidence.task, labels) if labels is not None else _of_soft(evidence.task, raw)
        loss = _squared(evidence, simulated(evidence, x, objective))
        (slope,) = torch.autograd.grad(loss, point)
        return loss.item(), slope.numpy()

    def enough(intermediate_result: Any) -> None:
        if intermediate_result.fun < GOOD_ENOUGH:
            raise StopIteration

    options = {"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
    found = minimize(
        value, begin, jac=True, method="L-BFGS-B", bounds=bounds, callback=enough, options=options
    )
    x = torch.from_numpy(found.x[:size]).reshape(evidence.shape)
    if labels is None and evidence.task.classes:
        labels = torch.from_numpy(found.x[size:]).reshape(samples, heads).argmax(1).tolist()
    return Reconstruction(x, labels or [], float(found.fun))


def _signed(
    evidence: Observation, labels: list[int], drawn: np.random.Generator, iterations: int
) -> Reconstruction:
    """Run Adam on gradient signs, with a decaying learning rate, within the range of the samples."""
    begin = torch.from_numpy(drawn.uniform(evidence.low, evidence.high, evidence.shape))
    x, objective = begin.requires_grad_(), _of_labels(evidence.task, labels)
    adam = torch.optim.Adam([x], RATE * (evidence.high - evidence.low))
    rates = torch.optim.lr_scheduler.MultiStepLR(adam, [int(d * iterations) for d in DROPS], 0.1)
    best = Reconstruction(x.detach().clone(), labels, np.inf)
    for _ in range(iterations):
        loss = _cosine(evidence, simulated(evidence, x, objective)) + TV * variation(x)
        if loss.item() < best.value:
            best = Reconstruction(x.detach().clone(), labels, loss.item())
        (slope,) = torch.autograd.grad(loss, x)
        x.grad = slope.sign()
        adam.step()
        rates.step()
        x.data.clamp_(evidence.low, evidence.high)
    return best


def _of_labels(task: Task, labels: list[int]) -> Objective:
    y = torch.tensor(labels, dtype=torch.int64)
    return lambda outputs: task.objective(outputs, y)


def _of_soft(task: Task, raw: Tensor) -> Objective:
    """The loss with trainable targets: soft labels, or the targets of a regression themselves."""
    if task.loss == "cross_entropy":
        return lambda outputs: F.cross_entropy(outputs, raw.softmax(1))
    if task.loss == "one_versus_all":
        return lambda outputs: (
            F.binary_cross_entropy_with_logits(outputs, raw.sigmoid(), reduction="sum") / len(outputs)
        )
    return lambda outputs: (outputs - raw).square().sum() / len(outputs)
