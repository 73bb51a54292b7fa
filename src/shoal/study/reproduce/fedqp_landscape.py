"""Weng et al., FedQP: how the loss looks around the final models. Are they in flatter places?

The paper argues with flat minima (its figure 1 is a sketch of them) and leaves pictures of the loss to later
work; so there are no numbers of it to compare with.

Directions are random and have in every filter the length of the model's own (Li et al., Visualizing the Loss
Landscape of Neural Nets, NeurIPS 2018): a step of 1 moves each filter by its own length. So a model with
large weights does not look flat for that. Biases and normalisation stay where they are. All methods have the
same random numbers. Sharpness at radius r is the mean, over directions, of the loss at a step of r minus the
loss of the model, on samples of the training set. Every direction is taken forward and backward, so that a
slope, which a model in the midst of training has, does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from shoal.core.key import Key
from shoal.report.canvas import HEAT, STYLE, WIDTH
from shoal.report.charts import line_chart
from shoal.report.series import Axis, seeds_curve
from shoal.runs.runner import Result
from shoal.study.reproduce.experiment import Experiment, Outcome, Picture, Play, Table, cell
from shoal.study.reproduce.fedqp import (
    FEDAVG,
    FEDMUT,
    FEDQP,
    FULL,
    MACHINE,
    PAPER,
    QUICK,
    Setting,
    answered,
    entries,
    facts,
    seeds_told,
)

LABELS = (FEDAVG, FEDMUT, FEDQP)
SPAN = 1.0  # of the surface to each side, in lengths of filters
RADII = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TOLD = (0.5, 1.0)  # the radii of the table
CHUNK = 1000  # samples that go through the model at once

Params = Mapping[str, Tensor]


def surroundings_of(result: Result, *, points: int, directions: int, samples: int) -> dict[str, Any]:
    """The loss of the model, on a plane through it, and in random directions.

    `plane` is [points, points], by first and second direction; `around` [directions, radii], the mean of
    forward and backward.
    """
    model = result.model()
    key = Key.from_seed(0).fold("landscape")
    data = result.dataset
    rows = torch.from_numpy(key.fold("samples").numpy().permutation(len(data.x_train))[:samples])
    x, y = data.x_train[rows], data.y_train[rows]
    start = {name: value.detach() for name, value in model.named_parameters()}
    first, second = (direction(start, key.fold("plane", axis)) for axis in range(2))
    steps = np.linspace(-SPAN, SPAN, points)
    plane = [[loss_at(model, moved(moved(start, first, a), second, b), x, y) for b in steps] for a in steps]
    around = []
    for number in range(directions):
        way = direction(start, key.fold("direction", number))
        ends = [
            [loss_at(model, moved(start, way, side * radius), x, y) for side in (-1, 1)] for radius in RADII
        ]
        around.append([sum(pair) / 2 for pair in ends])
    return {"loss": loss_at(model, start, x, y), "plane": plane, "around": around}


def direction(params: Params, key: Key) -> dict[str, Tensor]:
    """A random direction that has in every filter the length of the model's own; 0 in vectors."""
    found = {}
    for name, value in params.items():
        if value.dim() < 2:
            found[name] = torch.zeros_like(value)
            continue
        drawn = torch.randn(value.shape, generator=key.fold(name).torch())
        lengths = value.flatten(1).norm(dim=1) / drawn.flatten(1).norm(dim=1)
        found[name] = drawn * lengths.reshape(-1, *[1] * (value.dim() - 1))
    return found


def moved(params: Params, way: Params, step: float) -> dict[str, Tensor]:
    """The parameters after a step along a direction."""
    return {name: value + step * way[name] for name, value in params.items()}


def loss_at(model: nn.Module, params: Params, x: Tensor, y: Tensor) -> float:
    """The mean cross entropy of the model with these parameters."""
    total = 0.0
    with torch.no_grad():
        for some, labels in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True):
            outputs = torch.func.functional_call(model, dict(params), (some,))
            total += float(nn.functional.cross_entropy(outputs, labels, reduction="sum"))
    return total / len(x)


