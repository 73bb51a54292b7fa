"""Remarks on problems in a finished run, and what to try."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.core.data import Dataset
from shoal.runs.record import Record
from shoal.spec import Spec, to_table

RISEN = 10.0  # a loss larger than this multiple of its smallest value has diverged


def remarks(spec: Spec, dataset: Dataset | None, records: Sequence[Record]) -> list[str]:
    """Sentences for the user; usually none."""
    found = []
    refused = [entry["reason"] for record in records for entry in record["rejected"]]
    if refused:
        found.append(f"{len(refused)} replies were refused, the first because {refused[0]}")
    unbounded = any("not finite" in reason or "larger than" in reason for reason in refused)
    if unbounded or records[-1]["loss"] is None or _not_finite(records) or _risen(records):
        found.append(_cause(spec, dataset))
    if records[-1].get("predicted_classes") == 1 and (dataset is None or dataset.classes > 1):
        found.append(
            "the model predicts the same class for every test sample; train longer (rounds, local.epochs), "
            "change local.lr, or look at the partition: shoal partition SPEC.toml --out picture.png"
        )
    return found


def _not_finite(records: Sequence[Record]) -> bool:
    loss = records[-1]["loss"]
    return loss is not None and loss != loss


def _risen(records: Sequence[Record]) -> bool:
    losses = [record["loss"] for record in records if record["loss"] is not None]
    return len(losses) > 1 and losses[-1] > RISEN * max(min(losses), 1e-3) and losses[-1] > losses[0]


def _cause(spec: Spec, dataset: Dataset | None) -> str:
    bad = None if dataset is None else _bad_values(dataset)
    if bad is not None:
        return bad
    lr = to_table(spec).get("local", {}).get("lr")
    if lr is None:
        return "the run diverged; scale the features, or change the method's step size"
    return f"the run diverged; lower local.lr = {lr:g}, for instance to {lr / 10:g}, or scale the features"


def _bad_values(dataset: Dataset) -> str | None:
    for name in ("x_train", "x_test", "y_train", "y_test"):
        row = _bad_row(getattr(dataset, name))
        if row is not None:
            told = f"{name} of {dataset.name} holds values that are not finite, first in row {row}"
            return f"{told}; correct them"
    return None


def _bad_row(values: Tensor) -> int | None:
    if not values.is_floating_point() or bool(torch.isfinite(values.sum(dtype=torch.float64))):
        return None
    bad = ~torch.isfinite(values).reshape(len(values), -1).all(1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None
