"""Read Parquet files in pieces, with polars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.core.errors import SpecError, one_line
from shoal.data.sites.piece import PIECE, SiteFile, SitePiece


@dataclass(frozen=True)
class ParquetFile(SiteFile):
    """A Parquet file with flat columns."""

    path: Path

    def pieces(self) -> Iterator[SitePiece]:
        """See `SiteFile`."""
        try:
            import polars
        except ImportError:
            raise SpecError(
                "Parquet files need polars, which is not installed; run pip install 'shoal[parquet]', "
                "or save the data as CSV"
            ) from None
        frame = self._tried(lambda: polars.scan_parquet(self.path, glob=False))
        for name, kind in self._tried(frame.collect_schema).items():
            if kind.is_nested():
                raise SpecError(
                    f"{self.path}, column {name}: {kind} is neither a number nor a text; list it under "
                    "task.ignore, or save it as several columns"
                )
        total = self._tried(frame.select(polars.len()).collect).item()
        for first in range(0, total, PIECE):
            part = self._tried(frame.slice(first, PIECE).cast(polars.String).fill_null("").collect)
            columns = {name: part[name].to_list() for name in part.columns}
            yield SitePiece(self.path, [f"row {first + i + 1}" for i in range(len(part))], columns)

    def _tried(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the file may be anything, and polars panics are no `Exception`
            raise SpecError(f"{self.path} cannot be read as Parquet: {one_line(error)}") from None
