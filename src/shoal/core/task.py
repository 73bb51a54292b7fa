"""What is learned: a model as pure functions of its weights, and the loss that judges it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from shoal.core.key import Key
from shoal.core.types import Weights

LossName = Literal["cross_entropy", "one_versus_all", "squared_error"]


class Loss(NamedTuple):
    """How outputs are judged: `each` gives [n, heads], `scores` what predictions and AUC are read from."""

    each: Callable[[Tensor, Tensor], Tensor]
    scores: Callable[[Tensor], Tensor]


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y, reduction="none")[:, None]


def _one_versus_all(outputs: Tensor, y: Tensor) -> Tensor:
    targets = (y[:, None] == torch.arange(outputs.shape[1], device=y.device)).to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - y[:, None]).square()


LOSSES: dict[LossName, Loss] = {
    "cross_entropy": Loss(_cross_entropy, lambda outputs: outputs.softmax(1)),
    "one_versus_all": Loss(_one_versus_all, torch.sigmoid),
    "squared_error": Loss(_squared_error, lambda outputs: outputs),
}


@dataclass(frozen=True)
class Task:
    """A model and its loss. Holds the model's structure only: weights are always an argument."""

    build: Callable[[], nn.Module]
    loss: LossName
    classes: int  # 0: a regression
    noise_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # for one sample, by buffer
    batch_norms: tuple[str, ...] = ()  # modules whose statistics come from the batch
    device: str = "cpu"
    _modules: dict[bool, nn.Module] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        with Key.from_seed(0).seeded():
            module = self.build().to(self.device)
        modules = {True: module.train(), False: copy.deepcopy(module).eval()}
        object.__setattr__(self, "_modules", modules)

    def init(self, key: Key) -> Weights:
        """Initial weights, drawn from the key."""
        with key.seeded():
            module = self.build().to(self.device)
        params = {name: value.detach().clone() for name, value in module.named_parameters()}
        buffers = {
            name: value.clone() for name, value in module.named_buffers() if name not in self.noise_shapes
        }
        return Weights(params, buffers)

    def forward(
        self, weights: Weights, x: Tensor, *, train: bool = False, noise: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Outputs [n, heads] and the buffers after the pass. Arguments are left as they are."""
        if train and weights.buffers:
            weights = weights._replace(
                buffers={name: value.clone() for name, value in weights.buffers.items()}
            )
        values = {**weights.params, **weights.buffers, **(noise or {})}
        return functional_call(self._modules[train], values, (x,)), weights.buffers

    def losses(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        """[n, heads]: the loss of each sample in each head, with the model in evaluation mode."""
        return LOSSES[self.loss].each(self.forward(weights, x)[0], y)

    def objective(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[]: what training descends: the mean over samples of the sum over heads."""
        return LOSSES[self.loss].each(outputs, y).sum(1).mean()

    def scores(self, outputs: Tensor) -> Tensor:
        """[n, heads]: probabilities; for a regression the predictions themselves."""
        return LOSSES[self.loss].scores(outputs)

    def noise(self, key: Key, count: int) -> dict[str, Tensor]:
        """The random numbers that one training step on `count` samples needs."""
        return {
            name: key.fold(name).uniform((count, *shape)).to(self.device)
            for name, shape in self.noise_shapes.items()
        }

    def module(self, weights: Weights) -> nn.Module:
        """An ordinary module in evaluation mode that holds these weights."""
        module = copy.deepcopy(self._modules[False])
        module.load_state_dict({**weights.params, **weights.buffers}, strict=True)
        return module
