"""The protocol of devices: how fast clients compute and communicate, and the resulting virtual time.

Virtual time is the time that an exchange would take on these devices. It depends on the spec, the seed and
the lengths of the packets, never on the machine that runs the simulation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.core.key import Key
from shoal.core.population import Population

# How much faster a device trains in a number format than in float32, and the format's bits per number.
SPEED_UP = {"float32": 1.0, "float16": 1.46, "bfloat16": 1.46, "e5m2": 1.81}
BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "e5m2": 8}


class DeviceTable(NamedTuple):
    """The devices of some clients: aligned arrays of float64."""

    speed: np.ndarray  # training samples per second, in float32
    down: np.ndarray  # bytes per second
    up: np.ndarray
    latency: np.ndarray  # seconds per message

    def row(self, position: int) -> DeviceTable:
        """The device of one client."""
        return DeviceTable(*(values[position] for values in self))


class Crowd(NamedTuple):
    """The properties of a federation that devices may depend on."""

    clients: int
    samples: float  # per client, on average
    model_bytes: int  # of the model in float32


class Devices(ABC):
    """A rule that gives each client a device."""

    redraw: bool  # whether devices are drawn anew in every round
    availability: float  # the probability that a client can be reached in a round

    @abstractmethod
    def draw(self, clients: np.ndarray, round: int, crowd: Crowd, key: Key) -> DeviceTable:
        """The devices of these clients. With `redraw`, the key is the round's."""

    def check(self, clients: int) -> None:  # noqa: B027  # most rules suit every population
        """Raise `SpecError` if the rule does not work for this number of clients."""


class Spent(NamedTuple):
    """The virtual seconds that one client's exchange takes."""

    down: float  # to receive the message
    compute: float
    up: float  # to send the reply

    @property
    def total(self) -> float:
        """The sum of all three."""
        return self.down + self.compute + self.up


@dataclass(frozen=True)
class Fleet:
    """The devices of a run."""

    devices: Devices
    crowd: Crowd
    key: Key

    def table(self, clients: Sequence[int], round: int) -> DeviceTable:
        """The devices of these clients in a round."""
        key = self.key.fold("round", round) if self.devices.redraw else self.key
        return self.devices.draw(np.asarray(clients, np.int64), round, self.crowd, key)

    def reachable(self, present: Population, round: int) -> Population:
        """The present clients that can be reached in a round."""
        share = self.devices.availability
        if share >= 1:
            return present
        drawn = self.key.fold("available", round).numpy().random(self.crowd.clients)
        return tuple(client for client in present if drawn[client] < share)

    def spent(
        self, client: int, round: int, bytes_down: int, bytes_up: int, samples: float, form: str
    ) -> Spent:
        """The time of an exchange. `samples` counts each training sample as often as it is used."""
        device = _cached_row(self, client, round)
        with np.errstate(divide="ignore", invalid="ignore"):  # a rate of 0 takes forever
            return Spent(
                float(device.latency + bytes_down / device.down),
                float(samples / device.speed / SPEED_UP[form]),
                float(device.latency + bytes_up / device.up),
            )


@lru_cache(maxsize=4096)
def _cached_row(fleet: Fleet, client: int, round: int) -> DeviceTable:
    return fleet.table([client], round).row(0)
