"""Reading Parquet, in pieces, with polars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.core.errors import SpecError
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
        try:
            frame = polars.scan_parquet(self.path, glob=False)
            schema = frame.collect_schema()
            total = frame.select(polars.len()).collect().item()
        except (polars.exceptions.PolarsError, OSError) as error:
            reason = str(error).split("\n")[0]
            raise SpecError(f"{self.path} cannot be read as Parquet: {reason}") from None
        for name, kind in schema.items():
            if kind.is_nested():
                raise SpecError(
                    f"{self.path}, column {name}: {kind} is neither a number nor a text; list it under "
                    "task.ignore, or save it as several columns"
                )
        for first in range(0, total, PIECE):
            part = frame.slice(first, PIECE).cast(polars.String).fill_null("").collect()
            columns = {name: part[name].to_list() for name in part.columns}
            yield SitePiece(self.path, [f"row {first + i + 1}" for i in range(len(part))], columns)
