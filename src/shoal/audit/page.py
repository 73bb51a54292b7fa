"""The page of an audit: a table, and a picture of the originals above their reconstructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from shoal.audit.rows import HEAD, Answers, rows
from shoal.report.canvas import INK, MUTED
from shoal.report.page_parts import PageTable, TableCell, card, document, toml

CELL, NAMES = 0.72, 2.6  # inches: width of an image, and of the names to the left
MOST = 10  # images per row
READERS = {"knows": "", "lacks": ", lacks the rest", "signature": ", its signature"}


def image_rows(answers: Answers) -> dict[str, tuple[list[Any], list[float | None]]]:
    """For each row of the picture, by name: the images and their PSNRs; the originals have none."""
    first = next(iter(answers.values()))
    found: dict[str, tuple[list[Any], list[float | None]]] = {
        "original": (_flat(first["originals"]), [None] * MOST)
    }
    for label, answer in answers.items():
        for reader, name in READERS.items():
            if answer[reader] is not None:
                found[label + name] = (_flat(answer[reader]["images"]), answer[reader]["psnrs"])
    return found


def _flat(images: Sequence[Sequence[Any]]) -> list[Any]:
    """The first `MOST` images, over all victims."""
    return [sample for victim in images for sample in victim][:MOST]


def picture(answers: Answers, shape: tuple[int, ...]) -> Figure | None:
    """The originals, and below them one row per attacker; None if the samples are not images."""
    shown = image_rows(answers)
    if len(shape) != 3 or shape[0] not in (1, 3) or len(shown) == 1:
        return None
    columns = len(shown["original"][0])
    figure = Figure(figsize=(NAMES + columns * CELL, len(shown) * (CELL + 0.2)), facecolor="none")
    grid = figure.subplots(len(shown), columns, squeeze=False)
    figure.subplots_adjust(NAMES / (NAMES + columns * CELL), 0.02, 0.995, 0.995, 0.06, 0.34)
    for line, (name, (images, values)) in zip(grid, shown.items(), strict=True):
        for axes, image, value in zip(line, images, values, strict=False):
            pixels = np.array(image, float).reshape(shape).transpose(1, 2, 0)
            grey = shape[0] == 1
            axes.imshow(
                pixels[..., 0] if grey else pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest"
            )
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
            if value is not None:
                axes.set_xlabel(_short(value), fontsize=8, color=MUTED, labelpad=2)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, color=INK, labelpad=6)
    return figure


def _short(value: float) -> str:
    return f"{value:.1f} dB" if np.isfinite(value) else "exact"


def audit_page(
    title: str,
    facts: Mapping[str, str],
    answers: Answers,
    shape: tuple[int, ...],
    settings: Mapping[str, Any],
) -> str:
    """One self-contained HTML page. `settings` are those that all uploads share, with dotted keys."""
    cells = [
        [TableCell(row.upload, "text long"), TableCell(row.sent, "text long"), *map(TableCell, row[2:])]
        for row in rows(answers)
    ]
    head = [TableCell(name, "text" if place < 2 else "") for place, name in enumerate(HEAD)]
    drawn = picture(answers, shape)
    return document(
        "audit.html",
        title,
        "Audit",
        facts,
        None,
        table_of_uploads=PageTable(head, cells),
        card=None if drawn is None else card(drawn, "Originals and reconstructions"),
        travelled={label: answer["travelled"] for label, answer in answers.items() if answer["travelled"]},
        settings=toml(settings),
    )
