"""VGG-16 for small images."""

from __future__ import annotations

from torch import nn

from shoal.models.layers import Norm, chain, norm2d
from shoal.models.shapes import image, outputs

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # width, convolutions; pooling after each stage


def vgg16(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """VGG-16 with a single linear layer (14,728,266 parameters on CIFAR-10 with batch norm)."""
    channels, _, _ = image("vgg16", shape, min_side=32)
    layers: dict[str, nn.Module] = {}
    for stage, (width, depth) in enumerate(_STAGES, start=1):
        for place in range(1, depth + 1):
            layers[f"conv{stage}_{place}"] = nn.Conv2d(channels, width, 3, padding=1)
            layers[f"bn{stage}_{place}"] = norm2d(norm, width)
            layers[f"relu{stage}_{place}"] = nn.ReLU()
            channels = width
        layers[f"pool{stage}"] = nn.MaxPool2d(2)
    layers["avgpool"] = nn.AdaptiveAvgPool2d(1)  # for images larger than 32 x 32, more than one pixel remains
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(channels, outputs("vgg16", classes))
    return chain(**layers)
