"""The page of an experiment: the paper's numbers beside ours, pictures, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.jobs import Job
from shoal.report.blocks import Cell, badge, chart, document, folded, heading, note, table, toml
from shoal.report.runs import brief, flatten, varying
from shoal.report.table import human_seconds
from shoal.reproduce.experiment import Experiment, Outcome, Table
from shoal.spec import to_table


def page(experiment: Experiment, outcome: Outcome, result: Mapping[str, Any], jobs: Sequence[Job]) -> str:
    """One HTML page without any outside part."""
    facts = {
        "Paper": experiment.paper,
        **outcome.facts,
        "Runs": f"{len(jobs):,}",
        "Time": human_seconds(result["seconds"]),
    }
    cards = "".join(chart(picture.figure, picture.title, picture.remark) for picture in outcome.pictures)
    body = [
        *(part for table in outcome.tables for part in _table(table)),
        *([heading("Pictures"), f'<div class="charts">{cards}</div>'] if cards else []),
        *([heading("What to know"), *map(note, outcome.notes)] if outcome.notes else []),
        *_how(result, jobs),
    ]
    scale = badge(f"scale {result['scale']}", "good")
    return document(f"{result['name']}: {experiment.summary}", "Reproduction", facts, scale, body)


def _table(shown: Table) -> list[str]:
    head = [Cell(shown.corner, "text"), *map(Cell, shown.columns)]
    lines = []
    for row in shown.rows:
        found = [shown.find(row, column) for column in shown.columns]
        lines.append([Cell(row, "text"), *(_cell(shown, cell) for cell in found)])
    legend = "Ours; below it the paper's." if shown.compares else ""
    return [heading(shown.title), table(head, lines), note(f"{legend} {shown.remark}".strip())]


def _cell(shown: Table, cell: Any) -> Cell:
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
            "Each run is an ordinary one, in a folder of its own under runs/. To repeat it: "
            "shoal run runs/NAME/spec.toml. For a page of it: shoal report runs/NAME --out page.html."
        ),
        folded("What all runs share", toml(common)) if common else "",
        folded(f"The {len(rows)} runs, and in what they differ", "\n".join(rows)) if rows else "",
    ]
