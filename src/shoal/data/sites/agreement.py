"""The agreement of all sites before training: the features and their encoding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shoal.core.errors import SpecError
from shoal.data.sites.piece import SiteOptions, SitePiece
from shoal.data.sites.survey import MOST_CATEGORIES, MOST_CLASSES, VALUES, SiteSummary, Sums


class NumberScale(NamedTuple):
    """The encoding of numbers as features: (x - shift) / scale; missing values are replaced by the mean."""

    mean: np.ndarray
    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, sums: Sums, standardize: bool) -> NumberScale:
        """The scale from the sums over all sites."""
        if standardize:
            return cls(sums.mean, sums.mean, sums.deviation)
        return cls(sums.mean, np.zeros_like(sums.mean), np.ones_like(sums.mean))

    def applied(self, values: np.ndarray) -> np.ndarray:
        """The features [n, *shape] of these values, in float32."""
        scaled: np.ndarray = (np.where(np.isnan(values), self.mean, values) - self.shift) / self.scale
        return scaled.astype(np.float32)


class Agreement(NamedTuple):
    """The common encoding, computed from summaries alone and the same for every site."""

    numbers: Mapping[str, NumberScale]  # by column
    categories: Mapping[str, tuple[str, ...]]  # column -> its texts, one feature each
    shape: tuple[int, ...]  # of one sample
    classes: tuple[str, ...]  # empty for a regression
    array: bool  # whether the features are an array

    def encode(self, piece: SitePiece, options: SiteOptions) -> tuple[np.ndarray, np.ndarray]:
        """x [n, *shape] float32, and y [n]: int64 classes, or float32."""
        labels = piece.columns[options.label]
        if options.regression:
            y: np.ndarray = np.array([float(text) for text in labels], np.float32)
        else:
            place = {name: i for i, name in enumerate(self.classes)}
            y = np.array([place[text] for text in labels], np.int64)
        if self.array:
            assert piece.values is not None
            return self.numbers[VALUES].applied(piece.values) if self.numbers else piece.values, y
        x = np.zeros((len(piece), *self.shape), np.float32)
        missing = frozenset(options.missing)
        for at, (name, scale) in enumerate(self.numbers.items()):
            values = [math.nan if text in missing else float(text) for text in piece.columns[name]]
            x[:, at] = scale.applied(np.array(values))
        at = len(self.numbers)
        for name, texts in self.categories.items():
            column = {text: at + i for i, text in enumerate(texts)}
            for sample, text in enumerate(piece.columns[name]):
                if text in column:
                    x[sample, column[text]] = 1
            at += len(texts)
        return x, y


def agree(summaries: Sequence[SiteSummary], options: SiteOptions) -> Agreement:
    """Compute the common encoding of all sites. Raises `SpecError` if they are incompatible."""
    first = summaries[0]
    for other in summaries[1:]:
        _check_alike(first, other)
    if first.shape is not None:
        sums = _added([s.columns[VALUES].sums for s in summaries])
        numbers = {} if sums is None else {VALUES: NumberScale.of(sums, options.standardize)}
        return Agreement(numbers, {}, first.shape, _classes(summaries, options), True)
    numbers, categories = {}, dict[str, tuple[str, ...]]()
    for name in first.columns:
        told = [summary.columns[name] for summary in summaries]
        kinds = {c.kind: s.where for s, c in zip(summaries, told, strict=True) if c.kind != "empty"}
        if len(kinds) > 1:
            text = next(column.texts[0] for column in told if column.kind == "text")
            raise SpecError(
                f"column {name} holds numbers in {kinds['number']}, but texts such as {text!r} in "
                f"{kinds['text']}; correct one, or list {name} under task.categories"
            )
        if "number" in kinds:
            sums = _added([column.sums for column in told])
            assert sums is not None
            numbers[name] = NumberScale.of(sums, options.standardize)
        elif "text" in kinds:
            texts = sorted({text for column in told for text in column.texts})
            if len(texts) > MOST_CATEGORIES:
                raise SpecError(
                    f"column {name} has {len(texts)} different texts over all sites, such as {texts[0]!r}; "
                    f'leave it out with task.ignore = ["{name}"]'
                )
            categories[name] = tuple(texts)
    width = len(numbers) + sum(map(len, categories.values()))
    if not width:
        raise SpecError(f"{first.where} has no column with values besides the label; add features")
    return Agreement(numbers, categories, (width,), _classes(summaries, options), False)


def _check_alike(first: SiteSummary, other: SiteSummary) -> None:
    if first.shape != other.shape:
        raise SpecError(
            f"samples of {other.where} have shape {other.shape}, those of {first.where} {first.shape}; "
            "all sites must have the same"
        )
    for has, lacks in ((first, other), (other, first)):
        for name in has.columns:
            if name not in lacks.columns:
                raise SpecError(
                    f"{lacks.where} has no column {name!r}, which {has.where} has; add it (it may be empty), "
                    "or leave it out everywhere with task.ignore"
                )


def _added(sums: Sequence[Sums | None]) -> Sums | None:
    """Add up in the order of the sites, so that the result is the same bit for bit."""
    found: Sums | None = None
    for one in sums:
        if one is not None:
            found = one if found is None else found + one
    return found


def _classes(summaries: Sequence[SiteSummary], options: SiteOptions) -> tuple[str, ...]:
    if options.regression:
        return ()
    found = {label for summary in summaries for label in summary.labels}
    where, label = summaries[0].where, options.label
    fractions = [text for text in found if _is_fraction(text)]
    if len(found) > MOST_CLASSES or fractions:
        some = (fractions or sorted(found))[0]
        raise SpecError(
            f"{where}, column {label} has {len(found)} different labels, such as {some}; for a regression "
            "set task.regression = true"
        )
    if len(found) < 2:
        raise SpecError(
            f"{where}, column {label} has only the label {next(iter(found), '')!r}; classes need two"
        )
    try:
        return tuple(sorted(found, key=int))
    except ValueError:
        return tuple(sorted(found))


def _is_fraction(text: str) -> bool:
    try:
        return not float(text).is_integer()
    except ValueError:
        return False
