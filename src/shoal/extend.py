"""Everything that an extension of Shoal may derive from or call, in one place."""

from shoal.aggregators.aggregator import Aggregator, Outcome, Weighting, moved
from shoal.aggregators.averaging import Averaged, Averaging, AveragingMethod
from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, weighted
from shoal.aggregators.mean import Mean, WeightedSum
from shoal.core.arrivals import Arrivals
from shoal.core.attack import Attack, Knows, altered, in_unison, target, with_target
from shoal.core.codec import Codec, Packet
from shoal.core.data import Batch, Data, Dataset, Partition, Shards
from shoal.core.devices import Crowd, Devices, DeviceTable
from shoal.core.errors import DeclinedError, SpecError
from shoal.core.gate import Like, Some
from shoal.core.key import Key
from shoal.core.method import Axes, Gather, Method, Recipe
from shoal.core.population import Spans
from shoal.core.privacy import Privacy
from shoal.core.selector import Selector
from shoal.core.serialization import nbytes
from shoal.core.task import Task
from shoal.core.term import Step, Term
from shoal.core.trained import Trained
from shoal.core.training import ComputeLoss, Course, Solver, Start, Training, for_blocks
from shoal.core.tree import add, all_finite, leaves, subtract, tensors, tree_map, zeros_like
from shoal.core.types import (
    Cohort,
    Context,
    ModelMessage,
    ModelUpdate,
    Moment,
    PerClient,
    Reply,
    Weights,
)
from shoal.methods.fedavg import FedAvg
from shoal.methods.recipe import recipe
from shoal.server.optimizer import ServerOptimizer
from shoal.server.sgd import ServerSgd
from shoal.solver.sgd import Sgd

__all__ = [
    "Aggregator",
    "Arrivals",
    "Attack",
    "Averaged",
    "Averaging",
    "AveragingMethod",
    "Axes",
    "Batch",
    "Codec",
    "Cohort",
    "ComputeLoss",
    "Context",
    "Course",
    "Crowd",
    "Data",
    "Dataset",
    "Decision",
    "DeclinedError",
    "DeviceTable",
    "Devices",
    "FedAvg",
    "Gather",
    "Key",
    "Knows",
    "Like",
    "MatrixRule",
    "Mean",
    "Method",
    "ModelMessage",
    "ModelUpdate",
    "Moment",
    "Outcome",
    "Packet",
    "Partition",
    "PerClient",
    "Privacy",
    "Recipe",
    "Reply",
    "Selector",
    "ServerOptimizer",
    "ServerSgd",
    "Sgd",
    "Shards",
    "Solver",
    "Some",
    "Spans",
    "SpecError",
    "Start",
    "Step",
    "Task",
    "Term",
    "Trained",
    "Training",
    "UpdateMatrix",
    "WeightedSum",
    "Weighting",
    "Weights",
    "add",
    "all_finite",
    "altered",
    "for_blocks",
    "in_unison",
    "leaves",
    "moved",
    "nbytes",
    "recipe",
    "subtract",
    "target",
    "tensors",
    "tree_map",
    "weighted",
    "with_target",
    "zeros_like",
]
