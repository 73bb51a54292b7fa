"""Weng et al., FedQP: learning curves (figure 3), and what the probability p does (figure 4)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from shoal.report.canvas import WIDTH
from shoal.report.charts import line_chart
from shoal.report.series import Axis, Curve, seeds_curve
from shoal.study.reproduce.experiment import Experiment, Outcome, Picture, Play, Table, cell
from shoal.study.reproduce.fedqp import (
    FEDAVG,
    FULL,
    MACHINE,
    PAPER,
    PAPERS,
    QUICK,
    SKEWS,
    SLOW,
    Course,
    Courses,
    Entry,
    Setting,
    courses,
    entries,
    facts,
    level,
    seeds_told,
    swing,
)

ACCURACY = Axis("Test accuracy (%)", end=100)
GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
DRAWN = ("p = 0", "p = 0.1", "p = 0.3", "p = 0.5", "p = 0.8", "p = auto")  # more lines hide one another


def figure3(play: Play, *, settings: Sequence[Setting], labels: Sequence[str], seeds: int) -> Outcome:
    """Learning curves of all methods, and how soon they are where FedAvg ends."""
    wanted = entries(labels, settings, seeds)
    found = courses(play, wanted)
    told, tail = seeds_told(wanted), settings[0].tail
    levels, soon = [], []
    for (label, at), some in found.items():
        levels.append(cell(label, at.title, None, [level(course, at) for course in some]))
        ends = [level(course, at) for course in found[FEDAVG, at]]
        rounds = [reached(course, end) for course, end in zip(some, ends, strict=True)]
        soon.append(cell(label, at.title, None, rounds))
    remark = (
        f"FedAvg's mean of the last {tail} rounds, of the same seed. {told} Seeds that never come there are "
        "left out."
    )
    tables = [
        Table(f"Test accuracy (%), mean of the last {tail} rounds", levels, "method", remark=told),
        Table("First round at the accuracy with which FedAvg ends", soon, "method", 0, remark),
    ]
    pictures = [
        _drawn(found, at, labels, f"figure3-{place}", at.title, told)
        for place, at in enumerate(settings, start=1)
    ]
    notes = [
        "The paper shows curves of CIFAR-10 with ResNet-18 and gives no numbers for them. It finds FedQP "
        "above the others at the end, and faster than FedMut at the beginning."
    ]
    if not set(SLOW) & set(labels):
        notes.append(
            f"{' and '.join(SLOW)} are not drawn: they train many times slower than the others here."
        )
    return Outcome(tables, pictures, notes, facts(settings[0]))


def reached(course: Course, accuracy: float) -> float | None:
    """The first round that was at least so accurate."""
    pairs = zip(course.rounds, course.accuracies, strict=True)
    return next((float(number) for number, value in pairs if value >= accuracy), None)


def ablation(play: Play, *, setting: Setting, grid: Sequence[float], seeds: int) -> Outcome:
    """The accuracy for each p, and for the one that chooses itself."""
    chances: list[float | Literal["auto"]] = [*grid, "auto"]
    wanted = [
        Entry(f"p = {p}" if p == "auto" else f"p = {p:g}", {"name": "fedqp", "p": p}, setting, seeds)
        for p in chances
    ]
    found = courses(play, wanted)
    cells = []
    for (label, at), some in found.items():
        cells += [
            cell(label, f"accuracy (%), last {at.tail} rounds", None, [level(c, at) for c in some]),
            cell(label, "its deviation over these rounds", None, [swing(c, at) for c in some]),
            cell(label, "effective momentum", None, [c.momentum for c in some]),
        ]
    told = seeds_told(wanted)
    levels = {label: [level(c, at) for c in some] for (label, at), some in found.items()}
    fixed = {label: statistics.fmean(values) for label, values in levels.items() if label != "p = auto"}
    best = max(fixed, key=lambda label: fixed[label])
    auto = statistics.fmean(levels["p = auto"])
    notes = (
        "The paper's figure 4 has no numbers. It finds that accuracy grows with p, and that a p too high "
        f"slows learning down or ends it. Here the best fixed value is {best}, with {fixed[best]:.1f} %.",
        "Projected mutations push all clients along the last step, which is momentum; where it is 1 or more, "
        "steps grow without end. p = 0 is FedMut without its acceleration.",
        f"p = auto, which is not in the paper, comes to {auto:.1f} %.",
    )
    labels = [label for label in DRAWN if label in levels]
    pictures = [
        _drawn(found, setting, labels, "figure4", f"Learning curves, {setting.title}", told),
        Picture("levels", "Accuracy of the last rounds", _over_p(levels, grid), told),
    ]
    return Outcome([Table("For each p", cells, setting.title, remark=told)], pictures, notes, facts(setting))


def _over_p(levels: Mapping[str, list[float]], grid: Sequence[float]) -> Figure:
    values = np.array([levels[f"p = {p:g}"] for p in grid])
    auto = np.array(levels["p = auto"])
    x = np.array(grid)
    curves = [
        seeds_curve("fixed", 0, x, values.T),
        Curve("auto", 1, x[[0, -1]], np.full(2, auto.mean()), np.zeros(2)),
    ]
    figure = line_chart(curves, ACCURACY, Axis("p"), WIDTH)
    assert figure is not None
    return figure


def _drawn(found: Courses, at: Setting, labels: Sequence[str], name: str, title: str, told: str) -> Picture:
    """The learning curves of some labels in one setting."""
    curves = []
    for slot, label in enumerate(labels):
        values = np.array([course.accuracies for course in found[label, at]])
        curves.append(seeds_curve(label, slot, np.array(found[label, at][0].rounds, float), values))
    figure = line_chart(curves, ACCURACY, "rounds", WIDTH)
    assert figure is not None
    return Picture(name, title, figure, told)


SHOWN = (FEDAVG, "CluSamp", "FedMut", "FedQP", "FedQP, p = auto")
FIGURE3 = Experiment(
    "Figure 3: learning curves of FedQP and its rivals",
    PAPER,
    {
        "quick": partial(
            figure3, settings=[QUICK._replace(beta=beta) for beta in SKEWS], labels=SHOWN, seeds=3
        ),
        "machine": partial(
            figure3,
            settings=[MACHINE._replace(beta=beta, rounds=60) for beta in (0.1, 1.0)],
            labels=PAPERS,
            seeds=3,
        ),
        "paper": partial(
            figure3, settings=[FULL._replace(beta=beta) for beta in SKEWS], labels=PAPERS, seeds=3
        ),
    },
)
ABLATION = Experiment(
    "Figure 4: what the probability p does to FedQP",
    PAPER,
    {
        "quick": partial(ablation, setting=QUICK, grid=GRID, seeds=5),
        "machine": partial(ablation, setting=MACHINE._replace(beta=0.5, rounds=80), grid=GRID, seeds=3),
        "paper": partial(ablation, setting=FULL, grid=GRID, seeds=3),
    },
)
