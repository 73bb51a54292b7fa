"""A task: a model as pure functions of its weights, and its loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.flat import Layout, flat
from shoal.core.key import Key
from shoal.core.types import Weights
from shoal.kernels.plan import Plan

LossName = Literal["cross_entropy", "one_versus_all", "squared_error"]


class Loss(NamedTuple):
    """A loss: `each` gives [n, heads] losses, `scores` the values that predictions and AUC come from."""

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


class ResidentModel:
    """A model that is trained in place, in the dtype and memory layout that are fastest for it.

    `values` are the float32 weights, which a step changes; with another dtype, `leaves` are their rounded
    copies, which the model computes with. Normalisation layers stay in float32.
    """

    def __init__(
        self,
        module: nn.Module,
        noise: Collection[str],
        frozen: Collection[str],
        dtype: torch.dtype,
        channels_last: Collection[str],
    ) -> None:
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self.module = module
        for name, part in module.named_modules():
            if name in channels_last:
                part.to(memory_format=torch.channels_last)
            elif channels_last and isinstance(part, nn.Conv2d):
                part.register_forward_pre_hook(_in_usual_layout)
        self._noise = {name: module.get_submodule(name.rpartition(".")[0]) for name in noise}
        self.values: dict[str, Tensor] = dict(_trained(module, frozen))
        self._dtype = dtype
        if dtype != torch.float32:
            self.values = {name: value.detach().clone() for name, value in self.values.items()}
            for part in module.modules():
                if isinstance(part, nn.Linear | nn.Conv2d):
                    part.to(dtype)
        self.leaves = _trained(module, frozen)
        self.buffers = {name: value for name, value in module.named_buffers() if name not in noise}

    def load(self, weights: Weights) -> None:
        """Copy the weights into the model."""
        with torch.no_grad():
            for mine, given in ((self.values, weights.params), (self.buffers, weights.buffers)):
                if mine:
                    torch._foreach_copy_(list(mine.values()), [given[name] for name in mine])
            self.round()

    def round(self) -> None:
        """Round the current values into the copies that the model computes with."""
        if self._dtype != torch.float32:
            torch._foreach_copy_(list(self.leaves.values()), list(self.values.values()))

    def forward(self, x: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        """[n, heads] float32: outputs in training mode; updates the buffers."""
        for name, part in self._noise.items():
            part.noise = noise[name].to(self._dtype)
        if x.dim() == 4:
            x = x.contiguous(memory_format=self._layout)
        outputs: Tensor = self.module(x.to(self._dtype) if x.is_floating_point() else x)
        return outputs.float()


def _in_usual_layout(layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The inputs of a convolution, which decide on the layout in which it is computed."""
    return tuple(value.contiguous() for value in args)


def _trained(module: nn.Module, frozen: Collection[str]) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    return {name: value for name, value in module.named_parameters() if name not in frozen}


