"""A hundred clients with quadratic losses, whose local training has a closed form.

Client i has the loss sum_k (h_ik / 2) (w_k - a_ik)^2, and some steps of gradient descent on it lead from w to
a + (1 - lr h)^steps (w - a). So only the server of a method is at work, and a thousand rounds take seconds.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from toy import KEY

from shoal.core.types import Cohort, ModelMessage, ModelUpdate, Moment, Reply, Weights, message_for

CLIENTS = 100


class Quadratics:
    """These clients. Curvatures from `low` to 1, `uneven` between the clients; optima around 1."""

    def __init__(
        self,
        low: float = 0.1,
        uneven: float = 0.5,
        spread: float = 1.0,
        lr: float = 0.01,
        axes: int = 20,
        tensors: int = 1,
    ) -> None:
        rng = KEY.fold("hundred").numpy()
        noise = rng.normal(size=(CLIENTS, axes))
        self.curvatures = np.geomspace(low, 1, axes) * np.exp(uneven * noise - uneven**2 / 2)
        self.optima = 1 + spread * rng.normal(size=(CLIENTS, axes))
        self.shrink = (1 - lr * self.curvatures) ** 5
        self.names = [f"w{i}" for i in range(tensors)]
        self.best = (self.curvatures * self.optima).sum(0) / self.curvatures.sum(0)

    def excess(self, w: np.ndarray) -> float:
        """The mean loss of all clients above the smallest possible."""
        return float((self.curvatures.mean(0) * (w - self.best) ** 2).sum() / 2)

    def weights(self, w: np.ndarray) -> Weights:
        parts = np.split(w, len(self.names))
        return Weights({n: torch.from_numpy(p.copy()) for n, p in zip(self.names, parts, strict=True)}, {})

    def values(self, weights: Weights) -> np.ndarray:
        return np.concatenate([weights.params[name].numpy() for name in self.names])

    def reply(self, client: int, message: ModelMessage) -> Reply:
        way = self.optima[client] - self.values(message.model)
        update = self.weights((1 - self.shrink[client]) * way)
        return Reply(ModelUpdate(update), torch.tensor(1.0, dtype=torch.float64), {})

    def play(self, method: Any, rounds: int, seed: int = 0, cohort: int = 10) -> SimpleNamespace:
        """Some rounds from w = 0: the models after each, what was recorded, and the state at the end."""
        key, (_, axes) = KEY.fold("play", seed), self.optima.shape
        state = method.init(SimpleNamespace(init=lambda _: self.weights(np.zeros(axes))), key)
        models, records = [], []
        for r in range(rounds):
            here = key.fold("round", r)
            chosen = here.fold("select").numpy().choice(CLIENTS, cohort, replace=False)
            members = Cohort(tuple(chosen.tolist()), {}, CLIENTS)
            moment = Moment(r, 0, True, here.fold("server"))
            message = method.dispatch(None, state, members, moment)
            acc = method.begin(state, members)
            for position, client in enumerate(members.ids):
                mine = message_for(message, position)
                acc = method.fold(acc, client, mine, self.reply(client, mine))
            state, metrics = method.finish(None, state, acc, moment)
            models.append(self.values(state.model))
            records.append(metrics)
        return SimpleNamespace(models=np.array(models), records=records, state=state)

    def floor(self, method: Any, rounds: int = 150, seeds: int = 1, cohort: int = 10) -> float:
        """The excess loss in the mean over the last twenty rounds, and over seeds."""
        paths = [self.play(method, rounds, seed, cohort).models[-20:] for seed in range(seeds)]
        return float(np.mean([self.excess(w) for path in paths for w in path]))
