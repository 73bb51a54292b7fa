"""Checks shared by the kinds of devices."""

from __future__ import annotations

import math

from shoal.core.errors import SpecError


def check_rates(speed: float, down: float, up: float, latency: float) -> None:
    """Raise `SpecError` for a device that could never reply."""
    for name, value, unit in (("speed", speed, "samples"), ("down", down, "bytes"), ("up", up, "bytes")):
        if not 0 < value < math.inf:
            raise SpecError(f"{name} must be a number of {unit} per second above 0, got {value:g}")
    if not 0 <= latency < math.inf:
        raise SpecError(f"latency must be at least 0 seconds, got {latency:g}")


def check_share(availability: float) -> None:
    """Raise `SpecError` if this is not a probability."""
    if not 0 < availability <= 1:
        raise SpecError(f"availability must be in (0, 1], got {availability:g}; 1 means always")
