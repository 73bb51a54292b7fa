"""Four tiers of devices, as in the experiments of SITUA-CQ.

Seo, Lee, Ko, Pack: SITUA-CQ, IEEE Internet of Things Journal 2023; the environment of the authors' code.

    seconds of a local epoch ~ N(4 (tier + 1), 0.5)
    rate = 5 log2(1 + SNR) / 8 MB/s,  SNR ~ N(10^(4 - tier), 2 10^(3 - tier)), drawn again until it is >= 1

Tiers of computing and of links are assigned independently, each to a quarter of the clients.

Departures: an epoch takes that long for a client of average size, and longer for a larger one. The authors'
model has 20 MB; rates are scaled so that the task's model takes as long as theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shoal.core.devices import Crowd, Devices, DeviceTable
from shoal.core.key import Key
from shoal.devices.checks import check_share
from shoal.devices.draws import normals

TIERS = 4
MODEL_MB = 20.0  # size of the authors' model
LEAST_SECONDS = 0.1  # minimum for an epoch, since a normal distribution is unbounded


@dataclass(frozen=True)
class TierDevices(Devices):
    """Assigns four tiers of computing speed and of link rates, as SITUA-CQ's authors do."""

    redraw: bool = True
    availability: float = 1.0

    def __post_init__(self) -> None:
        check_share(self.availability)

    def draw(self, clients: np.ndarray, round: int, crowd: Crowd, key: Key) -> DeviceTable:
        """See `Devices`."""
        compute = _dealt(key.fold("compute tiers"), crowd.clients)[clients]
        links = _dealt(key.fold("link tiers"), crowd.clients)[clients]
        seconds = 4.0 * (compute + 1) + 0.5 * normals(key, clients, "compute")
        speed = crowd.samples / np.maximum(seconds, LEAST_SECONDS)
        scale = crowd.model_bytes / MODEL_MB  # bytes of our model for each MB of theirs
        down, up = (scale * _rate(key, clients, links, way) for way in ("down", "up"))
        return DeviceTable(speed, down, up, np.zeros(len(clients)))


@lru_cache(maxsize=16)
def _dealt(key: Key, clients: int) -> np.ndarray:
    """[clients] float64: the tier of each client; all tiers are equally frequent."""
    return np.asarray(key.numpy().permutation(clients) % TIERS, np.float64)


def _rate(key: Key, clients: np.ndarray, tiers: np.ndarray, way: str) -> np.ndarray:
    """The rates of these clients, in MB per second."""
    ratio = np.zeros(len(clients))
    attempt = 0
    while (weak := ratio < 1).any():
        drawn = normals(key.fold(way, attempt), clients[weak], "ratio")
        ratio[weak] = 10 ** (4 - tiers[weak]) + 2 * 10 ** (3 - tiers[weak]) * drawn
        attempt += 1
    return np.asarray(5 * np.log2(1 + ratio) / 8)
