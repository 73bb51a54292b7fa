"""A spec: everything that determines the results of a run. All defaults are in its dataclasses."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import tomli_w

from shoal.aggregators.aggregator import Aggregator
from shoal.catalogues import CATALOGUES, METHOD
from shoal.codecs.raw import Raw
from shoal.config import (
    MISSING,
    OTHER_WORDS,
    Table,
    arguments,
    choose,
    convert,
    part,
    read,
    tagged,
    unknown,
    write,
)
from shoal.core.arrivals import Arrivals
from shoal.core.attack import Attack
from shoal.core.codec import Codec
from shoal.core.data import Partition
from shoal.core.devices import Devices
from shoal.core.errors import SpecError
from shoal.core.method import Method, Recipe
from shoal.core.privacy import Privacy
from shoal.core.selector import Selector
from shoal.core.task import LossName
from shoal.data import OWN
from shoal.data.partitions import Dirichlet, Natural
from shoal.devices.tiers import TierDevices
from shoal.methods.fedavg import FedAvg
from shoal.run_settings import Checkpoint, EngineSpec, Evaluate, Faults, Seeds, Sites
from shoal.selectors import SELECTORS
from shoal.selectors.uniform import Uniform
from shoal.solver.sgd import Sgd
from shoal.task_parts import options_of, part_name

PARTS = {
    "method": Method,
    "partition": Partition,
    "selector": Selector,
    "codec": Codec,
    "attack": Attack,
    "privacy": Privacy,
    "arrivals": Arrivals,
    "devices": Devices,
}
_OBJECTS = ("dataset", "model")  # fields of [task] that may be objects
LONGEST_SPEC = 2**20  # bytes
DEEPEST_SPEC = 20  # levels of tables and lists
MOST_ROUNDS = 10_000_000  # a record of this many rounds takes some gigabytes
TAGS = {name: CATALOGUES[protocol].tag for name, protocol in PARTS.items()}


@dataclass(frozen=True)
class TaskSpec:
    """The data set and the model. `options` are arguments of the functions that create them."""

    dataset: Any = "mnist5k"  # a name, or in Python a Dataset or a function that returns one
    model: Any = "mlp"  # a name, or in Python a module, a class, or a function that returns a module
    loss: LossName | None = None  # by default the one that fits the data set and the model
    frozen: tuple[str, ...] = ()  # parameters that are neither trained nor sent; `*` matches any text
    init: str | None = None  # a file with initial weights: .safetensors, or a state_dict saved by torch
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = options_of(self.dataset, self.model)
        if known is None:
            return
        for name in self.options:
            if name not in known:
                raise unknown(
                    f"task.{name}",
                    name,
                    {*known, "dataset", "model", "loss", "frozen", "init"},
                    "key",
                    prefix="task.",
                )
        filled = {name: self.options.get(name, argument.default) for name, argument in known.items()}
        for name, value in filled.items():
            if value is MISSING:
                raise SpecError(f"task.{name} is missing; give it a value")
            filled[name] = convert(value, known[name].type, f"task.{name}", CATALOGUES)
        object.__setattr__(self, "options", filled)


@dataclass(frozen=True)
class Spec:
    """A complete description of a run."""

    seed: int = 0
    rounds: int = 60
    task: TaskSpec = field(default_factory=TaskSpec)
    partition: Partition = field(default_factory=Dirichlet)
    method: Method | Recipe = field(default_factory=FedAvg)
    selector: Selector = None  # type: ignore[assignment]  # set below: the method's own, or uniform
    codec: Codec = field(default_factory=Raw)
    attack: Attack | None = None
    privacy: Privacy | None = None
    arrivals: Arrivals | None = None
    devices: Devices | None = None
    evaluate: Evaluate = field(default_factory=Evaluate)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    faults: Faults = field(default_factory=Faults)
    seeds: Seeds = field(default_factory=Seeds)
    sites: Sites | None = None
    engine: EngineSpec = field(default_factory=EngineSpec)

    def __post_init__(self) -> None:
        if cast(Any, self.selector) is None:
            usual = "all" if isinstance(self.partition, Natural) else "uniform"
            object.__setattr__(self, "selector", SELECTORS[self.method.selector or usual]())
        if self.devices is None and (self.method.asks_report or self.selector.asks_report):
            object.__setattr__(self, "devices", TierDevices())
        if self.seed < 0:
            raise SpecError(f"seed must be at least 0, got {self.seed}")
        if self.rounds < 1:
            raise SpecError(f"rounds must be at least 1, got {self.rounds}")
        if self.rounds > MOST_ROUNDS:
            raise SpecError(f"rounds must be at most {MOST_ROUNDS:,}, got {self.rounds:,}")

    @property
    def method_name(self) -> str:
        """The name of the method in the catalogue."""
        return str(to_table(self)["method"]["name"])


def to_table(spec: Spec) -> Table:
    """The spec as plain tables, with every default written out."""
    table: Table = write(spec, CATALOGUES)
    options = table["task"].pop("options")
    table["task"] |= options
    table["task"] |= {"dataset": part_name(spec.task.dataset), "model": part_name(spec.task.model)}
    method = table["method"]
    solver = method.get("inner", method).pop("local", None)  # if a method wraps another, the inner one's
    return table if solver is None else table | {"local": solver}


def from_table(table: Mapping[str, Any]) -> Spec:
    """The spec that plain tables describe. Parts may also be given as objects."""
    known = {f.name for f in fields(Spec)} | {"local"}
    for name in table:
        if name not in known:
            raise _unknown_key(name, known)
    method = _method(table.get("method", "fedavg"), table.get("local"))
    if method.selector and isinstance(table.get("selector", {}), dict):
        table = {**table, "selector": {"name": method.selector, **table.get("selector", {})}}
    values: dict[str, Any] = {"method": method}
    for name, value in table.items():
        if name == "task":
            values[name] = _task(value)
        elif name in ("seed", "rounds"):
            values[name] = convert(value, int, name, CATALOGUES)
        elif name not in ("method", "local"):
            argument = arguments(Spec)[name]
            if isinstance(value, dict):  # fields of a part may be given without its name
                default = Uniform() if name == "selector" else argument.default
                catalogue = CATALOGUES.get(argument.type)
                value = {**tagged(default, CATALOGUES), **(catalogue.named(value) if catalogue else value)}
            values[name] = convert(value, argument.type, name, CATALOGUES)
    if "partition" not in table and "task" in values and values["task"].dataset in [*OWN]:
        values["partition"] = Natural()  # the user's own data comes from sites
    return Spec(**values)


def _unknown_key(name: str, known: set[str]) -> SpecError:
    """An error that names the intended field, if a table has one with this name or the name it stands for."""
    nested = {
        "task": TaskSpec,
        "local": Sgd,
        "partition": Dirichlet,
        "selector": Uniform,
        "evaluate": Evaluate,
    }
    fields_of = {field: table for table, part in reversed(nested.items()) for field in arguments(part)}
    meant = OTHER_WORDS.get(name, name)
    if meant in fields_of:
        return SpecError(f"unknown key {name}; did you mean {fields_of[meant]}.{meant}?")
    return unknown(name, name, known, "key")


def _method(value: Any, solver: Any, path: str = "method") -> Method | Recipe:
    """The method, with the solver that `[local]` describes if it trains."""
    if isinstance(value, Method | Recipe):
        if solver is not None:
            raise SpecError(
                "a method given as an object has its own solver; set its field local, not [local]"
            )
        return value
    name = value if isinstance(value, str) else value.get("name") if isinstance(value, dict) else None
    if isinstance(value, dict) and name is None:
        value = {"name": "fedavg", **value}
    constructor = choose(METHOD, name or "fedavg", f"{path}.name")
    if "inner" in arguments(constructor):  # a method that wraps another, to which [local] belongs
        table = {"name": value} if isinstance(value, str) else value
        inner = _method(table.get("inner", "fedavg"), solver, f"{path}.inner")
        return part(METHOD, {**table, "inner": inner}, path, CATALOGUES)  # type: ignore[no-any-return]
    if "local" not in arguments(constructor):
        if solver is not None:
            raise SpecError(f"method {name} does not train on the client; remove [local]")
        return part(METHOD, value, path, CATALOGUES)  # type: ignore[no-any-return]
    local = read(Sgd, {} if solver is None else solver, "local", CATALOGUES)
    if isinstance(value, dict) and "aggregator" in value:
        value = {**value, "aggregator": _trained_alike(value["aggregator"], local)}
    return part(METHOD, value, path, CATALOGUES, local=local)  # type: ignore[no-any-return]


def _trained_alike(rule: Any, local: Sgd) -> Any:
    """Pass the clients' solver settings to an aggregator that trains, unless its table has its own."""
    table = {"name": rule} if isinstance(rule, str) else rule
    if not isinstance(table, dict) or "local" in table or "name" not in table:
        return rule
    known = arguments(choose(CATALOGUES[Aggregator], table["name"], "method.aggregator.name"))
    return {**table, "local": local} if "local" in known else rule


