"""The page of an experiment: the paper's numbers beside ours, pictures, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.report.blocks import Cell, badge, chart, document, folded, heading, note, table, toml
from shoal.report.runs import brief, flatten, varying
from shoal.report.table import human_seconds
from shoal.spec import to_table
from shoal.study.jobs import Job
from shoal.study.reproduce.experiment import ComparisonTable, Experiment, Findings, PaperNumber


def page(experiment: Experiment, findings: Findings, result: Mapping[str, Any], jobs: Sequence[Job]) -> str:
    """One HTML page that loads nothing from outside."""
    facts = {
        "Paper": experiment.paper,
        **findings.facts,
        "Runs": f"{len(jobs):,}",
        "Time": human_seconds(result["seconds"]),
    }
    cards = [chart(picture.figure, picture.title, picture.remark) for picture in findings.pictures]
    around = "charts" if len(cards) > 1 else "narrow"
    body = [
        *(part for table in findings.tables for part in _table(table)),
        *([heading("Pictures"), f'<div class="{around}">{"".join(cards)}</div>'] if cards else []),
        *([heading("Notes"), *map(note, findings.notes)] if findings.notes else []),
        *_how(result, jobs),
    ]
    scale = badge(f"scale {result['scale']}", "good")
    return document(experiment.summary, f"Reproduction: {result['name']}", facts, scale, body)


def _table(shown: ComparisonTable) -> list[str]:
    if shown.side_by_side is not None:
        head, lines = shown.side_by_side
        card = table(_line(head), [_line(line) for line in lines])
        title = f"{shown.title}: {shown.columns[0]}"
        return [heading(title), f'<div class="narrow">{card}</div>', note(shown.remark)]
    rows = []
    for row in shown.rows:
        found = [shown.find(row, column) for column in shown.columns]
        rows.append([Cell(row, "text"), *(_cell(shown, cell) for cell in found)])
    card = table(_line([shown.corner, *shown.columns]), rows)
    legend = "Ours; below it the paper's." if shown.compares else ""
    return [heading(shown.title), card, note(f"{legend} {shown.remark}".strip())]


def _line(texts: Sequence[str]) -> list[Cell]:
    return [Cell(texts[0], "text"), *map(Cell, texts[1:])]


def _cell(shown: ComparisonTable, cell: PaperNumber | None) -> Cell:
    if cell is None:
        return Cell("")
    return Cell(shown.ours(cell), more=shown.papers(cell) if shown.compares else "")


def _how(result: Mapping[str, Any], jobs: Sequence[Job]) -> list[str]:
    flat = [flatten(to_table(job.spec)) for job in jobs]
    differing = varying(flat)
    common = {key: value for key, value in flat[0].items() if key not in differing} if flat else {}
    rows = []
    for job, settings in zip(jobs, flat, strict=True):
        own = ", ".join(f"{key} = {brief(settings[key])}" for key in differing if key in settings)
        rows.append(f"{job.name:40} {own}")
    return [
        heading("How it was made"),
        note(f"{result['command']}, by Shoal {result['version']} on {result['environment']}."),
        note(
            "Each run is an ordinary run with a folder of its own under runs/. To repeat it: "
            "shoal run runs/NAME/spec.toml. For its report: shoal report runs/NAME --out page.html."
        ),
        folded("What all runs share", toml(common)) if common else "",
        folded(f"The {len(rows)} runs, and how they differ", "\n".join(rows)) if rows else "",
    ]
