"""Build a federation from a spec."""

from __future__ import annotations

import fnmatch
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shoal.config import arguments
from shoal.core.client import ClientData, ClientSide
from shoal.core.data import Dataset, Shards
from shoal.core.engine import Engine, Stage
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Axes, Method, Recipe
from shoal.core.task import Task
from shoal.core.threads import cores
from shoal.core.training import solver_of
from shoal.data.client_data import Simulated
from shoal.engines.local import LocalEngine, RemoteRunner
from shoal.engines.ray_actors import RayActors
from shoal.kernels.recognition import plan_of
from shoal.loop import Federation
from shoal.models import DEFAULT_LOSS
from shoal.models.layers import (
    batch_norms,
    channels_last,
    dropouts,
    last_linear,
    noise_shapes,
    own_dropout,
)
from shoal.round_clock import Deadline
from shoal.runs.crowd import check_population, fleet_of, timetable_of
from shoal.runs.evaluation import Evaluator
from shoal.runs.initial_weights import with_initial_weights
from shoal.runs.limits import check_memory, within_memory
from shoal.spec import Spec, TaskSpec
from shoal.task_parts import dataset_loader, model_builder, part_name


class Setup(NamedTuple):
    """A federation, and the data that it is trained and evaluated on."""

    spec: Spec  # with all automatic choices resolved
    federation: Federation
    dataset: Dataset | None  # None for a server without data
    shards: Shards
    side: ClientSide


class Samples(NamedTuple):
    """The properties of samples on which a model depends; a server without data knows only these."""

    name: str  # of the data set
    shape: tuple[int, ...]  # of one sample
    dtype: torch.dtype
    classes: int

    @classmethod
    def of(cls, dataset: Dataset) -> Samples:
        """The properties of a data set's samples."""
        return cls(dataset.name, dataset.shape, dataset.x_train.dtype, dataset.classes)


def build(spec: Spec, remote: RemoteRunner | None = None) -> Setup:
    """Build a simulation: the server and all clients on this machine, or the clients elsewhere."""
    dataset, shards = load_and_partition(spec)
    dataset = moved(dataset, spec.engine.device)
    timetable = timetable_of(spec, shards)
    most = max(len(timetable(round)) for round in (range(spec.rounds) if spec.arrivals else [0]))
    check_population(spec, most)
    _check_evaluation(spec, dataset.classes)
    task = make_task(spec, Samples.of(dataset))
    data = Simulated(dataset, shards, spec.seeds.key("partition", spec.seed).fold("holdings"))
    key = spec.seeds.key("order", spec.seed)
    attackers = spec.attack.members(len(shards), key.fold("attackers")) if spec.attack else frozenset()
    side = client_side(spec, task, data, attackers)
    fleet = fleet_of(spec, task, shards)
    if spec.engine.name == "flower" and remote is None:
        raise SpecError(
            "a run on engine flower cannot go on: its sites are gone; run it again, or on engine local"
        )
    if spec.engine.name == "ray":
        actors = partial(RayActors, address=spec.engine.address, count=spec.engine.workers)
        remote = RemoteRunner(actors)
    where = spec.engine
    engine = LocalEngine(
        side, shards, where.mode, where.workers or cores(), timetable, fleet, remote, where.timeout
    )
    own = replace(task, root=data.root)  # the clients' task has no access to the server's samples
    federation = server_side(spec, own, engine, most)
    return Setup(spec, federation, dataset, shards, side)


def client_side(
    spec: Spec, task: Task, data: ClientData, attackers: frozenset[int] = frozenset()
) -> ClientSide:
    """The parts that a client needs; it has access to its own data only."""
    method = as_method(spec.method)
    _check_batch(task, method)
    return ClientSide(
        task,
        method,
        spec.selector,
        spec.codec,
        data,
        _model_key(spec),
        Evaluator(),
        spec.attack,
        attackers,
        spec.privacy,
        tolerates_errors=spec.faults.on_error == "refuse",
    )


def server_side(spec: Spec, task: Task, engine: Engine, population: int) -> Federation:
    """The parts that a server needs; it has no data, unless its task has root samples."""
    method, selector = as_method(spec.method), spec.selector.sized(population)
    method.check(task, Axes(selector, spec.codec, population, spec.faults.over_select))
    remembers = method.remembers or spec.codec.for_direction("up").remembers
    key, model_key = spec.seeds.key("order", spec.seed), _model_key(spec)
    faults = spec.faults
    deadline = Deadline(math.inf if faults.deadline is None else faults.deadline, faults.over_select)
    return Federation(
        task,
        method,
        selector,
        engine,
        key,
        model_key,
        remembers,
        faults.min_replies,
        deadline,
        faults.rates,
    )


def _model_key(spec: Spec) -> Key:
    """The key of the initial weights, the same for server and clients."""
    return spec.seeds.key("model", spec.seed).fold("init")


def load_and_partition(spec: Spec) -> tuple[Dataset, Shards]:
    """The data set, and its partition among clients."""
    check_memory(spec)
    dataset = load_dataset(spec.task)
    try:
        key = spec.seeds.key("partition", spec.seed)
        return dataset, spec.partition.split(dataset, key.fold("partition"))
    except SpecError as error:
        raise SpecError(f"[partition] {error}") from None


