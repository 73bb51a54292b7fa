"""Zeng, Self-adaptive Federated Swarm Intelligence: handwritten digits, figures 9 and 10.

Ten clients hold one digit each, and ten one-versus-all models are sought by a swarm of 20 particles each.
Settings that the paper leaves open are those of the author's notebooks: a first step size of 0.001, a
patience of 6. The author starts in [0, 1) and shifts the logarithms of the loss by 0.001; our default
starts nearer to 0 and takes the exact loss. Both are here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from shoal.report.canvas import WIDTH
from shoal.report.charts import line_chart
from shoal.report.heat import heat_map
from shoal.report.series import Axis, Curve
from shoal.runs.runner import Result
from shoal.spec import Spec, from_table
from shoal.study.jobs import Job
from shoal.study.reproduce.experiment import Experiment, Outcome, Picture, Play, Table, cell
from shoal.study.reproduce.fsi_houses import PAPER

PAPER_ACCURACY = 80.2
PAPER_DIGITS = (95, 95, 79, 71, 92, 67, 83, 91, 70, 59)  # of 100 each
CLASSES = [str(digit) for digit in range(10)]

# where particles start, and the loss
WAYS: Mapping[str, Mapping[str, Any]] = {
    "[0, 0.01), exact": {"initial_range": 0.01, "loss": "stable"},
    "[0, 1), exact": {"initial_range": 1.0, "loss": "stable"},
    "[0, 0.01), shifted": {"initial_range": 0.01, "loss": "paper"},
    "[0, 1), shifted": {"initial_range": 1.0, "loss": "paper"},
}
OURS, FAR, _, AUTHORS = WAYS


def digits(epochs: int, seed: int, points: int, **fields: Any) -> Spec:
    """Ten clients of one digit each; `points` rounds, so many times the models are judged."""
    method = {"w1": 0.0, "w2": 0.3, "particles": 20, "alpha": 0.001, "patience": 6}
    return from_table(
        {
            "seed": seed,
            "rounds": points,
            "task": {"dataset": "mnist5k", "model": "logistic_ova", "crop": True},
            "partition": {"kind": "one_class", "clients": 10},
            "selector": "all",
            "method": {"name": "fsi", "epochs": epochs // points, **method, **fields},
            "evaluate": {"clients": 0, "metrics": ["accuracy"]},
            "checkpoint": {"every": 0},
        }
    )


def confusion_of(result: Result) -> dict[str, Any]:
    """How test digits were taken for one another, and the loss of each model after each round."""
    data = result.dataset
    with torch.no_grad():  # sigmoids, not outputs: those of different models differ by orders of magnitude
        # in float64 as the run itself judges: in float32 too many of them would be 1
        predicted = torch.sigmoid(result.model().double()(data.x_test.double())).argmax(1)
    counts = np.zeros((data.classes, data.classes), int)
    np.add.at(counts, (data.y_test.numpy(), predicted.numpy()), 1)
    return {"confusion": counts.tolist(), "losses": [record["problem_losses"] for record in result.records]}


def learned(play: Play, *, epochs: int, seeds: Mapping[str, int], points: int = 30) -> Outcome:
    """Accuracy of all and of each digit, confusion matrix and training curves; so many seeds of each way."""
    jobs = {
        way: [
            Job(
                f"range={WAYS[way]['initial_range']:g}-{WAYS[way]['loss']}-seed{seed}",
                digits(epochs, seed, points, **WAYS[way]),
                confusion_of,
            )
            for seed in range(count)
        ]
        for way, count in seeds.items()
    }
    answers = play([job for some in jobs.values() for job in some])
    found = {way: [answers[job.name] for job in some] for way, some in jobs.items()}
    matrices = {way: [np.array(a["confusion"]) for a in some] for way, some in found.items()}
    over = "Seeds: " + ", ".join(f"{count} of {way}" for way, count in seeds.items()) + "."
    tables = [
        Table(
            "All digits",
            [
                cell(way, "accuracy (%)", PAPER_ACCURACY, [100 * m.trace() / m.sum() for m in some])
                for way, some in matrices.items()
            ],
            "start, loss",
            remark=f"{over} The paper's one number stands beside all; the author's code is {AUTHORS}.",
        ),
        Table(
            "Each digit, accuracy (%)",
            [
                cell(name, way, PAPER_DIGITS[place], [100 * m[place, place] / m[place].sum() for m in some])
                for place, name in enumerate(CLASSES)
                for way, some in matrices.items()
            ],
            "digit",
            1,
            over,
        ),
    ]
    return Outcome(tables, _pictures(found, epochs), facts=_facts(epochs))


def _pictures(found: Mapping[str, Sequence[Mapping[str, Any]]], epochs: int) -> list[Picture]:
    matrix = np.array(found[OURS][0]["confusion"], float)
    matrix[matrix == 0] = np.nan
    heat = heat_map(matrix, CLASSES, CLASSES, ("True digit", "Taken for"), "Test digits", root=True)
    losses = np.array(found[OURS][0]["losses"], float)  # [points, models]
    x = (1.0 + np.arange(len(losses))) * (epochs // len(losses))
    curves = [
        Curve(f"model {name}", place, x, losses[:, place], np.zeros(len(x)))
        for place, name in enumerate(CLASSES)
    ]
    lines = line_chart(curves, Axis("Training loss of the best particle"), Axis("Epochs"), WIDTH)
    assert lines is not None
    told = f"Start in {OURS} loss, seed 0."
    return [
        Picture("figure9", "Confusion of the test set", heat, f"{told} 100 digits a class."),
        Picture("figure10", "Training of the ten models", lines, told),
    ]


def _facts(epochs: int) -> dict[str, str]:
    return {
        "Data set": "mnist5k, cropped to 20 x 20",
        "Clients": "10 of one digit each",
        "Particles": "20",
        "Epochs": f"{epochs:,}",
    }


SOME = {OURS: 3, FAR: 1}  # as many as two processors play in a minute
DIGITS = Experiment(
    "Figures 9 and 10: accuracy on digits, confusion and training curves",
    PAPER,
    {
        "quick": partial(learned, epochs=1_500, seeds=SOME),
        "machine": partial(learned, epochs=1_500, seeds=dict.fromkeys(WAYS, 3)),
        "paper": partial(learned, epochs=1_500, seeds=SOME),
    },
)
