"""The uploads that an audit examines: names of methods, alone or with a codec or noise, turned into specs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from shoal.audit.examination import examine
from shoal.audit.inversion import ATTACKS, AttackName
from shoal.catalogues import METHOD
from shoal.codecs import CODECS
from shoal.config import Table, arguments, choose, unknown
from shoal.core.errors import SpecError
from shoal.overrides import with_method, with_settings
from shoal.privacy import PRIVACY
from shoal.spec import Spec, from_table

VICTIMS = "shoal.audit.victims:Victims"
LARGEST = 64  # samples per victim

QUICK: Table = {  # used without a spec; with a learning rate of 1, the update of one step is the gradient
    "task": {"dataset": "mnist5k", "crop": True, "model": "sigmoid_cnn"},
    "local": {"lr": 1.0},
}
UPLOADS = (
    "fedavg",
    "genefl:gamma=6",
    "genefl",
    "fedsvd",
    "fedavg+uniform:bits=8",
    "fedavg+uniform:bits=4",
    "fedavg+top_k",
    "fedavg+sign",
    "fedavg+gaussian:noise=0.0316",
)


class Case(NamedTuple):
    """An upload to be examined."""

    label: str
    spec: Spec
    measure: partial[dict[str, Any]]  # of the run's result


class Options(NamedTuple):
    """The options of an audit."""

    images: int = 10
    samples: int = 1
    steps: int = 1
    attack: AttackName = "auto"
    iterations: int = 300
    restarts: int = 2

    def check(self) -> None:
        """Raise `SpecError` for invalid options."""
        for name in ("images", "samples", "steps", "iterations", "restarts"):
            if getattr(self, name) < 1:
                raise SpecError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.samples > LARGEST:
            raise SpecError(
                f"--samples must be at most {LARGEST}, got {self.samples}; few of so many are found"
            )
        if self.attack not in ATTACKS:
            raise unknown(self.attack, self.attack, ATTACKS, "attack")


def plan(uploads: Sequence[str], table: Table, settings: Sequence[str], options: Options) -> list[Case]:
    """The cases of an audit, checked before the first one starts; without uploads, the spec's own."""
    options.check()
    if len(set(uploads)) < len(uploads):
        raise SpecError(f"every upload must be named once, got {', '.join(uploads)}")
    measure = partial(
        examine, attack=options.attack, iterations=options.iterations, restarts=options.restarts
    )
    base = with_settings(_reduced(table), settings)
    tables = {label: _with_parts(base, label) for label in uploads} or {"the spec": base}
    cases = []
    for label, chosen in tables.items():
        spec = from_table(_of_victims(chosen, options))
        cases.append(Case(spec.method_name if label == "the spec" else label, spec, measure))
    return cases


def names(text: str) -> list[str]:
    """The names of a comma-separated list; commas within fields are not separators."""
    return [name.strip() for name in re.split(r",(?!\s*[A-Za-z_][\w.]*=)", text) if name.strip()]


def _reduced(table: Table) -> Table:
    """The tables that determine the uploads, without those for participation and evaluation."""
    kept = ("seed", "seeds", "task", "method", "local", "codec", "privacy", "devices")
    return {name: value for name, value in table.items() if name in kept}


def _with_parts(table: Table, label: str) -> Table:
    """The table with the method of a label such as `fedavg+qsgd:bits=4`, and its codec or noise."""
    first, *others = label.split("+")
    bare = {name: value for name, value in table.items() if name not in ("codec", "privacy")}
    name, fields = _split(first, "method")
    chosen = with_settings(with_method(bare, name), fields)
    for other in others:
        name, fields = _split(other, "")
        kind = "codec" if name in CODECS else "privacy"
        if name not in CODECS and name not in PRIVACY:
            raise unknown(name, name, {*CODECS, *PRIVACY}, "codec or noise")
        chosen = with_settings({**chosen, kind: {"name": name}}, [f"{kind}{field}" for field in fields])
    return chosen


def _split(label: str, table: str) -> tuple[str, list[str]]:
    name, *fields = re.split(r"[:,](?=[A-Za-z_][\w.]*=)", label.strip())
    return name, [f"{table}.{field}" for field in fields]


def _of_victims(table: Table, options: Options) -> Table:
    """The table for one round of victims, which hold the samples to reconstruct and train on one batch."""
    method = table.get("method", {})
    name = method if isinstance(method, str) else method.get("name", "fedavg")
    known = arguments(choose(METHOD, name, "method.name"))
    local = {**table.get("local", {}), "batch": options.samples, "epochs": options.steps}
    bare = {name: value for name, value in table.items() if name != "local"}
    return {
        **bare,
        **({"local": local} if {"local", "inner"} & known.keys() else {}),
        "rounds": 1,
        "partition": {"kind": VICTIMS, "clients": options.images, "samples": options.samples},
        "selector": {"name": "all"},
        "evaluate": {"clients": 0, "metrics": ["accuracy"]},
        "checkpoint": {"every": 0},
    }
