"""Adam, Yogi and Adagrad for the server: a separate step size for each coordinate.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021,
Algorithm 2.

    m_t = beta1 m_{t-1} + (1 - beta1) D_t                                       -> `Adaptive.step`
    v_t = beta2 v_{t-1} + (1 - beta2) D_t^2                                     -> `ServerAdam.second`
    v_t = v_{t-1} - (1 - beta2) D_t^2 sign(v_{t-1} - D_t^2)                     -> `ServerYogi.second`
    v_t = v_{t-1} + D_t^2                                                       -> `ServerAdagrad.second`
    x_{t+1} = x_t + lr m_t / (sqrt(v_t) + tau)                                  -> `Adaptive.step`

D_t is the aggregator's step; m starts at 0, and everything is per coordinate. tau limits how much small steps
are enlarged: x never moves by more than lr |m| / tau. There is no bias correction, as in the paper.

Departures: the paper requires v_{-1} >= tau^2; here it is tau^2. (The authors' code starts at 0, and uses
Keras' Adam, which has bias correction.) beta1, beta2 and tau are those of the paper's experiments, where
Adagrad has beta1 = 0. lr is not: the authors tune it for each task, in 10^-2.5 ... 1 for Adam and Yogi and
10^-1.5 ... 10 for Adagrad. The default of 0.03 was chosen for 10 to 60 rounds of a small task.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.errors import SpecError
from shoal.server.optimizer import ServerOptimizer, Step, check_lr


class Moments(NamedTuple):
    """The optimizer's state, by parameter, in float64."""

    first: Mapping[str, Tensor]  # m: running mean of the steps
    second: Mapping[str, Tensor]  # v: running size of their squares


class Adaptive(ServerOptimizer):
    """Algorithm 2, except for the update rule of v."""

    lr: float
    beta1: float
    tau: float

    @abstractmethod
    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """v_t, from v_{t-1} and D_t^2."""

    def init(self, params: Mapping[str, Tensor]) -> Moments:
        """See `ServerOptimizer`."""
        first = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in params.items()}
        return Moments(first, {name: torch.full_like(value, self.tau**2) for name, value in first.items()})

    def step(self, state: Moments, step: Step) -> tuple[Moments, Step]:
        """See `ServerOptimizer`."""
        first = {name: self.beta1 * state.first[name] + (1 - self.beta1) * d for name, d in step.items()}
        second = {name: self.second(state.second[name], d.square()) for name, d in step.items()}
        taken = {name: self.lr * first[name] / (second[name].sqrt() + self.tau) for name in step}
        return Moments({**state.first, **first}, {**state.second, **second}), taken


def check(lr: float, tau: float, **betas: float) -> None:
    """Raise `SpecError` for values outside the range of Algorithm 2."""
    check_lr(lr, "0.01 to 0.1 is usual")
    if not 0 < tau < math.inf:
        raise SpecError(f"tau must be > 0, got {tau:g}; the paper uses 0.001")
    for name, beta in betas.items():
        if not 0 <= beta < 1:
            raise SpecError(f"{name} must be in [0, 1), got {beta:g}; 0.9 to 0.99 is usual")


@dataclass(frozen=True)
class ServerAdam(Adaptive):
    """Adam at the server: divides each coordinate by the root of a running mean of its squares."""

    lr: float = 0.03
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check(self.lr, self.tau, beta1=self.beta1, beta2=self.beta2)

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """See `Adaptive`."""
        return self.beta2 * before + (1 - self.beta2) * square


@dataclass(frozen=True)
class ServerYogi(Adaptive):
    """Yogi at the server: like Adam, but small steps lower the running squares only slowly."""

    lr: float = 0.03
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check(self.lr, self.tau, beta1=self.beta1, beta2=self.beta2)

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """See `Adaptive`."""
        return before - (1 - self.beta2) * square * (before - square).sign()


@dataclass(frozen=True)
class ServerAdagrad(Adaptive):
    """Adagrad at the server: divides each coordinate by the root of the sum of its squares so far."""

    lr: float = 0.03
    beta1: float = 0.0
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check(self.lr, self.tau, beta1=self.beta1)

    def second(self, before: Tensor, square: Tensor) -> Tensor:
        """See `Adaptive`."""
        return before + square
