"""The diagonal of a model's Fisher information on a client's samples.

    F_j = mean_n (d log p(y_n | x_n) / d theta_j)^2                    GENE-FL, eq. 5    -> `fisher_diagonal`
    F^_j = (F_j - min F) / (max F - min F), over the whole model                         -> `normalised`

Gradients are squared sample by sample: the square of a batch's gradient would be a different quantity. For
linear and convolutional layers, one pass over all samples suffices, because a sample's gradient is the
product of the layer's input and the gradient at its output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from shoal.core.data import Data
from shoal.core.flat import Flat
from shoal.core.task import LOSSES, Task
from shoal.core.threads import parallel_map
from shoal.core.types import Weights

LARGEST_STACK = 2**24  # numbers in the gradients held at once, for all samples of a chunk together
CHUNK = 200  # samples in one pass through known layers


def fisher_diagonal(task: Task, weights: Weights, x: Tensor, y: Tensor) -> Flat:
    """F, by parameter, on the samples x [n, ...], y [n]; the model is in evaluation mode."""
    with task.evaluating(weights) as module:
        layers = _known_layers(module, task)
        size = CHUNK if layers else max(1, LARGEST_STACK // sum(task.layout.sizes))
        total = torch.zeros(sum(task.layout.sizes), dtype=torch.float64, device=x.device)
        sums = task.layout.tree(total)
        for some, labels in zip(torch.split(x, size), torch.split(y, size), strict=True):
            if layers:
                found = _in_one_pass(task, module, layers, some, labels)
            else:
                found = _one_by_one(task, module, weights, some, labels)
            for name, value in sums.items():
                value += found[name]
    return task.layout.tree(total.div_(len(x)).to(next(iter(weights.params.values())).dtype))


def fisher_diagonals(
    task: Task, weights: Sequence[Weights], data: Sequence[Data], threads: int
) -> list[Flat]:
    """F of several clients' models, each on all of its samples."""
    pairs = list(zip(weights, data, strict=True))
    return parallel_map(lambda pair: fisher_diagonal(task, pair[0], *pair[1].all), pairs, threads)


def normalised(fisher: Flat) -> Flat:
    """F^ in [0, 1]; all 0 if every parameter has the same F."""
    smallest, largest = (float(end) for end in fisher.vector.aminmax())
    return fisher.layout.tree((fisher.vector - smallest).div_((largest - smallest) or 1.0))


def _known_layers(module: nn.Module, task: Task) -> dict[str, nn.Module] | None:
    """The linear and convolutional layers by name, if all trained parameters are theirs, else None."""
    layers: dict[str, nn.Module] = {
        name: layer
        for name, layer in module.named_modules()
        if type(layer) is nn.Linear
        or (type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros")
    }
    held = {f"{name}.{part}" for name, layer in layers.items() for part, _ in layer.named_parameters()}
    uses = [id(value) for layer in layers.values() for value in layer.parameters()]
    return layers if task.shapes.keys() <= held and len(set(uses)) == len(uses) else None


def _in_one_pass(
    task: Task, module: nn.Module, layers: Mapping[str, nn.Module], x: Tensor, y: Tensor
) -> dict[str, Tensor]:
    """Sums of squared gradients over the samples."""
    entered: dict[str, Tensor] = {}
    left: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            entered[name], left[name] = inputs[0].detach(), output

        return hook

    hooks = [layer.register_forward_hook(keep(name)) for name, layer in layers.items()]
    try:
        outputs = module(x.detach().clone().requires_grad_())  # for a graph: no parameter requires gradients
    finally:
        for hook in hooks:
            hook.remove()
    loss = LOSSES[task.loss].each(outputs, y).sum()
    returned = torch.autograd.grad(loss, [left[name] for name in layers])
    found: dict[str, Tensor] = {}
    for (name, layer), back in zip(layers.items(), returned, strict=True):
        weight, bias = _squares(layer, entered[name], back)
        found[f"{name}.weight"], found[f"{name}.bias"] = weight, bias
    return found


def _squares(layer: nn.Module, entered: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the samples, in float64, of the squared gradients of a layer's weight and bias."""
    if isinstance(layer, nn.Linear):
        if entered.dim() == 2:
            back = back.double().square()
            return back.T @ entered.double().square(), back.sum(0)
        each = back.flatten(1, -2).mT @ entered.flatten(1, -2)  # summed over a sample's positions first
        return each.double().square().sum(0), back.flatten(1, -2).sum(1).double().square().sum(0)
    assert isinstance(layer, nn.Conv2d)
    patches = F.unfold(entered, layer.kernel_size, layer.dilation, _padding(layer), layer.stride)
    back = back.flatten(2)
    each = back @ patches.mT  # [n, out, in * kernel]
    return each.double().square().sum(0).view(layer.weight.shape), back.sum(2).double().square().sum(0)


def _padding(layer: nn.Conv2d) -> tuple[int, ...]:
    if isinstance(layer.padding, str):  # "valid", or "same", which torch allows for odd kernels of stride 1
        same = layer.padding == "same"
        return tuple(
            step * (size - 1) // 2 if same else 0
            for size, step in zip(layer.kernel_size, layer.dilation, strict=True)
        )
    return layer.padding


def _one_by_one(task: Task, module: nn.Module, weights: Weights, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Like `_in_one_pass`, but for any model: computes a gradient for each sample."""

    def loss(params: Mapping[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        values = {**params, **weights.buffers}
        outputs: Tensor = functional_call(module, values, (one[None],))
        return LOSSES[task.loss].each(outputs, label[None]).sum()

    each = vmap(grad(loss), in_dims=(None, 0, 0))(dict(weights.params), x, y)
    return {name: value.double().square().sum(0) for name, value in each.items()}
