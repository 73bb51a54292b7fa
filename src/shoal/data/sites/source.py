"""One site: its files, the summary that it shares, and its samples."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.data.sites.agreement import Agreement
from shoal.data.sites.piece import SiteFile, SiteOptions, SitePiece
from shoal.data.sites.survey import SiteSummary, Split, Survey, strata

IN_MEMORY = 2**29  # bytes; a larger array is kept in a temporary file and memory-mapped


class SiteSamples(NamedTuple):
    """The samples of a site, encoded as all sites agreed."""

    x_train: np.ndarray  # [n, *shape] float32
    y_train: np.ndarray  # [n] int64 classes, or float32
    x_test: np.ndarray
    y_test: np.ndarray


class SiteRows(NamedTuple):
    """Some encoded samples, and which of them are for testing."""

    x: np.ndarray
    y: np.ndarray
    test: np.ndarray  # [n] bool


class Encoder:
    """Encodes a site's pieces in order, with the same train/test split as the survey."""

    def __init__(self, agreed: Agreement, options: SiteOptions) -> None:
        self._agreed, self._options, self._split = agreed, options, Split(options.test)

    def rows(self, piece: SitePiece, *, test: bool | None = None) -> SiteRows:
        """The samples of the next piece; `test` as in `Survey.add`."""
        labels = strata(piece.columns[self._options.label], self._options)
        chosen = self._split.test(labels) if test is None else np.full(len(piece), test)
        return SiteRows(*self._agreed.encode(piece, self._options), chosen)


@dataclass(frozen=True)
class SiteSource:
    """The data of one site. Only the result of `summary` leaves it."""

    name: str
    files: tuple[SiteFile, ...]
    options: SiteOptions
    test_files: tuple[SiteFile, ...] = ()  # if given, all of `files` is for training

    def summary(self) -> SiteSummary:
        """What the other sites must know so that all encode their samples in the same way."""
        survey = Survey(self.name, self.options)
        for piece, test in self._pieces():
            survey.add(piece, test=test)
        return survey.summary()

    def load(self, agreed: Agreement) -> SiteSamples:
        """Load and encode all samples."""
        summary, encoder = self.summary(), Encoder(agreed, self.options)
        arrays = allocate(summary.train, summary.test, agreed, self.options)
        at = {False: 0, True: 0}
        for piece, test in self._pieces():
            fill(arrays, at, encoder.rows(piece, test=test))
        return arrays

    def _pieces(self) -> Iterator[tuple[SitePiece, bool | None]]:
        for files, test in ((self.files, False if self.test_files else None), (self.test_files, True)):
            for file in files:
                for piece in file.pieces():
                    yield piece, test


def allocate(train: int, test: int, agreed: Agreement, options: SiteOptions) -> SiteSamples:
    """Allocate empty arrays; large ones are memory-mapped, so that they need not fit into memory."""
    kind = np.float32 if options.regression else np.int64
    return SiteSamples(
        _empty((train, *agreed.shape)),
        np.empty(train, kind),
        _empty((test, *agreed.shape)),
        np.empty(test, kind),
    )


def _empty(shape: tuple[int, ...]) -> np.ndarray:
    if 4 * math.prod(shape) <= IN_MEMORY:
        return np.empty(shape, np.float32)
    with tempfile.TemporaryFile(prefix="shoal-") as file:  # unnamed: it goes with the array
        return np.memmap(file, np.float32, "w+", shape=shape)


def fill(arrays: SiteSamples, at: dict[bool, int], rows: SiteRows) -> None:
    """Write the rows at the offsets `at`, and advance these."""
    for flag, x, y in ((False, arrays.x_train, arrays.y_train), (True, arrays.x_test, arrays.y_test)):
        chosen = rows.test == flag
        count = int(chosen.sum())
        x[at[flag] : at[flag] + count] = rows.x[chosen]
        y[at[flag] : at[flag] + count] = rows.y[chosen]
        at[flag] += count
