"""Read CSV files in pieces. Every kind of fault has its own error message, with file and line."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shoal.core.errors import SpecError
from shoal.data.sites.piece import PIECE, SiteFile, SitePiece

_SEPARATORS = (",", ";", "\t", "|")
_FOREIGN = {  # first bytes of formats that are often mistaken for CSV
    b"PK\x03\x04": "an Excel workbook or another zip archive; save it as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save it as CSV",
    b"PAR1": 'Parquet; write task.dataset = "parquet"',
    b"\xff\xfe": "UTF-16; save it as UTF-8",
    b"\xfe\xff": "UTF-16; save it as UTF-8",
}


@dataclass(frozen=True)
class CsvFile(SiteFile):
    """A CSV file in UTF-8, optionally gzipped, whose first line names the columns."""

    path: Path
    separator: str = ""  # empty: whichever of , ; tab | is most frequent in the first line

    def pieces(self) -> Iterator[SitePiece]:
        """See `SiteFile`."""
        try:
            with self._opened() as file:
                yield from self._read(file)
        except UnicodeDecodeError as error:
            raise SpecError(
                f"{self.path} is not UTF-8: byte {error.object[error.start]:#04x} cannot be read; "
                "save it as UTF-8"
            ) from None
        except (OSError, EOFError, zlib.error) as error:
            raise SpecError(f"{self.path} cannot be read: {error}") from None

    def _opened(self) -> IO[str]:
        compressed = self.path.suffix == ".gz"
        with gzip.open(self.path) if compressed else self.path.open("rb") as file:
            begin = file.read(4)
        for mark, what in _FOREIGN.items():
            if begin.startswith(mark):
                raise SpecError(f"{self.path} is not CSV but {what}")
        if compressed:
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return self.path.open(encoding="utf-8-sig", newline="")

    def _read(self, file: IO[str]) -> Iterator[SitePiece]:
        first = file.readline()
        if not first.strip():
            raise SpecError(f"{self.path}, line 1 is empty; it must name the columns")
        separator = self.separator or max(_SEPARATORS, key=first.count)
        if len(separator) != 1:
            raise SpecError(f"task.separator must be one character, got {separator!r}")
        names = self._header(next(csv.reader([first], delimiter=separator)), separator)
        reader = csv.reader(file, delimiter=separator, strict=True)
        rows: list[list[str]] = []
        lines: list[int] = []
        try:
            for cells in reader:
                if not cells:
                    continue  # an empty line
                if len(cells) != len(names):
                    raise self._uneven(reader.line_num + 1, cells, names, separator)
                rows.append(cells)
                lines.append(reader.line_num + 1)
                if len(rows) == PIECE:
                    yield self._piece(names, rows, lines)
                    rows, lines = [], []
        except csv.Error as error:
            raise SpecError(
                f"{self.path}, line {reader.line_num + 1} cannot be read: {error}; "
                "look for a quote that is not closed"
            ) from None
        if rows:
            yield self._piece(names, rows, lines)

    def _piece(self, names: Sequence[str], rows: list[list[str]], lines: list[int]) -> SitePiece:
        columns = {name: [text.strip() for text in texts] for name, texts in zip(names, zip(*rows))}
        return SitePiece(self.path, [f"line {line}" for line in lines], columns)

    def _header(self, cells: list[str], separator: str) -> list[str]:
        names = [cell.strip() for cell in cells]
        if all(_is_number(name) for name in names):
            raise SpecError(
                f"{self.path}, line 1 holds numbers ({', '.join(names[:3])}); it must name the columns"
            )
        for place, name in enumerate(names):
            if not name:
                raise SpecError(f"{self.path}, line 1: column {place + 1} of {len(names)} has no name")
            if name in names[:place]:
                raise SpecError(f"{self.path}, line 1 names the column {name!r} twice; rename one of them")
        return names

    def _uneven(self, line: int, cells: list[str], names: list[str], separator: str) -> SpecError:
        where = f"{self.path}, line {line} has {len(cells)} values, but line 1 names {len(names)} columns"
        if len(names) == 1:
            return SpecError(f"{where}; if they are not separated by {separator!r}, set task.separator")
        return SpecError(f"{where}; put texts that contain {separator!r} in quotes")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
