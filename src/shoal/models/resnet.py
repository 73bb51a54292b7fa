"""ResNet-18 with a stem for small or for large images. Layers are named as in torchvision.

Convolutions have no bias with any norm, so that the norm does not change their names and sizes.
"""

from __future__ import annotations

from torch import Tensor, nn

from shoal.models.layers import Norm, chain, norm2d
from shoal.models.shapes import image, outputs


def resnet18(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """ResNet-18 for small images: 3x3 stem, no max pooling (11,173,962 parameters at 10 classes)."""
    channels, _, _ = image("resnet18", shape, min_side=1)
    stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    return _resnet18(stem, nn.Identity(), norm, outputs("resnet18", classes))


def resnet18_imagenet(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """ResNet-18 for large images: 7x7 stem of stride 2, max pooling (11,181,642 parameters at 10 classes)."""
    channels, _, _ = image("resnet18_imagenet", shape, min_side=1)
    stem = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return _resnet18(stem, pool, norm, outputs("resnet18_imagenet", classes))


class _Block(nn.Module):
    """Two 3x3 convolutions with a skip connection: a 1x1 convolution if the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)
        self.bn1 = norm2d(norm, outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = norm2d(norm, outer)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or inner != outer:
            short = nn.Conv2d(inner, outer, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(short, norm2d(norm, outer))

    def forward(self, x: Tensor) -> Tensor:
        inside: Tensor = self.bn1(self.conv1(x)).relu()
        outside: Tensor = self.bn2(self.conv2(inside)) + self.downsample(x)
        return outside.relu()


def _stage(inner: int, outer: int, stride: int, norm: Norm) -> nn.Module:
    return nn.Sequential(_Block(inner, outer, stride, norm), _Block(outer, outer, 1, norm))


def _resnet18(stem: nn.Module, pool: nn.Module, norm: Norm, wide: int) -> nn.Module:
    return chain(
        conv1=stem,
        bn1=norm2d(norm, 64),
        relu=nn.ReLU(),
        maxpool=pool,
        layer1=_stage(64, 64, 1, norm),
        layer2=_stage(64, 128, 2, norm),
        layer3=_stage(128, 256, 2, norm),
        layer4=_stage(256, 512, 2, norm),
        avgpool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(512, wide),
    )
