"""From tables to objects and back: the keys of a table are the arguments of a constructor.

Anything with typed arguments can be configured: frozen dataclasses and plain functions. A table chooses a
part by a tag (`name`, or `kind` for partitions): its name in the catalogue, or `package.module:object`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from shoal.core.errors import SpecError

MISSING = inspect.Parameter.empty
Table = dict[str, Any]

LARGEST_INTEGER = 2**63  # integers in a table must be smaller
LONGEST_SHOWN = 80  # characters of a name or a value in an error message

OTHER_WORDS = {  # names from other frameworks and papers, and the fields that they stand for
    "learning_rate": "lr",
    "batch_size": "batch",
    "local_epochs": "epochs",
    "num_clients": "clients",
    "num_rounds": "rounds",
    "alpha": "beta",
    "data": "dataset",
}


class Argument(NamedTuple):
    """One argument of a constructor."""

    type: Any
    default: Any  # MISSING if it is required


class Catalogue(NamedTuple):
    """Parts of one kind, by name."""

    kind: str
    entries: Mapping[str, Callable[..., Any]]
    tag: str = "name"
    implied: Mapping[str, str] = {}  # fields that say which part is meant, without its name
    protocol: type | tuple[type, ...] | None = None  # base class of its entries; None: they are functions

    def named(self, table: Table) -> Table:
        """The table with the name that its fields imply, if it has none."""
        names = [name for field, name in self.implied.items() if field in table]
        return {self.tag: names[0], **table} if names and self.tag not in table else table


def arguments(constructor: Callable[..., Any]) -> dict[str, Argument]:
    """The arguments that a table may set."""
    hints = _hints(constructor)
    if dataclasses.is_dataclass(constructor):
        defaults = {f.name: _default(f) for f in dataclasses.fields(constructor) if f.init}
        return {name: Argument(hints[name], default) for name, default in defaults.items()}
    options = [p for p in inspect.signature(constructor).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option.name not in hints:
            raise SpecError(f"the option {option.name} of {constructor.__name__} needs a type annotation")
    return {p.name: Argument(hints[p.name], p.default) for p in options}


@lru_cache(maxsize=1024)  # a spec needs the hints of the same few parts many times
def _hints(constructor: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(constructor)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return MISSING if field.default is dataclasses.MISSING else field.default


def read(
    constructor: Callable[..., Any], table: Any, path: str, catalogues: Mapping[Any, Catalogue], **given: Any
) -> Any:
    """The object that a table describes. `given` are arguments that are not in the table."""
    known = {name: a for name, a in arguments(constructor).items() if name not in given}
    if not isinstance(table, dict):
        raise SpecError(f"{path} must be a table, got {shown(table)}")
    for name in table:
        if name not in known:
            raise unknown(f"{path}.{name}", name, known, "key", prefix=f"{path}.")
    values = {
        name: convert(value, known[name].type, f"{path}.{name}", catalogues) for name, value in table.items()
    }
    for name, argument in known.items():
        if argument.default is MISSING and name not in values:
            raise SpecError(f"{path}.{name} is missing; give it a value")
    try:
        return constructor(**values, **given)
    except SpecError as error:
        raise SpecError(f"[{path}] {error}") from None


def choose(catalogue: Catalogue, name: Any, path: str) -> Callable[..., Any]:
    """The catalogue entry with that name, or the object that `package.module:object` refers to."""
    if not isinstance(name, str):
        raise SpecError(f"{path} must be the name of a {catalogue.kind}, got {shown(name)}")
    if name in catalogue.entries:
        return catalogue.entries[name]
    if ":" in name:
        return _imported(name, path, catalogue)
    raise unknown(name, name, catalogue.entries, catalogue.kind)


def _imported(name: str, path: str, catalogue: Catalogue) -> Callable[..., Any]:
    """Import the object with that name and check its kind; this runs nothing but its module."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise SpecError(f"{path} = {name!r} is a part of Python, not a {catalogue.kind}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may do anything while it is imported, even exit
        reason = str(error) if isinstance(error, ImportError | AttributeError) else repr(error)
        raise SpecError(
            f"{path} = {name!r} cannot be imported ({reason}); it must be package.module:object"
        ) from None
    if catalogue.protocol is None:
        right, wanted = isinstance(found, types.FunctionType | type), "a function or a class"
    else:
        right = isinstance(found, type) and issubclass(found, catalogue.protocol)
        wanted = f"a class of the kind {catalogue.kind}"
    if not right:
        raise SpecError(f"{path} = {name!r} is a {type(found).__name__}; it must be {wanted}")
    return typing.cast(Callable[..., Any], found)


