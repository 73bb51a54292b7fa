"""FedAvgM (Hsu, Qi, Brown 2019): FedAvg whose server keeps going the way that it came."""

from dataclasses import dataclass, field

from shoal.core.method import Recipe
from shoal.core.tree import add, subtract, tree_map, zeros_like
from shoal.methods.fedavg import FedAvg
from shoal.parts.aggregators import Aggregator, Mean
from shoal.parts.local import Sgd


@dataclass(frozen=True)
class Momentum(Aggregator):
    beta: float = 0.9

    def init(self, model):
        return zeros_like(model.params)

    def begin(self, velocity, model, cohort):
        return Mean().begin((), model, cohort)

    def fold(self, acc, client, sent, update, weight):
        return Mean().fold(acc, client, sent, update, weight)

    def finish(self, velocity, acc):
        _, mean, metrics = Mean().finish((), acc)
        step = subtract(mean.params, acc.model.params)
        velocity = tree_map(lambda v, s: self.beta * v + s, velocity, step)
        return velocity, mean._replace(params=add(acc.model.params, velocity)), metrics


@dataclass(frozen=True)
class FedAvgM(Recipe):
    beta: float = 0.9
    local: Sgd = field(default_factory=Sgd)

    def method(self):
        return FedAvg(local=self.local, aggregator=Momentum(self.beta))
