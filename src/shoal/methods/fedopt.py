"""FedAdam, FedYogi and FedAdagrad: FedAvg with an adaptive optimizer at the server.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021,
Algorithm 2.

    clients:     as FedAvg
    server:      m <- beta1 m + (1 - beta1) D                       -> `server.adaptive.Adaptive`
    FedAdam:     v <- beta2 v + (1 - beta2) D^2                     -> `server.adaptive.ServerAdam`
    FedYogi:     v <- v - (1 - beta2) D^2 sign(v - D^2)             -> `server.adaptive.ServerYogi`
    FedAdagrad:  v <- v + D^2                                       -> `server.adaptive.ServerAdagrad`
    all three:   w <- w + lr m / (sqrt(v) + tau)                    -> `server.adaptive.Adaptive`

D is the step that FedAvg would take: the mean of w_i - w. Everything is per coordinate.

Departures: Algorithm 2 averages uniformly; here, as in the paper's experiments, the mean is weighted by
samples unless `weights = "uniform"`. v starts at tau^2, the smallest value that the paper allows. The paper
tunes the server's learning rate for each task; 0.03 was chosen for 10 to 60 rounds of a small task. Buffers
are averaged as in FedAvg.
"""

from __future__ import annotations

from shoal.methods.recipe import recipe
from shoal.server.adaptive import ServerAdagrad, ServerAdam, ServerYogi

RENAMED = {"lr": "server_lr"}  # not to be confused with the clients' learning rate

FedAdam = recipe("server", ServerAdam, renamed=RENAMED, name="FedAdam")
FedYogi = recipe("server", ServerYogi, renamed=RENAMED, name="FedYogi")
FedAdagrad = recipe("server", ServerAdagrad, renamed=RENAMED, name="FedAdagrad")