def landscape(
    play: Play, *, setting: Setting, seeds: int, points: int, directions: int, samples: int
) -> Outcome:
    """The loss around the final models of FedAvg, FedMut and FedQP, with a number for its sharpness."""
    wanted = entries(LABELS, [setting], seeds)
    measure = partial(surroundings_of, points=points, directions=directions, samples=samples)
    found = {label: some for (label, _), some in answered(play, wanted, measure).items()}
    told = seeds_told(wanted)
    rises = {label: [rise(answer) for answer in some] for label, some in found.items()}
    cells = []
    for label, some in found.items():
        cells.append(cell(label, "training loss", None, [answer["loss"] for answer in some]))
        for radius in TOLD:
            values = [float(each[RADII.index(radius)]) for each in rises[label]]
            cells.append(cell(label, f"sharpness at {radius:g}", None, values))
    remark = (
        f"{told} Sharpness at r: how much the training loss rises when every filter is moved by r times its "
        f"length, mean over {directions} random directions, forward and backward."
    )
    pictures = [
        Picture(
            "surface",
            "Training loss around the final models",
            _surfaces({label: np.array(some[0]["plane"]) for label, some in found.items()}),
            "Seed 0. Two random directions, the same for all, in lengths of filters; the model is the dot.",
        ),
        Picture("sharpness", "Rise of the training loss with the distance", _rising(rises), told),
    ]
    table = Table("Sharpness", cells, setting.title, 4, remark)
    return Outcome([table], pictures, _notes(rises), facts(setting))


def rise(answer: Mapping[str, Any]) -> np.ndarray:
    """[radii]: the sharpness of a model."""
    rises: np.ndarray = np.array(answer["around"]).mean(0) - float(answer["loss"])
    return rises


def _notes(rises: Mapping[str, Sequence[np.ndarray]]) -> list[str]:
    """Seed by seed, because all methods of a seed have the same clients and the same first model."""
    place = RADII.index(TOLD[0])
    told = []
    for label, base in ((FEDMUT, FEDAVG), (FEDQP, FEDAVG), (FEDQP, FEDMUT)):
        pairs = list(zip(rises[label], rises[base], strict=True))
        flatter = sum(bool(a[place] < b[place]) for a, b in pairs)
        told.append(f"{label} is flatter than {base} in {flatter} of {len(pairs)} seeds")
    return [
        "The paper says that mutation leads to flatter places, and shows no measurement. "
        f"At radius {TOLD[0]:g} {', '.join(told)}.",
        "Sharpness is relative to the lengths of the model's filters. It also depends on how far training "
        "has come, and after the same rounds the methods have not the same loss.",
    ]


def _rising(rises: Mapping[str, Sequence[np.ndarray]]) -> Figure:
    curves = [
        seeds_curve(label, slot, np.array(RADII), np.array(some))
        for slot, (label, some) in enumerate(rises.items())
    ]
    figure = line_chart(curves, Axis("Rise of the loss"), Axis("Radius, in lengths of filters"), WIDTH)
    assert figure is not None
    return figure


def _surfaces(planes: Mapping[str, np.ndarray]) -> Figure:
    """A panel for each method, with the same colours and heights in all."""
    low = min(float(plane.min()) for plane in planes.values())
    high = max(float(plane.max()) for plane in planes.values())
    levels = np.linspace(low, high, 16)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.5 * WIDTH, 3.2), layout="constrained")
        panels = figure.subplots(1, len(planes), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (label, plane) in zip(panels, planes.items(), strict=True):
            steps = np.linspace(-SPAN, SPAN, len(plane))
            filled = axes.contourf(steps, steps, plane.T, levels=levels, cmap=HEAT)
            axes.contour(steps, steps, plane.T, levels=levels, colors="white", linewidths=0.5)
            axes.plot([0], [0], "o", color="white", markersize=4, markeredgecolor="black")
            axes.set_title(label)
            axes.set_xlabel("First direction")
            axes.set(aspect="equal", xticks=(-SPAN, 0, SPAN), yticks=(-SPAN, 0, SPAN))
            axes.grid(visible=False)
        panels[0].set_ylabel("Second direction")
        figure.colorbar(filled, ax=panels, label="Training loss", pad=0.02, shrink=0.85, format="%.2f")
    return figure


LANDSCAPE = Experiment(
    "The loss around the final models: does FedQP end in a flatter place?",
    PAPER,
    {
        "quick": partial(landscape, setting=QUICK, seeds=5, points=21, directions=10, samples=1_000),
        "machine": partial(
            landscape,
            setting=MACHINE._replace(rounds=200, every=10),
            seeds=3,
            points=21,
            directions=10,
            samples=2_000,
        ),
        "paper": partial(
            landscape, setting=FULL._replace(beta=0.1), seeds=3, points=21, directions=10, samples=5_000
        ),
    },
)
