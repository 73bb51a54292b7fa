"""Devices from a file with measurements of real ones."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from shoal.core.devices import Crowd, Devices, DeviceTable
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.devices.checks import check_share

COLUMNS = ("speed", "down", "up", "latency")

Rows = dict[int, list[tuple[int, tuple[float, ...]]]]  # by client: (round, values valid from this round on)


@dataclass(frozen=True)
class TraceDevices(Devices):
    """Reads devices from a CSV file: client, speed, down, up, and optionally latency and round.

    With rounds, a row is valid from its round on. A rate of 0 means that nothing gets through.
    """

    path: str
    availability: float = 1.0
    redraw: bool = False  # has no effect

    def __post_init__(self) -> None:
        check_share(self.availability)

    def check(self, clients: int) -> None:
        """See `Devices`."""
        rows = _rows(self.path)
        for client in range(clients):
            if client not in rows or rows[client][0][0] > 1:
                when = " that counts from round 1 on" if client in rows else ""
                raise SpecError(f"{self.path} has no row for client {client}{when}")

    def draw(self, clients: np.ndarray, round: int, crowd: Crowd, key: Key) -> DeviceTable:
        """See `Devices`."""
        rows = _rows(self.path)
        found = [
            [values for first, values in rows[client] if first <= round + 1][-1]
            for client in clients.tolist()
        ]
        return DeviceTable(*np.array(found, np.float64).reshape(-1, len(COLUMNS)).T)


@lru_cache(maxsize=4)
def _rows(path: str) -> Rows:
    """The rows of each client, in the order of their rounds."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    except OSError as error:
        raise SpecError(f"devices.path = {path!r} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"devices.path = {path!r} is not a CSV file: {error}") from None
    missing = [name for name in ("client", *COLUMNS[:3]) if not lines or name not in lines[0]]
    if missing:
        raise SpecError(f"{path} has no column {missing[0]}; it needs client, speed, down and up")
    rows: Rows = {}
    for number, line in enumerate(lines, start=2):
        client, round, values = _read(path, number, line)
        rows.setdefault(client, []).append((round, values))
    return {client: sorted(some) for client, some in rows.items()}


def _read(path: str, number: int, line: dict[str, str]) -> tuple[int, int, tuple[float, ...]]:
    try:
        client, round = int(line["client"]), int(line.get("round") or 1)
        values = tuple(float(line.get(name) or 0) for name in COLUMNS)
    except (TypeError, ValueError):
        raise SpecError(f"{path}, line {number}: {dict(line)} is not a row of numbers") from None
    if client < 0 or round < 1 or any(not 0 <= value < math.inf for value in values):
        raise SpecError(f"{path}, line {number}: {dict(line)} has a value that is negative or not finite")
    return client, round, values
