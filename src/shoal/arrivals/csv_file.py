"""Arrivals from a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from shoal.arrivals.stays import FOREVER, Stay, check_client, check_round, timetable_of
from shoal.core.arrivals import Arrivals, Timetable
from shoal.core.errors import SpecError
from shoal.core.population import Spans

COLUMNS = ("client", "join", "leave")
MOST_DIGITS = 18  # per number


@dataclass(frozen=True)
class CsvArrivals(Arrivals):
    """Clients are present from round `join` until before `leave`; clients not in the file are always present.

    A client has one row per stay; if `leave` is empty, it stays to the end.
    """

    path: str

    def timetable(self, clients: int) -> Timetable:
        """See `Arrivals`."""
        stays = sorted(self._rows(clients))
        for one, other in pairwise(stays):
            if one.first == other.first and other.join < one.leave:
                until = "which has no end" if one.leave == FOREVER else f"which ends in round {one.leave + 1}"
                raise SpecError(
                    f"{self.path}: client {one.first} joins in round {other.join + 1}, during its stay since "
                    f"round {one.join + 1}, {until}; let it leave first"
                )
        return timetable_of([*stays, *_unnamed(stays, clients)])

    def _rows(self, clients: int) -> Iterator[Stay]:
        try:
            with Path(self.path).open(encoding="utf-8-sig", newline="") as file:
                reader = csv.DictReader(file, skipinitialspace=True)
                missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
                if missing:
                    raise SpecError(
                        f"{self.path} has no column {missing[0]}; its first line must name the columns "
                        "client, join and leave"
                    )
                for row in reader:
                    try:
                        yield _stay(row, clients)
                    except SpecError as error:
                        raise SpecError(f"{self.path}, line {reader.line_num}: {error}") from None
        except FileNotFoundError:
            raise SpecError(
                f"path = {self.path!r} does not exist; name a CSV file, from the current folder or in full"
            ) from None
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise SpecError(f"path = {self.path!r} cannot be read as CSV: {error}") from None


def _stay(row: dict[str, str | None], clients: int) -> Stay:
    values = {name: (row[name] or "").strip() for name in COLUMNS}
    for name, text in values.items():
        if not (text.isdecimal() and len(text) <= MOST_DIGITS) and (text or name != "leave"):
            raise SpecError(f"{name} must be a whole number, got {text[:MOST_DIGITS]!r}")
    client, join = int(values["client"]), int(values["join"])
    leave = int(values["leave"]) if values["leave"] else FOREVER
    check_client(client, clients)
    check_round("join", join)
    if leave <= join:
        raise SpecError(
            f"client {client} joins in round {join} and leaves in round {leave}; it must leave later"
        )
    return Stay(client, client + 1, join - 1, leave if leave == FOREVER else leave - 1)


def _unnamed(stays: Sequence[Stay], clients: int) -> Iterator[Stay]:
    """The stays of the clients that are not in the file."""
    named = Spans.of([stay.first for stay in stays])
    for first, end in zip([0, *named.ends.tolist()], [*named.firsts.tolist(), clients], strict=True):
        if first < end:
            yield Stay(first, end)
