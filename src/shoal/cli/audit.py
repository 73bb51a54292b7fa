"""The command audit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.options import JsonFlag, SetOption, SpecFile, free_folder, gc_paused_for_imports, interruptible
from shoal.core.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shoal.audit.plan import Case, Options

RESULT, OPTIONS, RUNS = "audit.json", "options.json", "runs"
PICTURE = "reconstructions.png"
SIZE = 2  # the column that does not fit into a terminal


def audit(
    spec: SpecFile = None,
    uploads: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Methods, alone or with a codec or noise: genefl:gamma=6,fedavg+qsgd:bits=4.",
            show_default="the spec's; without a spec, a selection",
        ),
    ] = "",
    attack: Annotated[
        str, typer.Option(metavar="NAME", help="closed, dlg, idlg, cosine or either; auto picks one of them.")
    ] = "auto",
    images: Annotated[int, typer.Option(help="Victims; their samples cycle through the classes.")] = 10,
    samples: Annotated[int, typer.Option(help="Samples per victim, all in one training batch.")] = 1,
    steps: Annotated[int, typer.Option(help="Local steps before the upload.")] = 1,
    iterations: Annotated[
        int, typer.Option(help="Iterations of the attacker's optimiser, from each random start.")
    ] = 300,
    restarts: Annotated[int, typer.Option(help="Random starts of the optimiser; the best one counts.")] = 2,
    settings: SetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder to write to, or to continue in.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Reconstruct clients' samples from their actual uploads, as a curious server could.

    Victims with a few samples each run the first round of the spec, with its method, codec and privacy. If
    --out holds part of the same audit already, only the missing parts are done.
    """
    with gc_paused_for_imports():
        from shoal.audit import plan
        from shoal.audit.rows import HEAD, rows
        from shoal.runs.directory import REPORT
        from shoal.runs.files import write_atomic
        from shoal.runs.json_text import to_json
        from shoal.spec import load_table
        from shoal.study.compare import file_name
        from shoal.study.jobs import Job, kept_answers, run_with_progress
        from shoal.terminal import show_table, stdout

    named = plan.names(uploads) or (list(plan.UPLOADS) if spec is None else [])
    table = plan.QUICK if spec is None else load_table(spec)
    options = plan.Options(images, samples, steps, attack, iterations, restarts)  # type: ignore[arg-type]
    cases = plan.plan(named, table, settings or [], options)
    folder = out or free_folder("audit")
    _claim(folder, options)
    jobs = [Job(file_name(case.label), case.spec, case.measure) for case in cases]
    started = time.perf_counter()
    with interruptible(lambda: "the same command continues where it stopped"):
        answers = kept_answers(jobs, folder / RUNS)
        missing = [job for job in jobs if job.name not in answers]
        if missing:
            answers |= run_with_progress("audit", missing, folder / RUNS)
    found = {case.label: answers[job.name] for case, job in zip(cases, jobs, strict=True)}
    result = {**options._asdict(), "seconds": time.perf_counter() - started, "uploads": found}
    title = _write(folder, cases, found, options)
    write_atomic(folder / RESULT, (to_json(result) + "\n").encode())
    if json:
        shown = {label: _without_pixels(answer) for label, answer in found.items()}
        print(to_json({"out": str(folder), "report": str(folder / REPORT), **result, "uploads": shown}))
        return
    shown_rows = [[text for place, text in enumerate(row) if place != SIZE] for row in rows(found)]
    show_table(title, [name for place, name in enumerate(HEAD) if place != SIZE], shown_rows)
    stdout().print(f"Report: {folder / REPORT}", soft_wrap=True)


def _claim(folder: Path, options: Options) -> None:
    """Claim the folder for an audit with these options, or check that it holds one."""
    from shoal.runs.files import write_atomic
    from shoal.runs.json_text import to_json

    path, text = folder / OPTIONS, to_json(options._asdict()) + "\n"
    if path.exists():
        if path.read_text(encoding="utf-8") != text:
            raise SpecError(f"{folder} holds an audit with other options; choose another --out")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError(f"{folder} holds something else than an audit; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{folder} cannot be made: {error.strerror}; choose another --out") from None
    write_atomic(path, text.encode())


def _write(
    folder: Path, cases: Sequence[Case], found: Mapping[str, Mapping[str, Any]], options: Options
) -> str:
    """Write the page and the picture; returns the title."""
    from shoal.audit.page import audit_page, picture
    from shoal.report.runs import flatten, varying
    from shoal.runs.build import load_dataset
    from shoal.runs.directory import REPORT
    from shoal.runs.files import write_atomic
    from shoal.spec import to_table

    chosen = cases[0].spec
    dataset = load_dataset(chosen.task)
    title = f"Audit of {chosen.task.model} on {chosen.task.dataset}"
    facts = {
        "Data set": chosen.task.dataset,
        "Model": chosen.task.model,
        "Victims": f"{options.images} with {options.samples} sample{'s' * (options.samples > 1)} each",
        "Local steps": str(options.steps),
        "Restarts": f"{options.restarts}, with {options.iterations} iterations each",
    }
    flat = [flatten(to_table(case.spec)) for case in cases]
    differing = set(varying(flat))
    common = {key: value for key, value in flat[0].items() if key not in differing}
    page = audit_page(title, facts, found, dataset.shape, common)
    write_atomic(folder / REPORT, page.encode())
    drawn = picture(found, dataset.shape)
    if drawn is not None:
        drawn.savefig(folder / PICTURE, dpi=150, facecolor="white")
    return title


def _without_pixels(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of an answer, without the images."""
    kept = {name: value for name, value in answer.items() if name != "originals"}
    return {name: _bare(value) for name, value in kept.items()}


def _bare(value: Any) -> Any:
    return {n: v for n, v in value.items() if n != "images"} if isinstance(value, dict) else value