def unknown(shown: str, name: str, valid: Collection[str], kind: str, prefix: str = "") -> SpecError:
    """An error for an unknown name that suggests the nearest valid one."""
    meant = OTHER_WORDS.get(name)
    near = [meant] if meant in valid else difflib.get_close_matches(name[:LONGEST_SHOWN], valid, 1, 0.6)
    shown = shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}..."
    cure = f"did you mean {prefix}{near[0]}?" if near else f"valid are: {', '.join(sorted(valid)) or 'none'}"
    return SpecError(f"unknown {kind} {shown}; {cure}")


def part(
    catalogue: Catalogue, table: Any, path: str, catalogues: Mapping[Any, Catalogue], **given: Any
) -> Any:
    """The part that is described by a table, or by its name alone."""
    table = {catalogue.tag: table} if isinstance(table, str) else table
    table = catalogue.named(table) if isinstance(table, dict) else table
    if not isinstance(table, dict) or catalogue.tag not in table:
        raise SpecError(f"{path} needs a {catalogue.tag}, one of: {', '.join(catalogue.entries)}")
    fields = {name: value for name, value in table.items() if name != catalogue.tag}
    constructor = choose(catalogue, table[catalogue.tag], f"{path}.{catalogue.tag}")
    taken = arguments(constructor)
    return read(
        constructor,
        fields,
        path,
        catalogues,
        **{name: value for name, value in given.items() if name in taken},
    )


def convert(value: Any, wanted: Any, path: str, catalogues: Mapping[Any, Catalogue]) -> Any:
    """`value` converted to the wanted type, or an error that says what it should be."""
    origin, options = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        if any(isinstance(value, option) for option in options if option in catalogues):
            return value  # a part that was given as an object
        inner, *words = (option for option in options if option is not type(None))
        known = [word for literal in words for word in typing.get_args(literal)]
        if isinstance(value, str) and known:  # a number, or one of a few words
            if value not in known:
                raise SpecError(
                    f"{path} must be {_spoken(inner)} or {' or '.join(known)}; got {shown(value)}"
                )
            return value
        return convert(value, inner, path, catalogues)
    if origin is Literal:
        if value not in options or isinstance(value, bool):
            raise SpecError(f"{path} must be one of {', '.join(map(str, options))}; got {shown(value)}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise SpecError(f"{path} must be a list, got {shown(value)}")
        return tuple(convert(v, options[0], f"{path}[{i}]", catalogues) for i, v in enumerate(value))
    if wanted in catalogues and not isinstance(value, wanted):
        return part(catalogues[wanted], value, path, catalogues)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type) and isinstance(value, dict):
        return read(wanted, value, path, catalogues)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= LARGEST_INTEGER:
            raise SpecError(
                f"{path} must be below 2^63, or written as 1e19; it has {value.bit_length()} bits"
            )
        return float(value)
    if value != value:
        raise SpecError(f"{path} must be a number, got nan")
    if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        raise SpecError(f"{path} must be below 2^63, got a number of {value.bit_length()} bits")
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise SpecError(f"{path} must be {_spoken(wanted)}, got {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value in an error message, shortened."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def _spoken(wanted: type) -> str:
    names = {int: "a whole number", float: "a number", str: "a string in quotes", bool: "true or false"}
    return names.get(wanted, "a table")


def write(value: Any, catalogues: Mapping[Any, Catalogue]) -> Any:
    """The inverse of `read` and `part`: plain tables, lists and scalars. Fields that are None are omitted."""
    if isinstance(value, list | tuple):
        return [write(item, catalogues) for item in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    table = tagged(value, catalogues)
    for name in arguments(type(value)):
        item = getattr(value, name)
        if item is not None:
            table[name] = write(item, catalogues)
    return table


def tagged(value: Any, catalogues: Mapping[Any, Catalogue]) -> Table:
    """The tag and name that a part's table starts with. Empty for objects that are in no catalogue."""
    for protocol, catalogue in catalogues.items():
        if isinstance(value, protocol):
            return {catalogue.tag: name_of(type(value), catalogue)}
    return {}


def name_of(constructor: type, catalogue: Catalogue) -> str:
    """The name of a class in the catalogue, or its import path."""
    names = [name for name, entry in catalogue.entries.items() if entry is constructor]
    return names[0] if names else f"{constructor.__module__}:{constructor.__qualname__}"
