"""FedProx: FedAvg with a spring between each client and the model that it was sent.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020,
Algorithm 2.

    client i:  w_i ~ argmin_w F_i(w) + (mu / 2) ||w - w_t||^2        -> `parts.terms.Proximal`

Departures: the paper samples clients in proportion to their samples and averages uniformly; here, as in its
authors' code and in FedAvg, sampling is the selector's and averaging is by samples unless
`weights = "uniform"`. The variable number of local epochs of slow devices belongs to the devices, not to
this method.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg
from shoal.parts.aggregators import Weighting
from shoal.parts.local import Sgd
from shoal.parts.terms import Proximal


@dataclass(frozen=True)
class FedProx(Recipe):
    """Keeps clients near the global model by a proximal term."""

    mu: float = 0.01
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "samples"

    def __post_init__(self) -> None:
        Proximal(self.mu)  # refuses a bad mu at once

    def method(self) -> FedAvg:
        """See `Recipe`."""
        return FedAvg(local=self.local, weights=self.weights, terms=(Proximal(self.mu),))
