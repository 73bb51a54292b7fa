"""Small convolutional networks from the literature."""

from __future__ import annotations

from torch import nn

from shoal.models.layers import Dropout, chain
from shoal.models.shapes import image, outputs


def lenet(shape: tuple[int, ...], classes: int) -> nn.Module:
    """LeNet: two 5x5 convolutions, three linear layers (62,006 parameters on CIFAR-10)."""
    channels, height, width = image("lenet", shape, min_side=16)
    flat = 16 * _lenet_side(height) * _lenet_side(width)
    return chain(
        conv1=nn.Conv2d(channels, 6, 5),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(6, 16, 5),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        fc1=nn.Linear(flat, 120),
        relu3=nn.ReLU(),
        fc2=nn.Linear(120, 84),
        relu4=nn.ReLU(),
        fc=nn.Linear(84, outputs("lenet", classes)),
    )


def _lenet_side(side: int) -> int:
    return ((side - 4) // 2 - 4) // 2


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """CNN of McMahan et al.: two 5x5 convolutions, 512 hidden units (1,663,370 parameters on MNIST)."""
    channels, height, width = image("cnn", shape, min_side=4)
    return chain(
        conv1=nn.Conv2d(channels, 32, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 5, padding=2),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        fc1=nn.Linear(64 * (height // 4) * (width // 4), 512),
        relu3=nn.ReLU(),
        fc=nn.Linear(512, outputs("cnn", classes)),
    )


def cnn_pfl(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3x3 convolutions with dropout, Xavier-uniform weights (1,626,442 parameters on CIFAR-10)."""
    channels, height, width = image("cnn_pfl", shape, min_side=6)
    module = chain(
        conv1=nn.Conv2d(channels, 32, 3),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 64, 3),
        relu2=nn.ReLU(),
        pool=nn.MaxPool2d(2),
        drop1=Dropout(0.25),
        flatten=nn.Flatten(),
        fc1=nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        relu3=nn.ReLU(),
        drop2=Dropout(0.5),
        fc=nn.Linear(128, outputs("cnn_pfl", classes)),
    )
    for layer in module:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return module


def cnn6(shape: tuple[int, ...], classes: int) -> nn.Module:
    """The six-layer CNN of SITUA-CQ, with dropout (1,341,226 parameters on CIFAR-10)."""
    channels, height, width = image("cnn6", shape, min_side=8)
    return chain(
        conv1=nn.Conv2d(channels, 32, 3, padding=1),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(32, 32, 3, padding=1),
        relu2=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        drop1=Dropout(0.5),
        conv3=nn.Conv2d(32, 64, 3, padding=1),
        relu3=nn.ReLU(),
        conv4=nn.Conv2d(64, 64, 3, padding=1),
        relu4=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        drop2=Dropout(0.5),
        conv5=nn.Conv2d(64, 128, 3, padding=1),
        relu5=nn.ReLU(),
        conv6=nn.Conv2d(128, 128, 3, padding=1),
        relu6=nn.ReLU(),
        pool3=nn.MaxPool2d(2),
        drop3=Dropout(0.5),
        flatten=nn.Flatten(),
        fc1=nn.Linear(128 * (height // 8) * (width // 8), 512),
        relu7=nn.ReLU(),
        fc=nn.Linear(512, outputs("cnn6", classes)),
    )


def sigmoid_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three 5x5 convolutions with sigmoids: the network on which DLG and iDLG were demonstrated."""
    channels, height, width = image("sigmoid_cnn", shape, min_side=4)
    module = chain(
        conv1=nn.Conv2d(channels, 12, 5, stride=2, padding=2),
        sigmoid1=nn.Sigmoid(),
        conv2=nn.Conv2d(12, 12, 5, stride=2, padding=2),
        sigmoid2=nn.Sigmoid(),
        conv3=nn.Conv2d(12, 12, 5, padding=2),
        sigmoid3=nn.Sigmoid(),
        flatten=nn.Flatten(),
        fc=nn.Linear(12 * -(-height // 4) * -(-width // 4), outputs("sigmoid_cnn", classes)),
    )
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return module
