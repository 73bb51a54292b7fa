"""Models that flatten samples of any shape. As in all models, the last layer is `fc`."""

from __future__ import annotations

from torch import nn

from shoal.core.errors import SpecError
from shoal.models.layers import chain
from shoal.models.shapes import features, outputs


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One linear layer: linear or multinomial logistic regression."""
    return chain(flatten=nn.Flatten(), fc=nn.Linear(features("linear", shape), outputs("linear", classes)))


def logistic_ova(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One logistic regression per class (one-versus-all)."""
    if classes == 0:
        raise SpecError("logistic_ova needs classes, got a regression (classes = 0); use linear or mlp")
    wide = outputs("logistic_ova", classes)
    return chain(flatten=nn.Flatten(), fc=nn.Linear(features("logistic_ova", shape), wide))


def mlp(shape: tuple[int, ...], classes: int, *, hidden: int = 200) -> nn.Module:
    """Multilayer perceptron with two hidden ReLU layers (784-200-200-10 on MNIST)."""
    if hidden < 1:
        raise SpecError(f"mlp needs hidden >= 1, got {hidden}; for no hidden layer use linear")
    return chain(
        flatten=nn.Flatten(),
        fc1=nn.Linear(features("mlp", shape), hidden),
        relu1=nn.ReLU(),
        fc2=nn.Linear(hidden, hidden),
        relu2=nn.ReLU(),
        fc=nn.Linear(hidden, outputs("mlp", classes)),
    )
