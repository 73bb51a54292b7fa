"""The models that the compiled kernels can train. Kernels import this module, so it does not need torch."""

from __future__ import annotations

import math
from typing import NamedTuple

CROSS_ENTROPY, ONE_VERSUS_ALL, SQUARED_ERROR = 0, 1, 2

LOSS_CODES = {
    "cross_entropy": CROSS_ENTROPY,
    "one_versus_all": ONE_VERSUS_ALL,
    "squared_error": SQUARED_ERROR,
}


class DensePlan(NamedTuple):
    """A multilayer perceptron: linear layers with biases, and ReLU between them."""

    sizes: tuple[int, ...]  # of the input, then of each layer's output
    loss: int  # one of LOSS_CODES
    held: int = 0  # how many of the last layers are not trained
    fusion: int = 0  # length of lambda, if features are fused before the last layer: see `activations`

    @property
    def params(self) -> int:
        """The number of parameters, stored as lambda if there is one, W1 [out, in], b1, W2, b2, ..."""
        return self.fusion + sum(out * (into + 1) for into, out in zip(self.sizes, self.sizes[1:]))

    @property
    def inputs(self) -> int:
        """How many numbers a sample has."""
        return self.sizes[0]


class ConvLayer(NamedTuple):
    """A convolution with bias and ReLU, optionally with 2 x 2 max pooling; or with a sigmoid."""

    shape: tuple[int, int, int]  # of the input: channels, height, width
    channels: int  # of the output
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    pool: bool
    sigmoid: bool = False  # in place of ReLU; then there is no pool

    @property
    def params(self) -> int:
        """The number of parameters: W [out, in, height, width], b."""
        return self.channels * (self.shape[0] * math.prod(self.kernel) + 1)

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the output before the pool."""
        high, wide = (
            (side + 2 * pad - kernel) // step + 1
            for side, pad, kernel, step in zip(self.shape[1:], self.padding, self.kernel, self.stride)
        )
        return high, wide

    @property
    def output(self) -> tuple[int, int, int]:
        """The shape of the output."""
        high, wide = self.sides
        return (self.channels, high // 2, wide // 2) if self.pool else (self.channels, high, wide)


class Drop(NamedTuple):
    """Dropout after a hidden layer."""

    noise: str  # the name of its random numbers; "" without dropout
    rate: float  # the share that is dropped


class ConvPlan(NamedTuple):
    """Convolutions, then a multilayer perceptron on their output; dropout after any hidden layer."""

    convs: tuple[ConvLayer, ...]
    dense: DensePlan
    drops: tuple[Drop, ...]  # one for each convolution and each linear layer but the last

    @property
    def params(self) -> int:
        """The number of parameters, layer by layer."""
        return sum(layer.params for layer in self.convs) + self.dense.params

    @property
    def loss(self) -> int:
        """One of LOSS_CODES."""
        return self.dense.loss

    @property
    def inputs(self) -> int:
        """How many numbers a sample has."""
        return math.prod(self.convs[0].shape) if self.convs else self.dense.sizes[0]


Plan = DensePlan | ConvPlan


def without_head(plan: Plan) -> Plan:
    """The same network, but its last layer is not trained."""
    dense = dense_part(plan)._replace(held=1)
    return plan._replace(dense=dense) if isinstance(plan, ConvPlan) else dense


def with_fusion(plan: Plan, length: int) -> Plan | None:
    """The same network with fused features before its last layer; None if no layer comes before it."""
    dense = dense_part(plan)._replace(fusion=length)
    if len(dense.sizes) < 3 and not (isinstance(plan, ConvPlan) and plan.convs):
        return None
    return plan._replace(dense=dense) if isinstance(plan, ConvPlan) else dense


def dense_part(plan: Plan) -> DensePlan:
    """The dense layers at the end of the network."""
    return plan.dense if isinstance(plan, ConvPlan) else plan
