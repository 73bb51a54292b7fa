"""Dropout that takes its random numbers as input, and functions that inspect the layers of a module."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from shoal.core.errors import SpecError

Norm = Literal["batch", "group", "none"]

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)

FEW_BESIDE_WEIGHTS = 0.02  # activations per sample and weight of a convolution; below, they count as few

_RANDOM = (
    nn.Dropout,  # matters for subclasses only: the class itself is replaced
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
    nn.RReLU,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
)
_RANDOM_IF_DROPPING = (nn.RNNBase, nn.MultiheadAttention)  # their dropout is an argument, not a module


class Dropout(nn.Module):
    """Dropout whose uniform random numbers are passed in, as the buffer `noise` of the input's shape.

    torch's version draws from the global generator, with which results would depend on the order in which
    clients run.
    """

    noise: Tensor

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise SpecError(f"dropout needs p in [0, 1), got {p}; values near 1 drop almost everything")
        self.p = p
        # Not persistent: noise is not part of the model, so it is neither saved, sent nor averaged.
        self.register_buffer("noise", torch.empty(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x` with a share `p` of its entries set to 0 and the others scaled up; in evaluation mode `x`."""
        if not self.training or x.numel() == 0:
            return x
        if self.noise.shape != x.shape:  # broadcasting would silently drop whole rows or channels
            raise RuntimeError(
                f"dropout in training mode needs noise of shape {tuple(x.shape)}, "
                f"got {tuple(self.noise.shape)}; draw uniform numbers for every name in "
                "noise_shapes(module, shape) and pass them to functional_call, or call module.eval()"
            )
        return x * ((self.noise >= self.p).to(x.dtype) * (1 / (1 - self.p)))

    def extra_repr(self) -> str:
        """See `nn.Module`."""
        return f"p={self.p}"


def dropouts(module: nn.Module) -> dict[str, Dropout]:
    """The `Dropout` layers, by qualified name."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, Dropout)}


def noise_shapes(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> dict[str, tuple[int, ...]]:
    """The name of each noise buffer and its shape for one sample, found by a dry run.

    `shape` and `dtype` are those of one sample. The module is not changed.
    """
    layers = dropouts(module)
    if not layers:
        return {}
    found: dict[str, tuple[int, ...]] = {}
    hooks = [layer.register_forward_hook(partial(_note, found, name)) for name, layer in layers.items()]
    _dry_pass(module, shape, dtype, hooks)
    return found


def last_linear(module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> str | None:
    """The name prefix of the linear layer that the model ends in, found by a dry run.

    "fc." for a last layer fc; None if the model does not end in a linear layer.
    """
    layers = {name: part for name, part in module.named_modules() if type(part) is nn.Linear}
    made: dict[str, Tensor] = {}
    hooks = [layer.register_forward_hook(partial(_keep, made, name)) for name, layer in layers.items()]
    outputs = _dry_pass(module, shape, dtype, hooks)
    return next((f"{name}." if name else "" for name, out in made.items() if out is outputs), None)


def channels_last(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> frozenset[str]:
    """The names of the convolutions that are faster with channels last, found by a dry run.

    In that layout, every step first reorders the weights. Where a layer has few activations per sample
    compared with its weights, as the deep ones of a network on small images, this takes longer than it saves.
    """
    layers = {name: part for name, part in module.named_modules() if isinstance(part, nn.Conv2d)}
    made = dict.fromkeys(layers, 0)

    def count(name: str, layer: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        made[name] += out[0].numel()

    hooks = [layer.register_forward_hook(partial(count, name)) for name, layer in layers.items()]
    _dry_pass(module, shape, dtype, hooks)
    enough = {name: FEW_BESIDE_WEIGHTS * layer.weight.numel() for name, layer in layers.items()}
    return frozenset(name for name, numbers in made.items() if numbers >= enough[name])


def _keep(made: dict[str, Tensor], name: str, layer: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
    made[name] = out


def _dry_pass(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, hooks: Sequence[RemovableHandle]
) -> Any:
    """The outputs of the module for samples of zeros. Removes the hooks and leaves the module unchanged."""
    modes = [(part, part.training) for part in module.modules()]
    like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    try:
        module.eval()
        with torch.no_grad():
            dtype = like.dtype if dtype.is_floating_point else dtype
            return module(torch.zeros(_DRY_ROWS, *shape, dtype=dtype, device=like.device))
    finally:
        for hook in hooks:
            hook.remove()
        for part, mode in modes:  # one by one: a user may have put some of them into eval mode
            part.training = mode


_DRY_ROWS = 2  # not 1, which could be confused with another axis of length 1


def _note(
    found: dict[str, tuple[int, ...]], name: str, layer: nn.Module, args: tuple[Any, ...], out: Tensor
) -> None:
    where = f"{name}.noise" if name else "noise"
    if where in found:
        raise SpecError(f"dropout {name!r} is used twice in one pass; use a separate layer for each place")
    if out.dim() == 0 or out.shape[0] != _DRY_ROWS:
        raise SpecError(
            f"dropout {name!r} gets {tuple(out.shape)} for {_DRY_ROWS} samples; "
            "use it where the first axis is the batch"
        )
    found[where] = tuple(out.shape[1:])


def own_dropout(module: nn.Module) -> nn.Module:
    """Replace every `nn.Dropout` in `module` by `Dropout`, in place; refuse other random layers.

    Use the returned module: it is a new one if `module` is itself an `nn.Dropout`. Calls of
    `torch.nn.functional.dropout` in a forward pass cannot be detected.
    """
    # Include duplicates: a layer registered under two names is used in two places, which need separate noise.
    parts = list(module.named_modules(remove_duplicate=False))
    for name, part in parts:
        if _draws(part):
            raise SpecError(
                f"{name or 'the model'} is a {type(part).__name__}, which draws from torch's global "
                "generator; use nn.Dropout or shoal.models.layers.Dropout instead"
            )
    for name, part in parts:
        if type(part) is not nn.Dropout:
            continue
        own = Dropout(part.p).train(part.training)
        if not name:
            return own
        parent, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(parent), leaf, own)
    return module


def _draws(part: nn.Module) -> bool:
    if isinstance(part, _RANDOM_IF_DROPPING):
        return part.dropout > 0
    return isinstance(part, _RANDOM) and type(part) is not nn.Dropout


def batch_norms(module: nn.Module) -> tuple[str, ...]:
    """Names of the layers that normalise with batch statistics, found by type."""
    return tuple(name for name, part in module.named_modules() if _mixes_samples(part))


def _mixes_samples(part: nn.Module) -> bool:
    return isinstance(part, _BATCH_NORMS) or (isinstance(part, _INSTANCE_NORMS) and part.track_running_stats)


def norm2d(kind: Norm, channels: int) -> nn.Module:
    """A normalisation layer for image models; for `none` an identity, so that layer names stay the same."""
    if kind not in _NORM_LAYERS:
        raise SpecError(f"norm must be one of {', '.join(_NORM_LAYERS)}, got {kind!r}")
    return _NORM_LAYERS[kind](channels)


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(min(32, channels), channels)


def _no_norm(channels: int) -> nn.Module:
    return nn.Identity()


_NORM_LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": _group_norm,
    "none": _no_norm,
}


def chain(**layers: nn.Module) -> nn.Sequential:
    """`nn.Sequential` with named layers."""
    return nn.Sequential(OrderedDict(layers))
