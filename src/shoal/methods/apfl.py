"""APFL: every client uses a mixture of the global model and a personal model.

Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning, 2020, Algorithm 1.

    client i:  trains the global model w as in FedAvg and sends its update
               v_i <- v_i - lr grad_v F_i(alpha v_i + (1 - alpha) w), by SGD              -> `client_training`
               alpha_i <- alpha_i - lr <v_i - w, grad F_i(alpha_i v_i + (1 - alpha_i) w)>  -> `next_alpha`
               uses alpha_i v_i + (1 - alpha_i) w                                          -> `mixture`
    server:    as FedAvg

alpha_i changes only with `adaptive`. With w held fixed, a step of v_i at rate lr moves the mixture at rate
alpha^2 lr, so the mixture itself is trained, at that rate. With alpha = 1 the personal models are those of
`local`, and with alpha = 0 every client uses FedAvg's model, both bit for bit; the global model is always
FedAvg's.

Departures: the paper alternates steps of w and v_i. Here v_i is trained against the w that was sent, which is
the w of the mixture that the client uses; with one local step per round this is the paper's algorithm.
Weight decay acts on the mixture. A client trains twice as long as in FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start
from shoal.core.tree import elementwise
from shoal.core.types import Context, ModelUpdate, Reply, Weights
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


class APFLMemory(NamedTuple):
    """A client's memory: its personal model, with the buffers of the mixture, and that model's share."""

    model: Weights
    alpha: Tensor  # [] float64


@dataclass(frozen=True)
class APFL(AveragingMethod):
    """Runs FedAvg, and each client uses a mixture of the global model and a personal model."""

    alpha: float = 0.5  # share of the personal model in the mixture
    adaptive: bool = False  # whether each client learns its alpha
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise SpecError(f"alpha must be a share in [0, 1], got {self.alpha:g}; 0.5 is usual")

    @property
    def passes(self) -> float:
        """See `Method`."""
        return 2.0 * self.local.batching.epochs

    def client_init(self, task: Task, key: Key) -> APFLMemory:
        """See `Method`."""
        return APFLMemory(task.init(key), torch.tensor(self.alpha, dtype=torch.float64))

    def client_training(
        self, task: Task, memory: APFLMemory, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        trained = yield Start(message.model, self.terms)
        reply = Reply(ModelUpdate(trained.update(message.model)), data.weight, {"train_loss": trained.loss})
        if self.adaptive:
            rate = self.local.rate(context.round)
            memory = memory._replace(alpha=next_alpha(task, memory, message.model, data, rate))
        alpha = float(memory.alpha)
        if not alpha:
            return memory, reply
        start = mixture(alpha, memory.model, message.model)
        own = yield Start(start, self.terms, pace=alpha**2)
        if alpha == 1:
            return memory._replace(model=own.weights), reply
        moved = elementwise(lambda v, c: v + c / alpha, memory.model.params, own.update(start).params)
        return memory._replace(model=Weights(moved, own.weights.buffers)), reply

    def local_model(self, memory: APFLMemory, message: Any) -> Weights:
        """See `Method`."""
        return mixture(float(memory.alpha), memory.model, message.model)


def mixture(alpha: float, own: Weights, sent: Weights) -> Weights:
    """`alpha * own + (1 - alpha) * sent` for the parameters, with the buffers of `own`."""
    if not alpha:
        return sent
    if alpha == 1:
        return own
    params = elementwise(lambda v, w: alpha * v + (1 - alpha) * w, own.params, sent.params)
    return Weights(params, own.buffers)


def next_alpha(task: Task, memory: APFLMemory, sent: Weights, data: Data, rate: float) -> Tensor:
    """[] float64: alpha after one gradient step on the loss over all local samples."""
    share = memory.alpha.float().requires_grad_()
    params = elementwise(lambda v, w: share * v + (1 - share) * w, memory.model.params, sent.params)
    loss = task.losses(Weights(params, memory.model.buffers), *data.all).sum(1).mean()
    (slope,) = torch.autograd.grad(loss, share)
    return (memory.alpha - rate * slope.double()).clamp(0, 1)
