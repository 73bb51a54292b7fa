"""The user's own data sets: one file, or one per site, read by the classes that a real site would use."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.data.sites import Agreement, ArrayFile, CsvFile, ImageFolder, ParquetFile, agree
from shoal.data.sites.image_folder import LABEL
from shoal.data.sites.piece import MISSING, SiteFile, SiteOptions, SitePiece
from shoal.data.sites.source import Encoder, allocate, fill
from shoal.data.sites.survey import SiteSummary, Survey, absent


def csv(
    *,
    path: str,
    label: str,
    site: str = "",
    ignore: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    missing: tuple[str, ...] = MISSING,
    standardize: bool = True,
    regression: bool = False,
    test: float = 0.2,
    test_path: str = "",
    separator: str = "",
) -> Dataset:
    """Your own CSV: one file, or with a glob as `path` one file per site; `label` and `site` name columns."""
    options = SiteOptions(label, ignore, categories, missing, standardize, regression, test)
    return _Own(path, test_path, site, options, partial(CsvFile, separator=separator)).dataset()


def parquet(
    *,
    path: str,
    label: str,
    site: str = "",
    ignore: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    missing: tuple[str, ...] = MISSING,
    standardize: bool = True,
    regression: bool = False,
    test: float = 0.2,
    test_path: str = "",
) -> Dataset:
    """Your own Parquet: one file, or with a glob as `path` one file per site; needs `shoal[parquet]`."""
    options = SiteOptions(label, ignore, categories, missing, standardize, regression, test)
    return _Own(path, test_path, site, options, ParquetFile).dataset()


def npz(
    *,
    path: str,
    label: str = "y",
    site: str = "",
    standardize: bool = False,
    regression: bool = False,
    test: float = 0.2,
    test_path: str = "",
) -> Dataset:
    """Your own arrays: an `np.savez` file with `x` and `y`, or with a glob as `path` one file per site."""
    options = SiteOptions(label, standardize=standardize, regression=regression, test=test)
    return _Own(path, test_path, site, options, partial(ArrayFile, label=label, site=site)).dataset()


def images(
    *, path: str, size: int = 0, grey: bool = False, test: float = 0.2, test_path: str = ""
) -> Dataset:
    """Your own images: a folder with one folder per class, or with a glob as `path` one such per site."""
    if size < 0:
        raise SpecError(f"task.size must be at least 0 pixels, got {size}")
    options = SiteOptions(LABEL, standardize=False, test=test)
    return _Own(path, test_path, "", options, partial(ImageFolder, size=size, grey=grey)).dataset()


OWN: dict[str, Callable[..., Dataset]] = {"csv": csv, "parquet": parquet, "npz": npz, "images": images}


@dataclass(frozen=True)
class _Own:
    """All sites of a data set in a simulation: they share their summaries and agree on an encoding."""

    path: str
    test_path: str
    site: str  # the column that names the site of a sample; empty: every file is a site
    options: SiteOptions
    file: Callable[[Path], SiteFile]

    def dataset(self) -> Dataset:
        summaries = self._summaries()
        named = sorted((name for name in summaries if name), key=_natural)
        if not summaries:
            raise SpecError(f"{self.path} holds no samples")
        agreed = agree([summaries[name] for name in sorted(summaries, key=_natural)], self.options)
        self._check(summaries, named)
        groups = {name: place for place, name in enumerate(named)}
        return self._load(agreed, summaries, groups)

    def _summaries(self) -> dict[str, SiteSummary]:
        surveys: dict[str, Survey] = {}
        for site, piece, test in self._pieces():
            survey = surveys.setdefault(site, Survey(site, self._features))
            survey.add(piece, test=test)
        return {site: survey.summary() for site, survey in surveys.items()}

    @property
    def _features(self) -> SiteOptions:
        """The options, with the column that names the sites excluded from the features."""
        ignore = (*self.options.ignore, *([self.site] if self.site else []))
        return SiteOptions(**{**vars(self.options), "ignore": tuple(dict.fromkeys(ignore))})

    def _load(self, agreed: Agreement, summaries: dict[str, SiteSummary], groups: dict[str, int]) -> Dataset:
        train, test = (sum(getattr(s, part) for s in summaries.values()) for part in ("train", "test"))
        arrays = allocate(train, test, agreed, self.options)
        homes = {False: np.empty(train, np.int64), True: np.empty(test, np.int64)}
        encoders = {site: Encoder(agreed, self.options) for site in summaries}
        at = {False: 0, True: 0}
        for site, piece, forced in self._pieces():
            before = dict(at)
            fill(arrays, at, encoders[site].rows(piece, test=forced))
            for flag, home in homes.items():
                home[before[flag] : at[flag]] = groups.get(site, -1)
        own_tests = groups and "" not in summaries  # otherwise, the test samples belong to no site
        return Dataset(
            Path(self.path).name,
            torch.from_numpy(arrays.x_train),
            torch.from_numpy(arrays.y_train),
            torch.from_numpy(arrays.x_test),
            torch.from_numpy(arrays.y_test),
            classes=len(agreed.classes),
            groups_train=homes[False] if groups else None,
            groups_test=homes[True] if own_tests else None,
            group_names=tuple(groups),
            class_names=agreed.classes,
        )

    def _check(self, summaries: dict[str, SiteSummary], named: Sequence[str]) -> None:
        for name in named:
            if not summaries[name].train:
                raise SpecError(f"site {name!r} has test samples, but none for training; add some")
        if not sum(summary.train for summary in summaries.values()):
            raise SpecError(f"{self.path} holds no samples to train with")
        if not sum(summary.test for summary in summaries.values()):
            raise SpecError(
                f"task.test = {self.options.test:g} leaves no samples for testing; raise it, or set "
                "task.test_path"
            )

    def _pieces(self) -> Iterator[tuple[str, SitePiece, bool | None]]:
        """All samples as (site, piece, whether they are for testing; None: split by share)."""
        training = _found(self.path, "task.path")
        split = False if self.test_path else None
        for site, path in training.items():
            for piece in self.file(path).pieces():
                for name, part in self._of_sites(piece, site):
                    yield name, part, split
        for site, path in _found(self.test_path, "task.test_path").items() if self.test_path else ():
            if site not in training and site and any(training):
                raise SpecError(
                    f"task.test_path has a file for {site!r}, but task.path has none; sites are "
                    f"{', '.join(list(training)[:8])}"
                )
            for piece in self.file(path).pieces():
                common = self.site not in piece.columns
                for name, part in [(site, piece)] if common else self._of_sites(piece, site):
                    yield name, part, True

    def _of_sites(self, piece: SitePiece, site: str) -> Iterator[tuple[str, SitePiece]]:
        if not self.site:
            yield site, piece
            return
        if self.site not in piece.columns:
            raise absent(piece, self.site, "task.site names")
        owners: dict[str, list[int]] = {}
        for sample, name in enumerate(piece.columns[self.site]):
            if name in self.options.missing:
                raise piece.wrong(sample, self.site, "the site is missing; fill it in, or remove the sample")
            owners.setdefault(name, []).append(sample)
        for name, chosen in owners.items():
            yield name, piece if len(chosen) == len(piece) else piece.part(chosen)


def _found(pattern: str, field: str) -> dict[str, Path]:
    """The files of a path or glob by site, in natural order; a single file belongs to no site."""
    path = Path(pattern).expanduser()
    several = glob.has_magic(str(path))
    paths = [Path(name) for name in glob.glob(str(path), recursive=True)] if several else [path]
    paths = [p for p in paths if p.exists()]
    if not paths:
        what = "matches no file" if several else "does not exist"
        raise SpecError(f"{field} = {pattern!r} {what}; looked in {path.absolute().parent}")
    if not several:
        return {"": path}
    names = [p.name.split(".")[0] if p.is_file() else p.name for p in paths]
    if len(set(names)) < len(names):  # north/data.csv, south/data.csv
        names = [p.parent.name for p in paths]
    if len(set(names)) < len(names):
        names = [str(p) for p in paths]
    return dict(sorted(zip(names, paths), key=lambda entry: _natural(entry[0])))


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A sort key that puts site2 before site10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
