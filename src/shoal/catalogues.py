"""All parts that a spec can name, by kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shoal.aggregators import AGGREGATORS
from shoal.aggregators.aggregator import Aggregator
from shoal.arrivals import ARRIVALS
from shoal.attacks import ATTACKS
from shoal.codecs import CODECS, IMPLIED
from shoal.config import MISSING, Catalogue, arguments, write
from shoal.core.arrivals import Arrivals
from shoal.core.attack import Attack
from shoal.core.codec import Codec
from shoal.core.data import Partition
from shoal.core.devices import Devices
from shoal.core.method import Method, Recipe
from shoal.core.privacy import Privacy
from shoal.core.selector import Selector
from shoal.core.term import Term
from shoal.data import DATASETS
from shoal.data.partitions import PARTITIONS
from shoal.devices import DEVICES
from shoal.methods import METHODS
from shoal.models import MODELS
from shoal.parts.layers import LAYER_CHOICES, LayerChoice
from shoal.privacy import PRIVACY
from shoal.selectors import SELECTORS
from shoal.server import SERVERS
from shoal.server.optimizer import ServerOptimizer
from shoal.terms import TERMS

METHOD = Catalogue("method", METHODS, protocol=(Method, Recipe))
DATASET = Catalogue("data set", DATASETS)
MODEL = Catalogue("model", MODELS)
CATALOGUES: dict[Any, Catalogue] = {
    Method: METHOD,
    Recipe: METHOD,
    Partition: Catalogue("partition", PARTITIONS, tag="kind", protocol=Partition),
    Selector: Catalogue("selector", SELECTORS, protocol=Selector),
    Codec: Catalogue("codec", CODECS, implied=IMPLIED, protocol=Codec),
    Attack: Catalogue("attack", ATTACKS, protocol=Attack),
    Privacy: Catalogue("privacy", PRIVACY, protocol=Privacy),
    Arrivals: Catalogue("kind of arrivals", ARRIVALS, protocol=Arrivals),
    Devices: Catalogue("kind of devices", DEVICES, protocol=Devices),
    Term: Catalogue("term", TERMS, protocol=Term),
    LayerChoice: Catalogue("choice of layers", LAYER_CHOICES, protocol=LayerChoice),
    Aggregator: Catalogue("aggregator", AGGREGATORS, protocol=Aggregator),
    ServerOptimizer: Catalogue("server optimizer", SERVERS, protocol=ServerOptimizer),
}

LISTS: dict[str, Catalogue] = {  # the catalogues that the command line lists, by command
    "methods": METHOD,
    "datasets": DATASET,
    "models": MODEL,
    "selectors": CATALOGUES[Selector],
    "codecs": CATALOGUES[Codec],
    "attacks": CATALOGUES[Attack],
}


def listed() -> dict[str, dict[str, Any]]:
    """All entries that the command line lists: their summaries, and their fields with defaults."""
    return {
        command: {
            name: {"summary": _summary(entry), "fields": _fields(entry)}
            for name, entry in catalogue.entries.items()
        }
        for command, catalogue in LISTS.items()
    }


def _summary(entry: Callable[..., Any]) -> str:
    """The first line of the docstring."""
    return (inspect.getdoc(entry) or "").split("\n")[0]


def _fields(entry: Callable[..., Any]) -> dict[str, Any]:
    """The fields that a table may set, with their defaults; the solver has its own table."""
    return {
        name: None if argument.default is MISSING else write(argument.default, CATALOGUES)
        for name, argument in arguments(entry).items()
        if name != "local"
    }
