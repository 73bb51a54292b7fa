"""The server optimizers, by name."""

from shoal.server.adaptive import ServerAdagrad, ServerAdam, ServerYogi
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd

SERVERS: dict[str, type[ServerOptimizer]] = {
    "sgd": ServerSgd,
    "adam": ServerAdam,
    "yogi": ServerYogi,
    "adagrad": ServerAdagrad,
}
