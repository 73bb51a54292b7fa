"""SITUA-CQ: its measure, the analyses of its figures, and its clusters, which need no training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from shoal.core.key import Key
from shoal.data.kl_band import BandShards, KlBand
from shoal.parts.kl_clusters import kl_clusters
from shoal.report.series import Axis, Curve
from shoal.runs.crowd import fleet_of
from shoal.runs.evaluation import Evaluator
from shoal.runs.result import Result
from shoal.study.reproduce.curves import ACCURACY, picture
from shoal.study.reproduce.experiment import ComparisonTable, Experiment, Findings, RunJobs, compared
from shoal.study.reproduce.table_experiment import Analysis, Results

BASE = "FedAvg"
SUMMARY = "Cluster sizes, and clients without a cluster, by skew and threshold; nothing is trained"
REFERENCE = (
    "Seo, Lee, Ko, Pack, SITUA-CQ, IEEE Internet of Things Journal 2023 (slides and code of the authors)"
)
CLASSES, CLIENTS, SEEDS = 10, 100, 3
BANDS = ((0.2, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0))
THRESHOLDS = (0.8, 0.4, 0.2, 0.05)


def timed_curve(result: Result) -> dict[str, Any]:
    """The summary, and the accuracies (%) with the virtual minutes at which they were reached."""
    minutes = list(accumulate((r["virtual_seconds"] or 0.0) / 60 for r in result.records))
    evaluated = [
        (r, m) for r, m in zip(result.records, minutes, strict=True) if r.get("accuracy") is not None
    ]
    return {
        **result.summary,
        "rounds": [record["round"] for record, _ in evaluated],
        "accuracies": [100 * record["accuracy"] for record, _ in evaluated],
        "minutes": [minute for _, minute in evaluated],
        "virtual_minutes": minutes[-1],
        "minutes_to_goal": None,
        "slow_accuracy": slow_accuracy(result),
    }


def slow_accuracy(result: Result) -> float | None:
    """The final accuracy of the slowest quarter on their own labels; None if speeds change every round."""
    setup = result.setup
    task = setup.federation.task
    fleet = fleet_of(result.spec, task, setup.shards)
    weights = setup.federation.method.model(result.progress.state)
    if fleet is None or fleet.devices.redraw or weights is None:
        return None
    size = fleet.crowd.model_bytes
    counts = [setup.shards.count(client) for client in range(len(setup.shards))]
    spent = [
        fleet.spent(client, 0, size, size, count, "float32").total for client, count in enumerate(counts)
    ]
    slowest = np.argsort(spent, kind="stable")[-(len(spent) // 4) :].tolist()
    evaluator = Evaluator()
    found = [evaluator(task, weights, setup.side.data.test(client))["accuracy"] for client in slowest]
    return float(np.mean(found))


def to_goal(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """The virtual time in which each row reaches FedAvg's final accuracy, and curves against virtual time."""
    cells = []
    for (row, column), answers in results.answers.items():
        goals = [np.mean(base["accuracies"][-10:]) for base in results.answers[BASE, column]]
        reached = [_first(answer, goal) for answer, goal in zip(answers, goals, strict=True)]
        cells.append(compared(row, column, None, reached))
    shown = [
        table._replace(cells=cells) if table.title.endswith("FedAvg's final accuracy") else table
        for table in tables
    ]
    pictures = []
    for place, column in enumerate(results.grid.columns, start=1):
        curves = [
            _curve(row, slot, answers) for slot, (row, answers) in enumerate(results.column(column).items())
        ]
        remark = "First seed only."
        pictures.append(picture(f"curve-{place}", column, remark, curves, ACCURACY, Axis("Virtual minutes")))
    return Analysis(shown, pictures)


def _first(answer: dict[str, Any], goal: float) -> float | None:
    """The virtual minutes after which a moving mean over three rounds reaches the goal."""
    means = np.convolve(answer["accuracies"], np.ones(3) / 3, "valid")
    hits = np.flatnonzero(means >= goal)
    return float(answer["minutes"][hits[0] + 2]) if len(hits) else None


def _curve(row: str, slot: int, answers: Sequence[dict[str, Any]]) -> Curve:
    x, y = np.array(answers[0]["minutes"]), np.array(answers[0]["accuracies"])
    return Curve(row, slot, x, y, np.zeros(len(y)))


def clusters(run_jobs: RunJobs) -> Findings:
    """The authors' label presets, clustered with several thresholds."""
    sizes, left = [], []
    for low, high in BANDS:
        row = f"KL {low:g} to {high:g}"
        mixes = [_mixes(low, high, seed) for seed in range(SEEDS)]
        for threshold in THRESHOLDS:
            found = [kl_clusters(mix, np.ones(CLASSES), threshold) for mix in mixes]
            column = f"theta_d = {threshold:g}"
            members = [[len(cluster) for cluster in some] for some in found]
            sizes.append(compared(row, column, None, [float(np.mean(m)) if m else None for m in members]))
            left.append(compared(row, column, None, [float(CLIENTS - sum(m)) for m in members]))
    remark = f"{CLIENTS} clients, {CLASSES} classes. Mean and standard deviation over {SEEDS} seeds."
    return Findings(
        [
            ComparisonTable("Mean cluster size", sizes, "labels of a client", 1, remark),
            ComparisonTable("Clients without a cluster", left, "labels of a client", 1, remark),
        ],
        notes=[
            "The clients of an unfinished last cluster never train: the more skewed the labels and the "
            "smaller the threshold, the more there are. With `rotate`, they come first the next time."
        ],
    )


def _mixes(low: float, high: float, seed: int) -> np.ndarray:
    """[clients, classes]: the label mixes of the authors' presets."""
    band = KlBand(CLIENTS, 1, low, high)
    rows = tuple(np.zeros(1, np.int64) for _ in range(CLASSES))
    shards = BandShards(band, rows, Key.from_seed(seed))
    return np.array([shards.mix(client) for client in range(CLIENTS)])


EXPERIMENT = Experiment(SUMMARY, REFERENCE, {"quick": clusters, "machine": clusters, "paper": clusters})