def _task(table: Any) -> TaskSpec:
    """Keys other than the fields of a task are options of the data set and the model."""
    if not isinstance(table, dict):
        raise SpecError(f"task must be a table, got {table!r}")
    own = {name: a for name, a in arguments(TaskSpec).items() if name != "options"}
    values = {
        name: value if name in _OBJECTS else convert(value, own[name].type, f"task.{name}", CATALOGUES)
        for name, value in table.items()
        if name in own
    }
    return TaskSpec(**values, options={name: value for name, value in table.items() if name not in own})


def load_table(path: Path) -> Table:
    """A spec file as plain tables."""
    try:
        if path.stat().st_size > LONGEST_SPEC:
            raise SpecError(f"{path} has more than {LONGEST_SPEC:,} bytes; a spec takes some hundred")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path} does not exist; give the path of a spec file in TOML") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path} is not valid TOML: {error}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number with thousands of digits
        raise SpecError(f"{path} is not a spec: {error}") from None
    if _depth(table) > DEEPEST_SPEC:
        raise SpecError(f"{path} is nested more than {DEEPEST_SPEC} levels deep; no spec is")
    return table


def _depth(table: Table) -> int:
    """The nesting depth of tables and lists, counted level by level: recursion might reach Python's limit."""
    levels, level = 0, list[Any]([table])
    while level := [
        inner
        for outer in level
        for inner in (outer.values() if isinstance(outer, dict) else outer)
        if isinstance(inner, dict | list)
    ]:
        levels += 1
        if levels > DEEPEST_SPEC:
            break
    return levels


def load_spec(path: str | Path) -> Spec:
    """The spec in a TOML file."""
    return from_table(load_table(Path(path)))


def dump_spec(spec: Spec) -> str:
    """The spec as TOML, with every default written out."""
    return tomli_w.dumps(to_table(spec))
