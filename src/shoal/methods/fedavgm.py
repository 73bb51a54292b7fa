"""FedAvgM: FedAvg with momentum at the server.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
arXiv:1909.06335, 2019.

    clients:   as FedAvg
    server:    v <- beta v + D,   w <- w + lr v                                 -> `server.sgd.ServerSgd`

D is the step that FedAvg would take: the mean of w_i - w. With `momentum = 0` and `server_lr = 1` it is
FedAvg.

Departures: the paper's server has a learning rate of 1, and its experiments use Nesterov momentum; this is
the formula that the paper prints. Buffers have no momentum: they are averaged as in FedAvg.
"""

from __future__ import annotations

from shoal.methods.recipe import recipe
from shoal.server.sgd import ServerSgd

FedAvgM = recipe("server", ServerSgd, renamed={"lr": "server_lr"}, defaults={"momentum": 0.9}, name="FedAvgM")
