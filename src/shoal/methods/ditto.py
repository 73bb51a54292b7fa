"""Ditto: besides the global model, every client trains a personal model that is pulled towards it.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021,
Algorithm 1.

    client i:  trains the global model w as in FedAvg and sends its update         -> `core.training.Training`
               v_i <- argmin_v F_i(v) + (lambda / 2) ||v - w||^2, by SGD from v_i  -> `parts.pull`
    server:    as FedAvg

The global model is FedAvg's, bit for bit. With `mu = 0` the personal models are those of `local`, also bit
for bit.

Departures: none in the algorithm. lambda is called `mu`, as in FedProx. Both models are trained on the same
mini-batches, so a client trains twice as long as in FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.averaging import AveragingMethod
from shoal.aggregators.mean import Mean
from shoal.core.data import Data
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Start
from shoal.core.types import Context, ModelUpdate, Reply, Weights
from shoal.parts.pull import pulled
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd
from shoal.terms.proximal import Proximal


@dataclass(frozen=True)
class Ditto(AveragingMethod):
    """Runs FedAvg, and each client also trains a personal model that is pulled towards the global one."""

    mu: float = 0.1
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    terms: tuple[Term, ...] = ()
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        Proximal(self.mu)  # checks mu

    @cached_property
    def _proximal(self) -> tuple[Term, ...]:
        return (*self.terms, Proximal(self.mu))

    @property
    def passes(self) -> float:
        """See `Method`."""
        return 2.0 * self.local.batching.epochs

    def client_init(self, task: Task, key: Key) -> Weights:
        """See `Method`. The client's personal model."""
        return task.init(key)

    def client_training(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        trained = yield Start(message.model, self.terms, only_update=True)
        reply = Reply(ModelUpdate(trained.update(message.model)), data.weight, {"train_loss": trained.loss})
        own = yield pulled(memory, message.model.params, self.mu, self.terms, self._proximal)
        return own.weights, reply

    def local_model(self, memory: Weights, message: Any) -> Weights:
        """See `Method`."""
        return memory
