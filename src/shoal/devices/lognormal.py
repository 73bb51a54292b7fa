"""Devices whose speeds and rates range over orders of magnitude."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.devices import Crowd, Devices, DeviceTable
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.devices.checks import check_rates, check_share
from shoal.devices.draws import normals


@dataclass(frozen=True)
class LognormalDevices(Devices):
    """Draws each speed and rate from a log-normal distribution around its median."""

    speed: float = 100.0  # median samples per second
    down: float = 1e6  # bytes per second
    up: float = 1e6
    sigma: float = 1.0  # standard deviation of the logarithms
    latency: float = 0.0  # seconds per message
    availability: float = 1.0
    redraw: bool = False

    def __post_init__(self) -> None:
        check_rates(self.speed, self.down, self.up, self.latency)
        check_share(self.availability)
        if not 0 <= self.sigma < math.inf:
            raise SpecError(f"sigma must be at least 0, got {self.sigma:g}; 1 is a wide spread")

    def draw(self, clients: np.ndarray, round: int, crowd: Crowd, key: Key) -> DeviceTable:
        """See `Devices`."""
        medians = (("speed", self.speed), ("down", self.down), ("up", self.up))
        speed, down, up = (m * np.exp(self.sigma * normals(key, clients, name)) for name, m in medians)
        return DeviceTable(speed, down, up, np.full(len(clients), self.latency))
