"""Methods that are FedAvg with one slot filled by a part from a catalogue.

    krum = recipe("aggregator", Krum)        fedadam = recipe("server", ServerAdam)

Such a method has the fields of the part and FedAvg's other slots.

Departures: none of its own; see the part.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Mapping
from typing import Any, Literal

from shoal.aggregators.aggregator import Aggregator
from shoal.core.method import Recipe
from shoal.methods.fedavg import FedAvg

Slot = Literal["aggregator", "server"]


def recipe(
    slot: Slot,
    part: type,
    *,
    renamed: Mapping[str, str] | None = None,  # fields of the part that have another name in the method
    defaults: Mapping[str, Any] | None = None,  # of fields of the part, if the method's differ
    name: str = "",  # of the class; by default the part's name
) -> type[Recipe]:
    """FedAvg with this part in the slot, as a method. Assign it to a variable named like the class."""
    new_names, hints = renamed or {}, typing.get_type_hints(part)
    robust = issubclass(part, Aggregator)  # a robust rule does not trust sample counts that clients report
    own = {new_names.get(f.name, f.name): f for f in dataclasses.fields(part) if f.init}
    fields: list[Any] = [
        (called, hints[f.name], _default(f, (defaults or {}).get(f.name))) for called, f in own.items()
    ]
    shared = {f.name: f for f in dataclasses.fields(FedAvg) if f.name not in (slot, *own)}
    if issubclass(part, Aggregator) and not part.weighs:
        del shared["weights"]
    slots = typing.get_type_hints(FedAvg)
    fields += [
        (f.name, slots[f.name], _default(f, "uniform" if robust and f.name == "weights" else None))
        for f in shared.values()
    ]

    def filled(self: Any) -> FedAvg:
        made = part(**{f.name: getattr(self, called) for called, f in own.items()})
        others = {name: getattr(self, name) for name in ("local", *shared)}
        return FedAvg(**{"weights": "uniform", **others, slot: made})

    body = {"__doc__": part.__doc__, "__post_init__": filled, "method": filled}
    made: type[Recipe] = dataclasses.make_dataclass(
        name or part.__name__, fields, bases=(Recipe,), namespace=body, frozen=True
    )
    made.__module__ = sys._getframe(1).f_globals["__name__"]  # the module that will hold it, for pickling
    return made


def _default(field: dataclasses.Field[Any], other: Any) -> Any:
    if other is not None:
        return dataclasses.field(default=other)
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field(default=field.default)
