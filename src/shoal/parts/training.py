"""Clients that train the model they are sent: the half that most methods share.

A method adds its fields, `local` among them, and its server, whose state has a field `model`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from shoal.core.data import Batching, Data
from shoal.core.key import Key
from shoal.core.method import Method
from shoal.core.task import Task
from shoal.core.types import Cohort, Context, Memory, ModelMessage, ModelUpdate, Reply, Weights
from shoal.parts.local import Sgd
from shoal.parts.terms import Term


class Training(Method):
    """Sends the global model, and clients return how they changed it."""

    keeps: ClassVar[bool] = False

    local: Sgd
    terms: tuple[Term, ...] = ()  # of the loss

    def dispatch(self, task: Task, state: Any, cohort: Cohort, key: Key) -> ModelMessage:
        """See `Method`."""
        return ModelMessage(state.model)

    def model(self, state: Any) -> Weights:
        """See `Method`."""
        model: Weights = state.model
        return model

    @property
    def batching(self) -> Batching:
        """See `Method`."""
        return self.local.batching

    def broadcasts(self, task: Task) -> bool:
        """See `Method`."""
        return self.local.fuses(task, self.terms)

    def client_update(
        self, task: Task, memory: Memory, message: Any, data: Data, context: Context
    ) -> tuple[Memory, Reply]:
        """See `Method`."""
        trained = self.local.train(task, message.model, data, context, self.terms)
        payload = ModelUpdate(trained.update(message.model))
        return memory, Reply(payload, data.weight, {"train_loss": trained.loss})
