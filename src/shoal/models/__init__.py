"""The models, by the name that a spec gives them.

A model is a function of one sample's shape and the number of classes (0 for a regression). It returns a
plain `nn.Module` without randomness of its own, whose last layer is `fc`.
"""

from collections.abc import Callable

from torch import nn

from shoal.core.task import LossName
from shoal.models.convolutional import cnn, cnn6, cnn_pfl, lenet
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
    "resnet18": resnet18,
    "resnet18_imagenet": resnet18_imagenet,
    "vgg16": vgg16,
}

DEFAULT_LOSS: dict[str, LossName] = {"logistic_ova": "one_versus_all"}  # where the data alone does not tell

__all__ = ["DEFAULT_LOSS", "MODELS"]
