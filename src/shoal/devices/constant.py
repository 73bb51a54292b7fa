"""The same device for all clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.devices import Crowd, Devices, DeviceTable
from shoal.core.key import Key
from shoal.devices.checks import check_rates, check_share


@dataclass(frozen=True)
class ConstantDevices(Devices):
    """Gives all clients the same device."""

    speed: float = 100.0  # samples per second
    down: float = 1e6  # bytes per second
    up: float = 1e6
    latency: float = 0.0  # seconds per message
    availability: float = 1.0
    redraw: bool = False  # has no effect

    def __post_init__(self) -> None:
        check_rates(self.speed, self.down, self.up, self.latency)
        check_share(self.availability)

    def draw(self, clients: np.ndarray, round: int, crowd: Crowd, key: Key) -> DeviceTable:
        """See `Devices`."""
        return DeviceTable(
            *(np.full(len(clients), value) for value in (self.speed, self.down, self.up, self.latency))
        )
