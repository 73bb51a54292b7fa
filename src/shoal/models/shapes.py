"""Checks of the data's shape before a model is built."""

from __future__ import annotations

from math import prod

from shoal.core.errors import SpecError


def features(name: str, shape: tuple[int, ...]) -> int:
    """The number of features of one sample."""
    if not shape or min(shape) < 1:
        raise SpecError(f"{name} needs at least one feature, got {shape}; give samples a shape such as (13,)")
    return prod(shape)


def image(name: str, shape: tuple[int, ...], min_side: int) -> tuple[int, int, int]:
    """(channels, height, width) of one sample; `min_side` is the smallest side that the pooling allows."""
    if len(shape) == 3 and min(shape[1:]) >= min_side and shape[0] >= 1:
        return shape[0], shape[1], shape[2]
    smallest = f"images of at least {min_side} x {min_side}"
    wanted = smallest if min_side > 1 else "images (channels, height, width)"
    raise SpecError(f"{name} needs {wanted}, got {shape}; {_cure(shape, min_side)}")


def outputs(name: str, classes: int) -> int:
    """The width of the last layer: the number of classes, or 1 for regression (0 classes)."""
    if classes < 0:
        raise SpecError(f"{name} needs classes >= 0, got {classes}; use 0 for a regression")
    return classes or 1


def _cure(shape: tuple[int, ...], min_side: int) -> str:
    if len(shape) == 2 and min(shape) >= min_side:  # a grey image without a channel axis
        return f"reshape to {(1, *shape)}, or use linear or mlp"
    if len(shape) == 3 and min(shape[1:]) >= 4:  # the two poolings of `cnn` need 4
        return "use cnn or resnet18"
    return "use linear or mlp"
