"""GENE-FL, figure 4: images that a curious server reconstructs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.audit.examination import examine
from shoal.audit.page import picture
from shoal.runs.result import Result
from shoal.study.reproduce.experiment import ComparisonTable, Picture
from shoal.study.reproduce.table_experiment import Analysis, Results


def reconstructions_of(result: Result, **effort: Any) -> dict[str, Any]:
    """The result of an attack, with the mean PSNR of both attackers and the share of labels as numbers."""
    found = examine(result, **effort)
    lacks = found["lacks"] or found["knows"]  # if everything was transmitted, both attackers are the same
    return {
        "knows": found["knows"]["psnr"],
        "lacks": lacks["psnr"],
        "labels": found["knows"]["labels"],
        "shape": list(result.dataset.shape),
        "found": found,
    }


def figure4(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """A grid of the originals and each attacker's reconstructions, for the first seed."""
    pictures = []
    for place, column in enumerate(results.grid.columns, start=1):
        answers = {row: some[0] for row, some in results.column(column).items()}
        shape = tuple(next(iter(answers.values()))["shape"])
        drawn = picture({row: answer["found"] for row, answer in answers.items()}, shape)
        if drawn is not None:
            pictures.append(Picture(f"figure4-{place}", column, drawn, "PSNR below each image."))
    return Analysis(tables, pictures)
