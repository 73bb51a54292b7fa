"""The page of an experiment: the paper's numbers next to ours, pictures, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shoal.report.page_parts import Badge, PageTable, TableCell, card, document, toml
from shoal.report.runs import brief, flatten, varying
from shoal.report.table import human_seconds
from shoal.spec import to_table
from shoal.study.jobs import Job
from shoal.study.reproduce.experiment import ComparisonTable, Experiment, Findings, PaperNumber


class TableSection(NamedTuple):
    """A table of the findings in the form that the template takes."""

    title: str
    cells: PageTable
    remark: str
    narrow: bool = False


def page(experiment: Experiment, findings: Findings, result: Mapping[str, Any], jobs: Sequence[Job]) -> str:
    """Render one self-contained HTML page."""
    facts = {
        "Paper": experiment.paper,
        **findings.facts,
        "Runs": f"{len(jobs):,}",
        "Time": human_seconds(result["seconds"]),
    }
    shared, runs = _settings(jobs)
    return document(
        "reproduction.html",
        experiment.summary,
        f"Reproduction: {result['name']}",
        facts,
        Badge(f"scale {result['scale']}", "good"),
        tables=[_table(table) for table in findings.tables],
        cards=[card(picture.figure, picture.title, picture.remark) for picture in findings.pictures],
        notes=findings.notes,
        result=result,
        shared=shared,
        runs=runs,
    )


def _table(shown: ComparisonTable) -> TableSection:
    if shown.side_by_side is not None:
        head, lines = shown.side_by_side
        cells = PageTable(_line(head), [_line(line) for line in lines])
        return TableSection(f"{shown.title}: {shown.columns[0]}", cells, shown.remark, narrow=True)
    rows = []
    for row in shown.rows:
        found = [shown.find(row, column) for column in shown.columns]
        rows.append([TableCell(row, "text"), *(_cell(shown, cell) for cell in found)])
    legend = "Our number, and below it the paper's." if shown.compares else ""
    cells = PageTable(_line([shown.corner, *shown.columns]), rows)
    return TableSection(shown.title, cells, f"{legend} {shown.remark}".strip())


def _line(texts: Sequence[str]) -> list[TableCell]:
    return [TableCell(texts[0], "text"), *map(TableCell, texts[1:])]


def _cell(shown: ComparisonTable, cell: PaperNumber | None) -> TableCell:
    if cell is None:
        return TableCell("")
    return TableCell(shown.ours(cell), more=shown.papers(cell) if shown.compares else "")


def _settings(jobs: Sequence[Job]) -> tuple[str, list[str]]:
    """The settings that all runs share, as TOML, and one line per run with the settings that differ."""
    flat = [flatten(to_table(job.spec)) for job in jobs]
    differing = varying(flat)
    shared = {key: value for key, value in flat[0].items() if key not in differing} if flat else {}
    lines = []
    for job, settings in zip(jobs, flat, strict=True):
        own = ", ".join(f"{key} = {brief(settings[key])}" for key in differing if key in settings)
        lines.append(f"{job.name:40} {own}")
    return toml(shared), lines
