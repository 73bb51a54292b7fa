"""Weng et al., FedQP: the loss around the final models. Are they in flatter minima?

The paper argues with flat minima (its figure 1 sketches them) and leaves pictures of the loss to future work,
so it has no numbers to compare with.

Directions are random and filter-normalised (Li et al., Visualizing the Loss Landscape of Neural Nets,
NeurIPS 2018): each filter of a direction has the norm of the model's filter, so that a step of 1 moves each
filter by its own norm, and a model with large weights does not look flat just because of them. Biases and
normalisation layers are not moved. All methods share the same random numbers. Sharpness at radius r is the
mean, over directions, of the loss at a step of r minus the loss of the model, on samples of the training
set. Every direction is taken forward and backward, which cancels the slope of a model that has not
converged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from shoal.core.key import Key
from shoal.report.canvas import HEAT, STYLE, WIDTH
from shoal.report.series import Axis, seeds_curve
from shoal.runs.result import Result
from shoal.study.reproduce.curves import picture
from shoal.study.reproduce.experiment import ComparisonTable, Picture, compared
from shoal.study.reproduce.fedqp import FEDAVG, FEDMUT, FEDQP
from shoal.study.reproduce.table_experiment import Analysis, Results

SPAN = 1.0  # extent of the surface to each side, in filter norms
RADII = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SHOWN = (0.5, 1.0)  # the radii of the table
CHUNK = 1000  # samples per forward pass

Params = Mapping[str, Tensor]


def surroundings_of(result: Result, *, points: int, directions: int, samples: int) -> dict[str, Any]:
    """The loss of the final model, on a plane through it, and in random directions.

    `plane` is [points, points], by first and second direction; `around` is [directions, radii], the mean of
    the steps forward and backward.
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
        towards = direction(start, key.fold("direction", number))
        ends = [
            [loss_at(model, moved(start, towards, side * radius), x, y) for side in (-1, 1)]
            for radius in RADII
        ]
        around.append([sum(pair) / 2 for pair in ends])
    return {"loss": loss_at(model, start, x, y), "plane": plane, "around": around}


def direction(params: Params, key: Key) -> dict[str, Tensor]:
    """A random direction with the filter norms of the model; 0 for biases and other vectors."""
    found = {}
    for name, value in params.items():
        if value.dim() < 2:
            found[name] = torch.zeros_like(value)
            continue
        noise = torch.randn(value.shape, generator=key.fold(name).torch())
        norms = value.flatten(1).norm(dim=1) / noise.flatten(1).norm(dim=1)
        found[name] = noise * norms.reshape(-1, *[1] * (value.dim() - 1))
    return found


def moved(params: Params, towards: Params, step: float) -> dict[str, Tensor]:
    """The parameters after a step along a direction."""
    return {name: value + step * towards[name] for name, value in params.items()}


def loss_at(model: nn.Module, params: Params, x: Tensor, y: Tensor) -> float:
    """The mean cross entropy of the model with these parameters."""
    total = 0.0
    with torch.no_grad():
        for some, labels in zip(torch.split(x, CHUNK), torch.split(y, CHUNK), strict=True):
            outputs = torch.func.functional_call(model, dict(params), (some,))
            total += float(nn.functional.cross_entropy(outputs, labels, reduction="sum"))
    return total / len(x)


def landscape(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The training loss around the final models, and its sharpness."""
    found = results.column("")
    over_seeds, directions = results.text("{over_seeds}"), results.scale.measure["directions"]
    rises = {row: [rise(answer) for answer in answers] for row, answers in found.items()}
    cells = []
    for row, answers in found.items():
        cells.append(compared(row, "training loss", None, [answer["loss"] for answer in answers]))
        for radius in SHOWN:
            values = [float(each[RADII.index(radius)]) for each in rises[row]]
            cells.append(compared(row, f"sharpness at {radius:g}", None, values))
    remark = (
        f"{over_seeds} Sharpness at r: the rise of the training loss when every filter is moved by r times "
        f"its norm, as the mean over {directions} random directions, forward and backward."
    )
    pictures = [
        Picture(
            "surface",
            "Training loss around the final models",
            _surfaces({row: np.array(answers[0]["plane"]) for row, answers in found.items()}),
            "Seed 0. Two random directions, the same for all, in filter norms; the dot marks the model.",
        ),
        picture(
            "sharpness",
            "Rise of the training loss with the distance",
            over_seeds,
            [
                seeds_curve(row, i, np.array(RADII), np.array(some))
                for i, (row, some) in enumerate(rises.items())
            ],
            Axis("Rise of the loss"),
            Axis("Radius, in filter norms"),
        ),
    ]
    table = ComparisonTable("Sharpness", cells, results.text(results.corner), 4, remark)
    return Analysis([table], pictures, {"flatter": _flatter(rises)})


def rise(answer: Mapping[str, Any]) -> np.ndarray:
    """[radii]: the sharpness of a model at each radius."""
    rises: np.ndarray = np.array(answer["around"]).mean(0) - float(answer["loss"])
    return rises


def _flatter(rises: Mapping[str, Sequence[np.ndarray]]) -> str:
    """Compare seed by seed, since with the same seed, methods share the clients and the initial model."""
    place = RADII.index(SHOWN[0])
    found = []
    for row, base in ((FEDMUT, FEDAVG), (FEDQP, FEDAVG), (FEDQP, FEDMUT)):
        pairs = list(zip(rises[row], rises[base], strict=True))
        flatter = sum(bool(a[place] < b[place]) for a, b in pairs)
        found.append(f"{row} is flatter than {base} in {flatter} of {len(pairs)} seeds")
    return ", ".join(found)


def _surfaces(planes: Mapping[str, np.ndarray]) -> Figure:
    """One panel per method, with a common colour scale."""
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
