"""A site's own files, of the kinds that a spec can name: csv, parquet, npz, images.

Each site sends a summary of its columns (`SiteSummary`) to the server, which computes from all of them how
every site encodes its samples (`Agreement`); see `shoal.data.sites`. No sample leaves the site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from shoal.core.data import Dataset
from shoal.core.errors import SpecError
from shoal.core.types import Tree
from shoal.data.own import OWN
from shoal.data.sites import (
    Agreement,
    ArrayFile,
    CsvFile,
    ImageFolder,
    ParquetFile,
    SiteFile,
    SiteOptions,
    SiteSource,
    SiteSummary,
)
from shoal.data.sites.agreement import NumberScale
from shoal.data.sites.image_folder import LABEL
from shoal.data.sites.survey import VALUES, ColumnSummary, Kind, Sums
from shoal.spec import Spec, TaskSpec

_LARGEST_SUM = 1e75  # bound for sums of squares of the largest numbers that a column may hold

Options = Mapping[str, Any]
FILES: dict[str, Callable[[Path, Options], SiteFile]] = {
    "csv": lambda path, options: CsvFile(path, separator=options["separator"]),
    "parquet": lambda path, options: ParquetFile(path),
    "npz": lambda path, options: ArrayFile(path, label=options["label"], site=options["site"]),
    "images": lambda path, options: ImageFolder(path, size=options["size"], grey=options["grey"]),
}


def asks_agreement(spec: Spec) -> bool:
    """Whether sites must agree on an encoding before they can train."""
    return spec.task.dataset in OWN and spec.sites is None


def own_source(task: TaskSpec, name: str, source: str) -> SiteSource:
    """The files of a site, with the options of the spec."""
    given = {"label": LABEL, "standardize": task.dataset != "images", **task.options}
    known = {f.name: given[f.name] for f in fields(SiteOptions) if f.name in given}
    if given.get("site"):  # a column that names the site is not a feature
        known["ignore"] = tuple(dict.fromkeys((*known.get("ignore", ()), given["site"])))
    return SiteSource(name, (FILES[task.dataset](Path(source), given),), SiteOptions(**known))


def load_own(source: SiteSource, agreed: Agreement, least: int = 1) -> Dataset:
    """The samples of a site in the agreed encoding; raises `SpecError` if its files do not fit."""
    told = source.summary()
    missing = [name for name in (*agreed.numbers, *agreed.categories) if name not in told.columns]
    if missing:
        raise SpecError(f"it has no column {', '.join(missing)}")
    strange = sorted(set(told.labels) - set(agreed.classes))
    if strange:
        raise SpecError(
            f"the class {strange[0]!r} is unknown; the federation's are {', '.join(agreed.classes)}"
        )
    for name, texts in agreed.categories.items():
        if told.columns[name].kind == "number":
            raise SpecError(f"column {name} holds numbers, but texts such as {texts[0]!r} at other sites")
    for name in agreed.numbers:
        if told.columns[name].kind == "text":
            raise SpecError(f"column {name} holds texts, but numbers at other sites")
    if told.train < least:
        raise SpecError(f"it holds {told.train} samples for training, fewer than {least}")
    x_train, y_train, x_test, y_test = map(torch.from_numpy, source.load(agreed))
    own_train, own_test = (np.zeros(len(y), np.int64) for y in (y_train, y_test))
    classes = len(agreed.classes)
    return Dataset(source.name, x_train, y_train, x_test, y_test, classes, own_train, own_test)


# ---- conversion to trees, for transport


def summary_tree(summary: SiteSummary) -> Tree:
    """A summary, without the path of the site's file."""
    columns = {
        name: {"kind": told.kind, "sums": told.sums and _tensors(vars(told.sums)), "texts": list(told.texts)}
        for name, told in summary.columns.items()
    }
    return {**summary._asdict(), "where": summary.site, "columns": columns}


def read_summary(tree: Tree, site: str) -> SiteSummary:
    """The inverse of `summary_tree`; raises an error of any kind for an invalid tree.

    The returned summary is consistent, so that no site can crash the server or make all features NaN.
    """
    shape = None if tree["shape"] is None else tuple(map(int, tree["shape"]))
    columns = {str(name): _read_column(told, shape) for name, told in tree["columns"].items()}
    if shape is not None and set(columns) != {VALUES}:
        raise ValueError("a summary of arrays has one column")
    labels, train, test = tuple(map(str, tree["labels"])), int(tree["train"]), int(tree["test"])
    if min(train, test, *(shape or ())) < 0:
        raise ValueError("a number of samples is negative")
    return SiteSummary(site, site, columns, shape, labels, train, test)


def _read_column(told: Mapping[str, Any], shape: tuple[int, ...] | None) -> ColumnSummary:
    kind, texts = told["kind"], tuple(map(str, told["texts"]))
    sums = None if told["sums"] is None else Sums(**_arrays(told["sums"]))
    if kind not in get_args(Kind) or (kind == "text") != bool(texts):
        raise ValueError(f"a column of the kind {kind!r} has {len(texts)} texts")
    if sums is not None:
        for values in (sums.count, sums.total, sums.squares):
            if values.shape != (shape or ()) or not (abs(values) < _LARGEST_SUM).all():
                raise ValueError("sums of a column are not finite numbers of the shape of a sample")
        if (sums.count < 0).any() or (sums.squares < 0).any():
            raise ValueError("sums of a column are negative")
    elif kind == "number" and shape is None:
        raise ValueError("a column of numbers has no sums")
    return ColumnSummary(kind, sums, texts)


def agreement_tree(agreed: Agreement) -> Tree:
    """An agreement as a tree."""
    numbers = {name: _tensors(scale._asdict()) for name, scale in agreed.numbers.items()}
    return {**agreed._asdict(), "numbers": numbers}


def read_agreement(tree: Tree) -> Agreement:
    """The inverse of `agreement_tree`."""
    numbers = {name: NumberScale(**_arrays(scale)) for name, scale in tree["numbers"].items()}
    categories = {name: tuple(texts) for name, texts in tree["categories"].items()}
    return Agreement(numbers, categories, tuple(tree["shape"]), tuple(tree["classes"]), tree["array"])


def _tensors(table: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(value, np.float64)) for name, value in table.items()}


def _arrays(table: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.numpy().astype(np.float64) for name, value in table.items()}
