"""Pieces of a file: some samples as they are in the file, with their positions for error messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core.errors import SpecError

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
PIECE = 8192  # samples in memory at a time


class SitePiece(NamedTuple):
    """Consecutive samples of a file: named columns of texts, or one array."""

    path: Path
    places: Sequence[str]  # the position of each sample in the file: "line 7"
    columns: Mapping[str, Sequence[str]]  # of a table, including the label
    values: np.ndarray | None = None  # [n, *shape] float32, if the features are an array

    def __len__(self) -> int:
        return len(self.places)

    def part(self, chosen: Sequence[int]) -> SitePiece:
        """The piece with only the chosen samples."""
        return SitePiece(
            self.path,
            [self.places[i] for i in chosen],
            {name: [texts[i] for i in chosen] for name, texts in self.columns.items()},
            None if self.values is None else self.values[list(chosen)],
        )

    def wrong(self, sample: int, column: str, problem: str) -> SpecError:
        """An error that names the file, the position and the column."""
        return SpecError(f"{self.path}, {self.places[sample]}, column {column}: {problem}")


class SiteFile(ABC):
    """A file, or folder, with samples."""

    path: Path

    @abstractmethod
    def pieces(self) -> Iterator[SitePiece]:
        """All samples, in file order. Raises `SpecError` that says where the file is damaged."""


@dataclass(frozen=True)
class SiteOptions:
    """The roles of a table's columns; arrays and images only use `label` and the fields after `missing`."""

    label: str
    ignore: tuple[str, ...] = ()  # columns that are not features
    categories: tuple[str, ...] = ()  # columns whose numbers are codes of categories
    missing: tuple[str, ...] = MISSING  # texts that stand for a missing value
    standardize: bool = True
    regression: bool = False  # whether the label is a number to predict
    test: float = 0.2  # the share of samples held out for testing

    def __post_init__(self) -> None:
        if not 0 <= self.test < 1:
            cure = f"; for {self.test:g} % write {self.test / 100:g}" if 1 < self.test < 100 else ""
            raise SpecError(f"task.test must be a share in [0, 1), got {self.test:g}{cure}")
        if self.label in self.ignore:
            raise SpecError(f"task.ignore names the label {self.label!r}; leave it out there")
