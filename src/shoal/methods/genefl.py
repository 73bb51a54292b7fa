"""GENE-FL: clusters of clients exchange only their most stable layers, from which newcomers start.

Guo, Lv, Wang, Geng: GENE-FL: Gene-Driven Parameter-Efficient Dynamic Federated Learning.

    clients are grouped by the subspaces of their samples               eq. 11, 12    -> `PerCluster`
    each cluster exchanges a learnGene                                  eq. 3 to 10   -> `Gene`
    a newcomer starts from the learnGene of the nearest cluster         Alg. 2        -> `Gene.serve`

A client keeps its last model; with `start = "mixed"` it continues from that model after replacing the layers
of the cluster's current learnGene by the cluster's.

Departures: where the paper contradicts itself or leaves something open, the choices are:
- The learnGene consists of the most stable layers, as eq. 9 and its mask say; one sentence of the text says
  the opposite. Scores by distance are ranked accordingly.
- As printed, the gradient of eq. 8 is zero: it compares the previous model with the cluster's. Here the
  current model takes the place of the previous one.
- Eq. 6 constrains parameters of low Fisher information, the abstract those of high. `mask = "high"` is the
  default, `"low"` the printed form.
- The norms are not squared; 1e-12 is added under the root, which has no gradient at 0. "Strength by
  parameter size" has no formula: `strength = "layer"` divides a layer's norm by the root of its size.
- lambda1 = 0.05 instead of 0.5, because the constant pull of 0.5 keeps a model where it is.
- gamma has no value in the paper. By default the most stable layers within a quarter of the model's bytes
  are sent (`budget`). Its "performance-based" decrease has no rule: with `adaptive`, a cluster begins with
  all layers and drops one per round as long as its clients' training loss stays within `tolerance` of the
  best so far.
- Newcomers get the learnGene without the classifier (`head`). Their other layers have the common initial
  weights, so that they can still be averaged. In their first round they send only layers that they were sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from shoal.aggregators.aggregator import Weighting
from shoal.core.method import Recipe
from shoal.core.term import Term
from shoal.methods.gene import Gene
from shoal.methods.per_cluster import PerCluster
from shoal.parts.clusters import Rule
from shoal.parts.layer_scores import Score
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd


@dataclass(frozen=True)
class GeneFL(Recipe):
    """Clusters clients, which exchange only their most stable layers; newcomers start from these."""

    clusters: int = 4
    lambda1: float = 0.05
    lambda2: float = 0.05
    epsilon: float = 0.5
    score: Score = "cos_over_dim"
    gamma: int | None = None
    budget: float | None = None
    start: Literal["mixed", "own", "cluster"] = "mixed"
    head: bool = False
    mask: Literal["high", "low"] = "high"
    strength: Literal["model", "layer"] = "model"
    adaptive: bool = False
    tolerance: float = 0.02
    clustering: Rule = "kmeans"
    rank: int = 5
    local: Sgd = field(default_factory=Sgd)
    weights: Weighting = "uniform"
    terms: tuple[Term, ...] = ()
    server: ServerOptimizer = field(default_factory=ServerSgd)

    def __post_init__(self) -> None:
        self.method()  # checks the values

    def method(self) -> PerCluster:
        """See `Recipe`."""
        gene = Gene(**{f.name: getattr(self, f.name) for f in fields(Gene)})
        return PerCluster(gene, self.clusters, self.rank, self.clustering)