@dataclass(frozen=True, eq=False)  # compared by identity: what is derived from it may be cached
class Task:
    """A model and its loss. Holds only the model's structure: weights are always an argument."""

    build: Callable[[], nn.Module]
    loss: LossName
    classes: int  # 0: regression
    noise_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # per sample, by buffer name
    batch_norms: tuple[str, ...] = ()  # names of the modules that normalise with batch statistics
    device: str = "cpu"
    plan: Plan | None = None  # set if the compiled kernels can train the model
    last: str | None = None  # name prefix of the final linear layer's parameters; None without one
    root: Callable[[int], Data] | None = None  # returns n of the server's own samples; None if it holds none
    frozen: Mapping[str, Tensor] = field(default_factory=dict)  # parameters that are neither trained nor sent
    shape: tuple[int, ...] = ()  # of one sample
    held: tuple[str, ...] = ()  # parameters that local training leaves unchanged
    channels_last: frozenset[str] = frozenset()  # the names of the convolutions computed in that layout
    _modules: dict[bool, nn.Module] = field(init=False, repr=False, compare=False)
    _shapes: dict[str, torch.Size] = field(init=False, repr=False, compare=False)
    _resident: dict[torch.dtype, ResidentModel] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _idle: list[nn.Module] = field(init=False, repr=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        with Key.from_seed(0).seeded():
            module = self.build().to(self.device)
        for name, value in self.frozen.items():
            module.get_parameter(name).requires_grad_(False).copy_(value)
        modules = {True: module.train(), False: copy.deepcopy(module).eval()}
        object.__setattr__(self, "_modules", modules)
        shapes = {name: value.shape for name, value in _trained(module, self.frozen).items()}
        object.__setattr__(self, "_shapes", shapes)

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """The shapes of the trained parameters, in the model's order."""
        return self._shapes

    @cached_property
    def layout(self) -> Layout:
        """How the trained parameters are stored in one vector."""
        return Layout(tuple(self._shapes), tuple(self._shapes.values()))

    def resident(self, dtype: torch.dtype) -> ResidentModel:
        """The resident copy of the model, in which all clients train: nothing is allocated per client."""
        if dtype not in self._resident:
            self._resident[dtype] = ResidentModel(
                copy.deepcopy(self._modules[True]), self.noise_shapes, self.frozen, dtype, self.channels_last
            )
        return self._resident[dtype]

    def init(self, key: Key) -> Weights:
        """Initial weights, drawn from the key."""
        with key.seeded():
            module = self.build().to(self.device)
        trained = _trained(module, self.frozen)
        params = flat({name: value.detach().clone() for name, value in trained.items()})
        buffers = {
            name: value.clone() for name, value in module.named_buffers() if name not in self.noise_shapes
        }
        return Weights(params, buffers)

    def forward(
        self, weights: Weights, x: Tensor, *, train: bool = False, noise: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Outputs [n, heads] and the buffers after the pass, in the dtype of the weights.

        Does not modify its arguments.
        """
        if x.is_floating_point():
            x = x.to(next(iter(weights.params.values())).dtype)
        if train and weights.buffers:
            weights = weights._replace(
                buffers={name: value.clone() for name, value in weights.buffers.items()}
            )
        values = {**weights.params, **weights.buffers, **(noise or {})}
        return functional_call(self._modules[train], values, (x,)), weights.buffers

    def features(self, weights: Weights, x: Tensor) -> Tensor:
        """[n, width]: the input of the last layer, with the model in evaluation mode."""
        found: list[Tensor] = []
        layer = self._modules[False].get_submodule(self._last.removesuffix("."))
        hook = layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
        try:
            self.forward(weights, x)
        finally:
            hook.remove()
        return found[0]

    def head(self, params: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """[n, heads]: the outputs of the last layer; for parameters of several models [models, n, heads]."""
        outputs = features @ params[f"{self._last}weight"].mT
        bias = params.get(f"{self._last}bias")
        return outputs if bias is None else outputs + bias.unsqueeze(-2)

    def head_of(self, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The last layer's weights [..., heads, width] and biases [..., heads]; zeros if it has no biases."""
        weight, bias = params[f"{self._last}weight"], params.get(f"{self._last}bias")
        return weight, weight.new_zeros(weight.shape[:-1]) if bias is None else bias

    @property
    def head_names(self) -> tuple[str, ...]:
        """The names of the last layer's parameters."""
        return tuple(name for name in self._shapes if name.startswith(self._last))

    @property
    def width(self) -> int:
        """The number of features that enter the last layer."""
        return self._shapes[f"{self._last}weight"][1]

    @property
    def _last(self) -> str:
        assert self.last is not None, "see check_head"
        return self.last

    def check_head(self, user: str) -> None:
        """Raise `SpecError` if the model does not end in a linear layer."""
        if self.last is None:
            raise SpecError(
                f"{user} needs a model that ends in a linear layer; "
                "end it with nn.Linear, or choose one of `shoal models`"
            )

    def check_softmax(self, user: str) -> None:
        """Raise `SpecError` if the outputs are not class logits."""
        if self.loss != "cross_entropy":
            raise SpecError(f"{user} needs a classifier with the loss cross_entropy, got {self.loss}")

    def losses(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        """[n, heads]: the loss of each sample in each head, with the model in evaluation mode."""
        return LOSSES[self.loss].each(self.forward(weights, x)[0], y)

    def objective(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[]: the training loss: the mean over samples of the sum over heads."""
        return LOSSES[self.loss].each(outputs, y).sum() / len(outputs)

    def scores(self, outputs: Tensor) -> Tensor:
        """[n, heads]: probabilities; for regression the predictions themselves."""
        return LOSSES[self.loss].scores(outputs)

    def noise(self, key: Key, count: int) -> dict[str, Tensor]:
        """The random numbers for one training step on `count` samples."""
        drawn = {name: key.fold(name).uniform((count, *shape)) for name, shape in self.noise_shapes.items()}
        return {name: value.to(self.device) for name, value in drawn.items()}

    def module(self, weights: Weights) -> nn.Module:
        """A regular `nn.Module` in evaluation mode with these weights."""
        module = copy.deepcopy(self._modules[False])
        module.load_state_dict({**self.frozen, **weights.params, **weights.buffers}, strict=True)
        return module

    @contextmanager
    def evaluating(self, weights: Weights) -> Iterator[nn.Module]:
        """A module like that of `module`, without gradients, for use within this block; it is reused later.

        Threads that evaluate at the same time get separate modules.
        """
        kept = self._idle.pop() if self._idle else copy.deepcopy(self._modules[False]).requires_grad_(False)
        mine = {**dict(kept.named_parameters()), **dict(kept.named_buffers())}
        given = {**weights.params, **weights.buffers}
        try:
            with torch.no_grad():
                torch._foreach_copy_([mine[name] for name in given], list(given.values()))
            yield kept
        finally:
            self._idle.append(kept)
