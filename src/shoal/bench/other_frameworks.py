"""Other frameworks as contestants, if they can be imported. Shoal does not depend on them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

Stretch = Callable[[int, int], tuple[float, int]]  # (first round, number of rounds) -> (seconds, samples)
Serve = Callable[[Stretch, int], None]  # runs stretches of this number of rounds, one per request

NEEDED: dict[str, tuple[str, ...]] = {"flower": ("flwr", "ray"), "pfl": ("pfl",)}
MOST_CLIENTS = 1000  # Flower creates a node for each, and pfl a data set for each


def available() -> list[str]:
    """The peers that can be imported here."""
    return [peer for peer, modules in NEEDED.items() if all(find_spec(module) for module in modules)]
