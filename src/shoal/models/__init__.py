"""The models, by name.

A model is a function of the shape of one sample and the number of classes (0 for regression). It returns an
`nn.Module` that draws no random numbers in its forward pass, and whose last layer is `fc`.
"""

from collections.abc import Callable

from torch import nn

from shoal.core.task import LossName
from shoal.models.convolutional import cnn, cnn6, cnn_pfl, lenet, sigmoid_cnn
from shoal.models.dense import linear, logistic_ova, mlp
from shoal.models.resnet import resnet18, resnet18_imagenet
from shoal.models.vgg import vgg16

MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "logistic_ova": logistic_ova,
    "mlp": mlp,
    "lenet": lenet,
    "cnn": cnn,
    "cnn_pfl": cnn_pfl,
    "cnn6": cnn6,
    "sigmoid_cnn": sigmoid_cnn,
    "resnet18": resnet18,
    "resnet18_imagenet": resnet18_imagenet,
    "vgg16": vgg16,
}

DEFAULT_LOSS: dict[str, LossName] = {"logistic_ova": "one_versus_all"}  # others follow the data

__all__ = ["DEFAULT_LOSS", "MODELS"]
