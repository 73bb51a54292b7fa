"""FedAMP: the server keeps a model for every client, mixed from the models of similar clients.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI
2021, Algorithm 1.

    server:    xi_ij = alpha A'(||w_i - w_j||^2),  A(x) = 1 - exp(-x / sigma)        -> `parts.attention`
               xi_ii = 1 - sum_j xi_ij;   u_i = sum_j xi_ij w_j                      eq. 5, 6
    client i:  w_i <- argmin_w F_i(w) + (lambda / (2 alpha)) ||w - u_i||^2,          eq. 7 -> `parts.pull`
               by SGD from its own last w_i

With `mu = 0` it is `local`, bit for bit; with any other mu it is not.

Departures: lambda / alpha is one field, `mu`. By default sigma is the median of the squared distances between
the models of a round, and alpha = sigma / (n - 1) for n models, which keeps every xi_ii nonnegative; if
another alpha would not, the row is scaled to the sum 1. BatchNorm statistics stay at the clients. A client
that has not taken part yet has the initial model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from shoal.core.data import Data
from shoal.core.errors import SpecError
from shoal.core.flat import in_one_vector
from shoal.core.key import Key
from shoal.core.task import Task
from shoal.core.term import Term
from shoal.core.training import Course, Training
from shoal.core.tree import add, subtract
from shoal.core.types import (
    Cohort,
    Context,
    Metrics,
    ModelMessage,
    ModelUpdate,
    Moment,
    PerClient,
    Reply,
    Weights,
)
from shoal.methods.local import Nothing
from shoal.parts.attention import attention, mixed_models, model_vectors, squared_distances, squared_lengths
from shoal.parts.pull import pulled
from shoal.solver.sgd import Sgd
from shoal.terms.proximal import Proximal

Params = Mapping[str, Tensor]


class FedAMPState(NamedTuple):
    """The server state: the initial model, which all clients share, and the last model of each client."""

    initial: Params
    models: Mapping[int, Tensor]  # [parameters] float32
    squares: Mapping[int, float]  # their squared distances from the initial model


@dataclass(frozen=True)
class FedAMP(Training):
    """Sends each client a mixture of similar clients' models, towards which its own model is pulled."""

    mu: float = 1.0  # lambda / alpha, the strength of the pull
    sigma: float | None = None  # in A(x); by default the median of the squared distances
    alpha: float | None = None  # by default sigma / (n - 1) for n models
    local: Sgd = field(default_factory=Sgd)
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        Proximal(self.mu)  # checks mu
        for name, value in (("sigma", self.sigma), ("alpha", self.alpha)):
            if value is not None and not 0 < value < math.inf:
                raise SpecError(f"{name} must be > 0, got {value:g}; leave it out for one that fits")

    @cached_property
    def _proximal(self) -> tuple[Term, ...]:
        return (*self.terms, Proximal(self.mu))

    # ---- server

    def init(self, task: Task, key: Key) -> FedAMPState:
        """See `Method`."""
        return FedAMPState(task.init(key).params, {}, {})

    def dispatch(self, task: Task, state: FedAMPState, cohort: Cohort, moment: Moment) -> ModelMessage:
        """See `Method`."""
        initial = _vector(state.initial)
        held = dict(sorted({**dict.fromkeys(cohort.ids, initial), **state.models}.items()))
        places = {client: place for place, client in enumerate(held)}
        own, origin = [places[client] for client in cohort.ids], initial.numpy()
        squares = np.array([state.squares.get(client, 0.0) for client in held])
        models = model_vectors(held.values())
        xi = attention(squared_distances(models, own, squares, origin), own, self.sigma, self.alpha)
        mixed, layout = mixed_models(xi, models, origin), in_one_vector(state.initial).layout  # eq. 6
        return ModelMessage(PerClient([Weights(layout.tree(row.to(task.device)), {}) for row in mixed]))

    def serve(self, state: FedAMPState, cohort: Cohort) -> Nothing:
        """See `Method`. Clients use their own models, so nothing is sent."""
        return Nothing()

    def begin(self, state: FedAMPState, cohort: Cohort) -> dict[int, Tensor]:
        """See `Method`."""
        return {}

    def fold(self, acc: dict[int, Tensor], client: int, sent: Any, reply: Reply) -> dict[int, Tensor]:
        """See `Method`."""
        return {**acc, client: _vector(add(sent.model.params, reply.payload.update.params))}

    def finish(
        self, task: Task, state: FedAMPState, acc: dict[int, Tensor], moment: Moment
    ) -> tuple[FedAMPState, Metrics]:
        """See `Method`."""
        origin = _vector(state.initial).numpy()
        squares = squared_lengths(acc.values(), origin)
        models = {**state.models, **acc}
        known = {**state.squares, **dict(zip(acc, squares, strict=True))}
        return FedAMPState(state.initial, dict(sorted(models.items())), dict(sorted(known.items()))), {}

    def model(self, state: FedAMPState) -> None:
        """See `Method`."""

    def models(self, state: FedAMPState) -> dict[str, Weights]:
        """See `Method`."""
        layout = in_one_vector(state.initial).layout
        return {f"client{client}": Weights(layout.tree(model), {}) for client, model in state.models.items()}

    # ---- client

    def client_init(self, task: Task, key: Key) -> Weights:
        """See `Method`. The client's personal model."""
        return task.init(key)

    def client_training(
        self, task: Task, memory: Weights, message: Any, data: Data, context: Context
    ) -> Course:
        """See `Training`."""
        sent = message.model.params
        trained = yield pulled(memory, sent, self.mu, self.terms, self._proximal)  # eq. 7
        own = trained.weights
        update = Weights(subtract(own.params, sent), {})
        return own, Reply(ModelUpdate(update), data.weight, {"train_loss": trained.loss})

    def local_model(self, memory: Weights, message: Any) -> Weights:
        """See `Method`."""
        return memory


def _vector(params: Params) -> Tensor:
    """[parameters] float32: a contiguous vector in CPU memory."""
    return in_one_vector(params).vector.detach().cpu().contiguous()
