"""From a spec to a federation that can run."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from shoal.config import arguments, choose
from shoal.core.data import Dataset, Shards
from shoal.core.engine import ClientSide, stage
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.method import Method, Recipe
from shoal.core.selector import Population
from shoal.core.task import Task
from shoal.data.holdings import Simulated
from shoal.engines.local import LocalEngine, Mode, choose_mode, cores
from shoal.evaluation import Judge
from shoal.kernels.dense import plan_of
from shoal.loop import Federation
from shoal.models import DEFAULT_LOSS
from shoal.models.layers import batch_norms, last_linear, noise_shapes, own_dropout
from shoal.spec import DATASET, MODEL, EngineSpec, Spec, TaskSpec


class Setup(NamedTuple):
    """A federation, and what its numbers are judged and drawn by."""

    spec: Spec  # with what was left open decided
    federation: Federation
    dataset: Dataset
    shards: Shards
    side: ClientSide


def build(spec: Spec) -> Setup:
    """Everything that a run needs."""
    dataset, shards = deal(spec)
    dataset = moved(dataset, spec.engine.device)
    population = _population(spec, shards)
    spec.selector.check(len(population))
    task = make_task(spec.task, dataset, spec.engine.device)
    key = Key.from_seed(spec.seed)
    method = as_method(spec.method)
    _check_model(task, method)
    method.check(task)
    if spec.selector.by_samples and getattr(method, "weights", "uniform") == "samples":
        warnings.warn(
            "the selector draws clients by their samples, and the mean counts these once more; "
            'for an unbiased one set method.weights = "uniform"',
            stacklevel=2,
        )
    if method.needs_exact and not spec.codec.transparent:
        warnings.warn(f"with a lossy codec {method.needs_exact} in {spec.method_name}", stacklevel=2)
    holdings = Simulated(dataset, shards, key.fold("holdings"))
    attackers = spec.attack.members(len(shards), key.fold("attackers")) if spec.attack else frozenset()
    side = ClientSide(
        task, method, spec.selector, spec.codec, holdings, key, Judge(), spec.attack, attackers, spec.privacy
    )
    mode = resolve_mode(spec.engine, side, shards)
    engine = LocalEngine(side, shards, mode, spec.engine.workers or cores(), population)
    spec = replace(spec, engine=replace(spec.engine, mode=mode))
    if method.root_samples:  # clients have a task without it
        task = replace(task, root=holdings.root(method.root_samples))
    federation = Federation(task, method, spec.selector, engine, key, side.remembers)
    return Setup(spec, federation, dataset, shards, side)


def _population(spec: Spec, shards: Shards) -> Population:
    """The clients that take part at all."""
    everyone = range(len(shards))
    if spec.privacy is None or not spec.privacy.least:
        return everyone
    counts = shards.counts(everyone)
    large = tuple(client for client in everyone if counts[client] >= spec.privacy.least)
    if not large:
        raise SpecError(
            f"privacy.least = {spec.privacy.least}, but no client holds more than {max(counts)} samples; "
            "take a smaller number, or fewer clients"
        )
    return large


def resolve_mode(engine: EngineSpec, side: ClientSide, shards: Shards) -> Mode:
    """How the local engine visits clients."""
    if engine.mode == "auto":
        return "serial" if engine.device != "cpu" else choose_mode(side, shards)
    if engine.mode == "block" and engine.exact and not side.method.broadcasts(side.task):
        raise SpecError(
            '[engine] mode = "block" is not exact for this method and model; '
            'use mode = "auto", or exact = false'
        )
    return engine.mode


def deal(spec: Spec) -> tuple[Dataset, Shards]:
    """The data set, and who holds what of it."""
    dataset = load_dataset(spec.task)
    try:
        return dataset, spec.partition.split(dataset, Key.from_seed(spec.seed).fold("partition"))
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
    """The data set, checked."""
    loader = choose(DATASET, task.dataset, "task.dataset")
    dataset = _called(loader, "task.dataset", (), task.options)
    if not isinstance(dataset, Dataset):
        raise SpecError(
            f"task.dataset = {task.dataset!r} returned a {type(dataset).__name__}; "
            "it must return a shoal.Dataset"
        )
    dataset.check()
    return dataset


def make_task(spec: TaskSpec, dataset: Dataset, device: str = "cpu") -> Task:
    """The model, fitted to the data set's shapes, with the loss that suits both."""
    builder = choose(MODEL, spec.model, "task.model")
    build = partial(_module, builder, dataset.shape, dataset.classes, spec.options)
    with Key.from_seed(0).seeded():
        probe = build()
    natural = DEFAULT_LOSS.get(spec.model, "cross_entropy") if dataset.classes else "squared_error"
    loss = spec.loss or natural
    if (loss == "squared_error") != (dataset.classes == 0):
        kind = "a regression" if dataset.classes == 0 else f"a task of {dataset.classes} classes"
        raise SpecError(f"task.loss = {loss!r} does not fit {dataset.name}, {kind}; leave it out")
    with stage(f"task.model: {builder.__name__}", None, 0):
        noise, last = noise_shapes(probe, dataset.shape), last_linear(probe, dataset.shape)
    dense = plan_of(probe, dataset.shape, loss) if device == "cpu" else None
    return Task(build, loss, dataset.classes, noise, batch_norms(probe), device, dense, last)


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
    """Call a data set's or a model's function, with those of the options that are its own."""
    mine = {name: options[name] for name in arguments(function) if name in options}
    try:
        inspect.signature(function).bind(*given, **mine)
    except TypeError as error:
        wanted = "shape, classes and keyword options" if given else "nothing but keyword options"
        raise SpecError(f"{path}: {function.__name__} must take {wanted} ({error})") from None
    with stage(f"{path}: {function.__name__}", None, 0):
        return function(*given, **mine)


def _check_model(task: Task, method: Method) -> None:
    if task.batch_norms and method.batching is not None and method.batching.batch == 1:
        raise SpecError("[local] batch must be at least 2 for a model with BatchNorm, got 1")
    if not method.takes_buffers and (task.batch_norms or task.init(Key.from_seed(0)).buffers):
        raise SpecError(
            "this method cannot learn a model with BatchNorm or other buffers, which only training sets; "
            "use a model without, such as linear, logistic_ova or mlp"
        )
