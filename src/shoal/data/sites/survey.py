"""The survey of a site's own data; its summary is shared, so that all sites use the same encoding."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from shoal.core.errors import SpecError
from shoal.data.sites.piece import SiteOptions, SitePiece

MOST_CATEGORIES = 100  # per column
MOST_CLASSES = 1000
LARGEST = 1e30  # numbers must be smaller: the squares of larger ones overflow float32
_GOLDEN = 0.6180339887498949
VALUES = "x"  # the name of the only column, if the features are an array
Kind = Literal["number", "text", "empty"]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the values that are not missing, sufficient for a mean and a standard deviation."""

    count: np.ndarray  # [*shape] float64
    total: np.ndarray
    squares: np.ndarray  # of the deviations from the mean of these values

    @classmethod
    def of(cls, values: np.ndarray) -> Sums:
        """The sums of `values` [n, *shape]; NaN marks missing values."""
        there = ~np.isnan(values)
        count = there.sum(0, dtype=np.float64)
        total = np.where(there, values, 0.0).sum(0, dtype=np.float64)
        mean = total / np.maximum(count, 1)
        return cls(count, total, (np.where(there, values - mean, 0.0) ** 2).sum(0, dtype=np.float64))

    def __add__(self, other: Sums) -> Sums:
        count = self.count + other.count
        apart = self.mean - other.mean
        between = apart**2 * self.count * other.count / np.maximum(count, 1)
        return Sums(count, self.total + other.total, self.squares + other.squares + between)

    @property
    def mean(self) -> np.ndarray:
        """The mean; 0 if there are no values."""
        return np.asarray(self.total / np.maximum(self.count, 1))

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation; 1 where all values are equal, so that it can be divided by."""
        found = np.sqrt(self.squares / np.maximum(self.count, 1))
        return np.where(found > 1e-12 * np.maximum(np.abs(self.mean), 1), found, 1.0)


class ColumnSummary(NamedTuple):
    """What a site shares about a column."""

    kind: Kind
    sums: Sums | None = None  # over its training samples, if it holds numbers
    texts: tuple[str, ...] = ()  # the categories, if it holds texts


class SiteSummary(NamedTuple):
    """All that leaves a site before training: no sample values except the texts of categories and labels."""

    site: str
    where: str  # the file, for error messages
    columns: Mapping[str, ColumnSummary]
    shape: tuple[int, ...] | None  # of a sample, if the features are an array
    labels: tuple[str, ...]  # empty for a regression
    train: int  # the number of samples
    test: int


class Split:
    """Selects the test samples of a site: the requested share of each class, evenly spaced."""

    def __init__(self, share: float) -> None:
        self._share, self._seen, self._phases = share, Counter[str](), dict[str, float]()

    def test(self, labels: Sequence[str]) -> np.ndarray:
        """[n] bool, for the next samples. The first sample of a class is always for training."""
        chosen = np.zeros(len(labels), bool)
        for place, label in enumerate(labels if self._share else ()):
            # classes have different phases, or a site with few samples per class would get no test sample
            phase = self._phases.setdefault(
                label, (0.5 + len(self._phases) * _GOLDEN) % 1 * (1 - self._share)
            )
            before = self._seen[label]
            chosen[place] = math.floor((before + 1) * self._share + phase) > math.floor(
                before * self._share + phase
            )
            self._seen[label] += 1
        return chosen


class _Texts:
    """A column of a table, as far as it has been read."""

    def __init__(self, always_text: bool) -> None:
        self.always_text = always_text
        self.sums = Sums.of(np.zeros(0))
        self.numbers = self.others = 0
        self.texts: set[str] = set()
        self.first: SpecError | None = None  # for the first value that is not a number

    def add(self, name: str, piece: SitePiece, test: np.ndarray, missing: frozenset[str]) -> None:
        texts = piece.columns[name]
        if len(self.texts) <= MOST_CATEGORIES:
            self.texts |= set(texts) - missing
        if self.always_text:
            return
        try:
            values = np.array([math.nan if text in missing else float(text) for text in texts])
        except ValueError:
            values = np.array([math.nan if text in missing else _number(text) for text in texts])
        strange = [i for i in np.flatnonzero(~(np.abs(values) < LARGEST)).tolist() if texts[i] not in missing]
        if strange and self.first is None:
            self.first = piece.wrong(
                strange[0],
                name,
                f"{texts[strange[0]]!r} is {'not' if math.isnan(values[strange[0]]) else 'too large for'} a "
                f"number; correct it, add it to task.missing, or list {name} under task.categories",
            )
        values[strange] = math.nan
        self.others += len(strange)
        self.numbers += int(np.isfinite(values).sum())
        self.sums += Sums.of(values[~test])

    def summary(self, name: str, where: str) -> ColumnSummary:
        if not self.texts:
            return ColumnSummary("empty")
        if not self.always_text and self.numbers >= self.others:
            if self.first is not None:
                raise self.first
            return ColumnSummary("number", self.sums)
        if len(self.texts) > MOST_CATEGORIES:
            some = min(self.texts)
            comma = " (write decimals with a point)" if re.fullmatch(r"-?\d+,\d+", some) else ""
            raise SpecError(
                f"{where}, column {name} has more than {MOST_CATEGORIES} different texts, such as {some!r}"
                f'{comma}; leave it out with task.ignore = ["{name}"]'
            )
        return ColumnSummary("text", None, tuple(sorted(self.texts)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class Survey:
    """Reads a site's samples piece by piece; `summary` returns the result."""

    def __init__(self, site: str, options: SiteOptions) -> None:
        self._site, self._options = site, options
        self._split = Split(options.test)
        self._missing = frozenset(options.missing)
        self._columns: dict[str, _Texts] = {}
        self._sums: Sums | None = None
        self._shape: tuple[int, ...] | None = None
        self._labels: set[str] = set()
        self._counts = {False: 0, True: 0}
        self._where = ""

    def add(self, piece: SitePiece, *, test: bool | None = None) -> None:
        """Add the next piece; `test` marks all of it for testing or for training (None: split by share)."""
        options = self._options
        self._where = self._where or str(piece.path)
        labels = checked_labels(piece, options)
        chosen = self._split.test(strata(labels, options)) if test is None else np.full(len(piece), test)
        if not options.regression and len(self._labels) <= MOST_CLASSES:
            self._labels |= set(labels)
        for flag in (False, True):
            self._counts[flag] += int((chosen == flag).sum())
        if piece.values is not None:
            self._add_values(piece, piece.values, chosen)
        names = features(piece, options)
        if self._columns and set(names) != set(self._columns):
            odd = sorted(set(names) ^ set(self._columns))[0]
            raise SpecError(f"{piece.path}: column {odd} is in only some files of {self._site}")
        for name in names:
            column = self._columns.setdefault(name, _Texts(name in options.categories))
            column.add(name, piece, chosen, self._missing)

    def _add_values(self, piece: SitePiece, values: np.ndarray, chosen: np.ndarray) -> None:
        self._shape = self._shape or values.shape[1:]
        if values.shape[1:] != self._shape:
            raise SpecError(
                f"{piece.path}: samples have shape {values.shape[1:]}, others {self._shape}; "
                "all must be equal"
            )
        if self._options.standardize:
            sums = Sums.of(values[~chosen].astype(np.float64))
            self._sums = sums if self._sums is None else self._sums + sums
        elif np.isnan(values.sum(dtype=np.float64)):
            sample = int(np.isnan(values).reshape(len(values), -1).any(1).argmax())
            raise SpecError(
                f"{piece.path}, {piece.places[sample]} has missing values (NaN), which only "
                "task.standardize = true can replace; set it, or correct them"
            )

    def summary(self) -> SiteSummary:
        """The summary that the site shares with the others."""
        if self._shape is None:
            columns = {name: column.summary(name, self._where) for name, column in self._columns.items()}
        else:
            columns = {VALUES: ColumnSummary("number", self._sums)}
        return SiteSummary(
            self._site,
            self._where,
            columns,
            self._shape,
            tuple(sorted(self._labels)),
            self._counts[False],
            self._counts[True],
        )


