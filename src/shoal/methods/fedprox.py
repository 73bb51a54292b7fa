"""FedProx: FedAvg with a proximal term that keeps clients close to the model they were sent.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020,
Algorithm 2.

    client i:  w_i ~ argmin_w F_i(w) + (mu / 2) ||w - w_t||^2        -> `terms.proximal.Proximal`

Departures: the paper draws clients in proportion to their samples and averages uniformly; here, as in its
authors' code and in FedAvg, the selector draws the clients, and the mean is weighted by samples unless
`weights = "uniform"`. Fewer local epochs on slow devices are not part of this method.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.aggregators.aggregator import Aggregator, Weighting
from shoal.aggregators.mean import Mean
from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd
from shoal.terms.proximal import Proximal


@dataclass(frozen=True)
class FedProx(Recipe):
    """FedAvg with a proximal term that keeps clients close to the global model."""

    mu: float = 0.01
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"
    aggregator: Aggregator = field(default_factory=Mean)
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        Proximal(self.mu)  # checks mu

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(self.local, self.weights, (Proximal(self.mu),), self.aggregator, self.server)