def moved(dataset: Dataset, device: str) -> Dataset:
    """The data set on another device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise SpecError(f'engine.device = {device!r} cannot be used: {reason}; use "cpu"') from None
    names = ("x_train", "y_train", "x_test", "y_test")
    return replace(dataset, **{name: getattr(dataset, name).to(device) for name in names})


def as_method(entry: Method | Recipe) -> Method:
    """The method that a catalogue entry stands for."""
    return entry.method() if isinstance(entry, Recipe) else entry


def load_dataset(task: TaskSpec) -> Dataset:
    """The data set, with its tensors checked."""
    loader = dataset_loader(task.dataset)
    dataset = _called(loader, "task.dataset", (), task.options)
    if not isinstance(dataset, Dataset):
        raise SpecError(
            f"task.dataset = {part_name(task.dataset)!r} returned a {type(dataset).__name__}; "
            "it must return a shoal.Dataset"
        )
    dataset.check()
    return dataset


def make_task(spec: Spec, samples: Samples) -> Task:
    """The task: the model, built for the shape of the samples, with a matching loss."""
    builder, classes = model_builder(spec.task.model), samples.classes
    build = partial(_module, builder, samples.shape, classes, spec.task.options)
    if spec.task.init is not None:
        build = partial(with_initial_weights, build, Path(spec.task.init))
    with _model_key(spec).seeded():
        probe = build()
    natural = DEFAULT_LOSS.get(part_name(spec.task.model), "cross_entropy") if classes else "squared_error"
    loss = spec.task.loss or natural
    if (loss == "squared_error") != (classes == 0):
        kind = "a regression" if classes == 0 else f"a task of {classes} classes"
        raise SpecError(f"task.loss = {loss!r} does not fit {samples.name}, {kind}; leave it out")
    frozen = _frozen(probe, spec.task.frozen)
    with Stage(f"task.model: {builder.__name__}", None, 0):
        noise = noise_shapes(probe, samples.shape, samples.dtype)
        last = last_linear(probe, samples.shape, samples.dtype)
        go_last = channels_last(probe, samples.shape, samples.dtype)
    device = spec.engine.device
    whole = device == "cpu" and samples.dtype == torch.float32 and not frozen
    rates = {name: layer.p for name, layer in dropouts(probe).items()}
    plan = plan_of(probe, samples.shape, loss, rates) if whole else None
    last = None if last is not None and f"{last}weight" in frozen else last
    return Task(
        build,
        loss,
        classes,
        noise,
        batch_norms(probe),
        device,
        plan,
        last,
        frozen=frozen,
        shape=samples.shape,
        channels_last=go_last,
    )


def _frozen(module: nn.Module, patterns: Sequence[str]) -> dict[str, Tensor]:
    """The parameters that are not trained: those that match a pattern, or do not require gradients."""
    named = dict(module.named_parameters())
    for pattern in patterns:
        if not fnmatch.filter(named, pattern):
            raise SpecError(
                f"task.frozen = {pattern!r} matches no parameter of the model, which has {', '.join(named)}"
            )
    frozen = {
        name: value.detach().clone()
        for name, value in named.items()
        if not value.requires_grad or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }
    if len(frozen) == len(named):
        raise SpecError("task.frozen leaves no parameter to train; freeze fewer parameters")
    return frozen


def _module(
    builder: Callable[..., nn.Module], shape: tuple[int, ...], classes: int, options: Mapping[str, Any]
) -> nn.Module:
    module = _called(builder, "task.model", (shape, classes), options)
    if not isinstance(module, nn.Module):
        raise SpecError(
            f"the model function {builder.__name__} returned a {type(module).__name__}, not a module"
        )
    return own_dropout(module)


def _called(
    function: Callable[..., Any], path: str, given: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    """Call the function of a data set or model with the options that it has arguments for."""
    mine = {name: options[name] for name in arguments(function) if name in options}
    try:
        inspect.signature(function).bind(*given, **mine)
    except TypeError as error:
        wanted = "shape, classes and keyword options" if given else "nothing but keyword options"
        raise SpecError(f"{path}: {function.__name__} must take {wanted} ({error})") from None
    with within_memory(f"{path}: {function.__name__}"), Stage(f"{path}: {function.__name__}", None, 0):
        return function(*given, **mine)


def _check_evaluation(spec: Spec, classes: int) -> None:
    if spec.evaluate.finetune and solver_of(as_method(spec.method)) is None:
        raise SpecError(
            f"evaluate.finetune = {spec.evaluate.finetune} needs a method whose clients train, but those of "
            f"{spec.method_name} do not; set it to 0"
        )
    goal = spec.evaluate.stop_at
    if goal is not None and classes and not 0 < goal <= 1:
        cure = f"; for {goal:g} % write {goal / 100:g}" if 1 < goal <= 100 else ""
        raise SpecError(f"evaluate.stop_at must be an accuracy in (0, 1], got {goal:g}{cure}")


def _check_batch(task: Task, method: Method) -> None:
    if task.batch_norms and method.batching is not None and method.batching.batch == 1:
        raise SpecError("[local] batch must be at least 2 for a model with BatchNorm, got 1")
