"""FedAvg whose server has Nesterov's momentum, as in the experiments of Hsu, Qi, Brown 2019 (FedAvgM)."""

from dataclasses import dataclass, field

from shoal.extend import FedAvg, Recipe, ServerOptimizer, Sgd, zeros_like


@dataclass(frozen=True)
class Nesterov(ServerOptimizer):
    beta: float = 0.9

    def init(self, params):
        return zeros_like(params)

    def step(self, velocity, step):
        velocity = {**velocity, **{name: self.beta * velocity[name] + d for name, d in step.items()}}
        return velocity, {name: d + self.beta * velocity[name] for name, d in step.items()}


@dataclass(frozen=True)
class FedNesterov(Recipe):
    beta: float = 0.9
    local: Sgd = field(default_factory=Sgd)

    def method(self):
        return FedAvg(local=self.local, server=Nesterov(self.beta))