def features(piece: SitePiece, options: SiteOptions) -> list[str]:
    """The names of a piece's columns that are features."""
    for kind, names in (("ignore", options.ignore), ("categories", options.categories)):
        for name in names:
            if name not in piece.columns:
                raise absent(piece, name, f"task.{kind} names")
    return [name for name in piece.columns if name != options.label and name not in options.ignore]


def absent(piece: SitePiece, name: str, who: str) -> SpecError:
    """An error for a column that does not exist, with the closest existing name."""
    import difflib

    near = difflib.get_close_matches(name, piece.columns, n=1, cutoff=0.6)
    cure = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(list(piece.columns)[:12])}"
    return SpecError(f"{piece.path} has no column {name!r}, which {who}; {cure}")


def checked_labels(piece: SitePiece, options: SiteOptions) -> Sequence[str]:
    """The labels of a piece; none may be missing, and those of a regression must be finite numbers."""
    if options.label not in piece.columns:
        raise absent(piece, options.label, "task.label names")
    labels = piece.columns[options.label]
    for sample, text in enumerate(labels):
        if text in options.missing:
            raise piece.wrong(sample, options.label, "the label is missing; fill it in, or remove the sample")
        if options.regression and not abs(_number(text)) < LARGEST:
            raise piece.wrong(sample, options.label, f"{text!r} is not a finite number; correct it")
    return labels


def strata(labels: Sequence[str], options: SiteOptions) -> Sequence[str]:
    """The strata of the train/test split: the classes, or a single group in a regression."""
    return [""] * len(labels) if options.regression else labels
