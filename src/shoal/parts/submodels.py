"""Parts of a model as separate tasks: its last layer, all but the last, the first ones with an exit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import torch
from torch import nn

from shoal.core.data import Data, Plan
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.kernels.plan import without_head
from shoal.kernels.recognition import plan_of
from shoal.parts.layers import matrices
from shoal.solver.outputs import features_of

EXIT = "exit."  # prefix of the layer that ends a cut model


@lru_cache(maxsize=4)
def head_task(task: Task) -> Task:
    """The last linear layer alone, on the features that enter it."""
    assert task.last is not None
    outputs, width = task.shapes[f"{task.last}weight"]
    build = partial(nn.Linear, width, outputs, bias=f"{task.last}bias" in task.shapes)
    plan = None if task.plan is None else plan_of(build(), (width,), task.loss)
    return Task(build, task.loss, task.classes, device=task.device, plan=plan, last="", shape=(width,))


@lru_cache(maxsize=4)
def body_task(task: Task) -> Task:
    """The model, whose last layer is not trained."""
    return replace(task, held=task.head_names, plan=None if task.plan is None else without_head(task.plan))


def features_data(task: Task, weights: Weights, data: Data) -> Data:
    """The same samples and mini-batches, with the inputs of the last layer in place of x."""
    x, y = data.all
    return replace(data, x=features_of(task, weights, x), y=y, rows=np.arange(data.count))


def some_epochs(data: Data, first: int, last: int, epochs: int) -> Data:
    """The same samples, with the mini-batches of epochs `first` to `last` (exclusive) out of `epochs`."""
    begins = data.plan.step_ptr
    steps = (len(begins) - 1) // epochs
    ends = begins[first * steps : last * steps + 1]
    order = data.plan.order[ends[0] : ends[-1]]
    return replace(data, plan=Plan(order, ends - ends[0], np.array([0, (last - first) * steps])))


# ---- the first layers


def depth_of(task: Task) -> int:
    """The number of layers of a model that is one `nn.Sequential`: parts that hold a matrix."""
    return len(_layered(task))


def first_layers(task: Task, depth: int) -> list[str]:
    """The names of the parameters of the first layers, and of the parts that follow each, such as a norm."""
    layers = _layered(task)
    if depth >= len(layers):
        return list(task.shapes)
    parts = list(dict.fromkeys(_part(name) for name in task.shapes))
    below = set(parts[: parts.index(layers[depth])])
    return [name for name in task.shapes if _part(name) in below]


@lru_cache(maxsize=16)
def cut_task(task: Task, depth: int) -> Task:
    """The first layers of the model, followed by a linear layer from their features to the outputs."""
    build = partial(_cut, task.build, _layered(task)[depth], task.shape, task.shapes[matrices(task)[-1]][0])
    with Key.from_seed(0).seeded():
        module = build()
    names = {name for name, _ in module.named_modules()}
    noise = {name: shape for name, shape in task.noise_shapes.items() if name.rpartition(".")[0] in names}
    drops = {part: float(module.get_submodule(part).p) for part in (n.rpartition(".")[0] for n in noise)}  # type: ignore[arg-type]
    return Task(
        build,
        task.loss,
        task.classes,
        noise,
        tuple(name for name in task.batch_norms if name in names),
        task.device,
        None if task.plan is None else plan_of(module, task.shape, task.loss, drops),
        EXIT,
        shape=task.shape,
        channels_last=task.channels_last & names,
    )


def check_sequential(task: Task, user: str) -> None:
    """Raise `SpecError` if the model is not one `nn.Sequential`."""
    with Key.from_seed(0).seeded():
        module = task.build()
    if type(module) is not nn.Sequential:
        raise SpecError(
            f"{user} needs a model that is one nn.Sequential; this one is a {type(module).__name__}"
        )


def _cut(build: Callable[[], nn.Module], end: str, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """The parts of the model before `end`, and an exit."""
    parts: list[tuple[str, nn.Module]] = []
    for name, part in build().named_children():
        if name == end:
            break
        parts.append((name, part))
    below = nn.Sequential(OrderedDict(parts))
    with torch.no_grad():
        found = below.eval()(torch.zeros(2, *shape))
    if found.dim() > 2:  # samples and features
        parts.append(("flatten_exit", nn.Flatten()))
    parts.append((EXIT.rstrip("."), nn.Linear(found.flatten(1).shape[1], outputs)))
    return nn.Sequential(OrderedDict(parts)).train()


def _layered(task: Task) -> list[str]:
    """The parts of the sequence that hold a matrix, in order."""
    return list(dict.fromkeys(_part(name) for name in matrices(task)))


def _part(name: str) -> str:
    return name.split(".", maxsplit=1)[0]
