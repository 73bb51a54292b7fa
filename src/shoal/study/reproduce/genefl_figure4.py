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
    """What an attack finds, and as single numbers the mean PSNR of both attackers and the share of labels."""
    found = examine(result, **effort)
    lacks = found["lacks"] or found["knows"]  # nothing is lacking where everything travelled
    return {
        "knows": found["knows"]["psnr"],
        "lacks": lacks["psnr"],
        "labels": found["knows"]["labels"],
        "shape": list(result.dataset.shape),
        "found": found,
    }


def figure4(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The grid of the originals and of what each attacker made of them, of the first seed."""
    pictures = []
    for place, column in enumerate(results.grid.columns, start=1):
        answers = {row: some[0] for row, some in results.column(column).items()}
        shape = tuple(next(iter(answers.values()))["shape"])
        drawn = picture({row: answer["found"] for row, answer in answers.items()}, shape)
        if drawn is not None:
            pictures.append(Picture(f"figure4-{place}", column, drawn, "PSNR below each image."))
    return Analysis(tables, pictures)
