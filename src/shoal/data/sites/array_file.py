"""Read .npz files in pieces. Uncompressed arrays are memory-mapped, not loaded."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.core.errors import SpecError, one_line
from shoal.data.sites.piece import PIECE, SiteFile, SitePiece

_NUMBERS = 2**20  # numbers of x in memory at a time


@dataclass(frozen=True)
class ArrayFile(SiteFile):
    """A file written by `np.savez`: `x` [n, *shape], the labels, and optionally each sample's site."""

    path: Path
    label: str = "y"
    site: str = ""

    def pieces(self) -> Iterator[SitePiece]:
        """See `SiteFile`."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = {Path(name).stem for name in archive.namelist()}
                wanted = ["x", self.label, *([self.site] if self.site else [])]
                for name in wanted:
                    if name not in names:
                        raise SpecError(
                            f"{self.path} has no array {name!r}; it has {', '.join(sorted(names)) or 'none'}"
                        )
                arrays = {name: self._array(archive, f"{name}.npy") for name in wanted}
        except SpecError:
            raise
        except Exception as error:  # the file may be anything
            raise SpecError(f"{self.path} cannot be read as .npz: {one_line(error)}") from None
        count = len(arrays["x"])
        for name in wanted[1:]:
            if arrays[name].shape != (count,):
                raise SpecError(
                    f"{self.path}: array {name} has shape {arrays[name].shape}, but x holds {count} samples"
                )
        width = max(1, arrays["x"][:1].size)
        together = max(1, min(PIECE, _NUMBERS // width))
        for first in range(0, count, together):
            some = slice(first, first + together)
            columns = {name: [str(value) for value in arrays[name][some].tolist()] for name in wanted[1:]}
            places = [f"sample {first + i}" for i in range(len(columns[self.label]))]
            yield SitePiece(self.path, places, columns, self._finite(arrays["x"][some], first))

    def _array(self, archive: zipfile.ZipFile, name: str) -> np.ndarray:
        info = archive.getinfo(name)
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
            read = read or np.lib.format.read_array_header_2_0
            shape, columns_first, dtype = read(member)
            header = member.tell()
        if not shape or dtype.hasobject:
            raise SpecError(f"{self.path}: array {name[:-4]} must hold numbers or texts, not {dtype}")
        if info.compress_type != zipfile.ZIP_STORED or columns_first or 0 in shape:
            with archive.open(info) as member:
                loaded: np.ndarray = np.lib.format.read_array(member)
                return loaded
        with self.path.open("rb") as file:  # the local header, whose extra field may have its own length
            file.seek(info.header_offset + 26)
            name_length, extra = np.frombuffer(file.read(4), "<u2").tolist()
        begin = info.header_offset + 30 + name_length + extra + header
        return np.memmap(self.path, dtype, "r", begin, shape)

    def _finite(self, values: np.ndarray, first: int) -> np.ndarray:
        """The values in float32, with missing ones as NaN; infinite ones are refused."""
        if values.dtype.kind not in "biuf":
            raise SpecError(f"{self.path}: x must hold numbers, not {values.dtype}")
        found: np.ndarray = np.asarray(values, np.float32)
        if not np.isfinite(found.sum(dtype=np.float64)) and np.isinf(found).any():  # the sum is fast
            endless = np.isinf(found).reshape(len(found), -1).any(1)
            raise SpecError(
                f"{self.path}, sample {first + int(endless.argmax())}: x is infinite in float32; "
                "correct it, or write NaN where it is missing"
            )
        return found
