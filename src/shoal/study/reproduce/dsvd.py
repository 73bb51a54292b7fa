"""DSVD-FL: its measures, and the analyses of its tables, learning curves and ablation."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.report.table import over_seeds
from shoal.runs.result import Result
from shoal.study.arena import measure
from shoal.study.reproduce.curves import learning_curves
from shoal.study.reproduce.datafile import TableSpec, Value
from shoal.study.reproduce.experiment import ComparisonTable, PaperNumber, Picture, compared
from shoal.study.reproduce.table_experiment import Analysis, Results
from shoal.study.robustness import degradation, quotient, tolerance

FEDAVG, QFEDAVG, DSVD = "FedAvg", "qFedAvg", "DSVD-FL"
PAPERS = (FEDAVG, "FedProx", "FedCPA", QFEDAVG, DSVD)
NONE, FLIPPED, POISONED = "no attack", "label flipping", "model poisoning"
SPLITS = ("IID", "non-IID")
FINAL, LOSS, SPEED, QUOTIENT, KEPT = (
    *("final accuracy", "accuracy degradation", "convergence speed"),
    *("robustness quotient", "attack tolerance"),
)  # the metrics of Table 2
PRINTED, ADAPTIVE = "as printed", "adaptive"
CHOICES = ("[0.8, 0.1, 0.1]", "[0.1, 0.8, 0.1]", "[0.1, 0.1, 0.8]")  # dominated by directions, sizes, or both
EXTREME = "[0.8, 100, 10000]"


def robustness(result: Result) -> dict[str, Any]:
    """The arena's measures, in shares and seconds, and the accuracy (%) after each round."""
    seconds = [record["seconds"] for record in result.records]
    return {
        **measure(result),
        "seconds_a_round": sum(seconds) / len(seconds),
        "accuracies": [100 * record["accuracy"] for record in result.records],
    }


def mean(answers: Sequence[Mapping[str, Any]], field: str) -> float:
    """The mean of a field over seeds."""
    return statistics.fmean(answer[field] for answer in answers)


def best_of(means: Mapping[str, float]) -> str:
    """The row with the highest mean; the first one in case of a tie."""
    return max(means, key=lambda row: means[row])


# -- Table 2


def table2(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Final accuracy, degradation, quotient, tolerance and convergence under attack."""
    remark = results.text(
        f"Mean over {FLIPPED} and {POISONED}. {{over_seeds}} The paper does not say which attack it uses."
    )
    attacked, best = [], []
    for split in SPLITS:
        cells = [
            under_attack(results, row, split, metric, metric)
            for row in results.grid.rows
            for metric in (FINAL, LOSS, QUOTIENT, KEPT)
        ]
        attacked.append(ComparisonTable(f"Under attack, {split}", cells, results.corner, remark=remark))
        finals = {c.row: c.ours or 0.0 for c in cells if c.column == FINAL and c.row in PAPERS}
        best.append(f"{best_of(finals)} ({split})")
    speeds = [
        under_attack(results, row, split, SPEED, split) for row in results.grid.rows for split in SPLITS
    ]
    title = "Convergence: the first round with 95 % of the final accuracy"
    convergence = ComparisonTable(title, speeds, results.corner, 1, remark)
    return Analysis([*attacked, convergence, *tables], words={"best": " and ".join(best)})


def under_attack(results: Results, row: str, split: str, metric: str, column: str) -> PaperNumber:
    """A metric of Table 2; for each seed, the mean over both attacks."""
    runs = [results.answers[row, f"{split}, {attack}"] for attack in (NONE, FLIPPED, POISONED)]
    stats = [
        over_seeds([table2_metric(metric, clean, attacked) for attacked in both])
        for clean, *both in zip(*runs, strict=True)
    ]
    values = [None if stat is None else stat.mean for stat in stats]
    return compared(row, column, results.numbers[split].find(row, metric), values)


def table2_metric(metric: str, clean: Mapping[str, Any], attacked: Mapping[str, Any]) -> float | None:
    """A metric of Table 2, from the answers of a run under attack and of the same run without one."""
    found: Mapping[str, float | None] = {
        FINAL: attacked["final"],
        LOSS: degradation(clean["final"], attacked["final"]),
        SPEED: attacked["convergence_round"],
        QUOTIENT: quotient(attacked["final"], attacked["attackers_share"]),
        KEPT: tolerance(clean["final"], attacked["final"]),
    }
    return found[metric]


# -- Table 3


def table3(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Which row has the highest final accuracy for each number of clients."""
    best = []
    for column in results.grid.columns:
        finals = {row: mean(answers, "final") for row, answers in results.column(column).items()}
        best.append(f"{best_of(finals)} ({column})")
    return Analysis(tables, words={"best": ", ".join(best)})


# -- figures


def curves(results: Results, name: str, remark: str) -> list[Picture]:
    """The learning curves of each column."""
    return [
        learning_curves(results, column, f"{name}-{place}", column, remark)
        for place, column in enumerate(results.grid.columns, start=1)
    ]


def figure1(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Learning curves, and the number of the paper's methods that are worse than DSVD-FL."""
    behind = []
    for column in results.grid.columns:
        answers = results.column(column)
        means = {row: mean(answers[row], "converged") for row in PAPERS}
        worse = sum(value < means[DSVD] for value in means.values())
        behind.append(f"{worse} of {len(means) - 1} ({column})")
    pictures = curves(results, "figure1", results.text("{over_seeds}"))
    return Analysis(tables, pictures, {"behind": ", ".join(behind)})


def ablation(results: Results, tables: Sequence[ComparisonTable]) -> Analysis:
    """Each choice of the alphas, as printed and adaptive: accuracy, and the weight given to attackers."""
    rules = {rule: results.with_rows_ending(f", {rule}") for rule in (PRINTED, ADAPTIVE)}
    weight_remark = "Mean over rounds; with equal weights for all clients it is 10. {over_seeds}"
    shown = [
        some.table(TableSpec(f"{title}, {rule}", (Value(field, unit="%"),), decimals=1, remark=remark))
        for title, field, remark in (
            ("Test accuracy (%) after the last round", "final", "{over_seeds}"),
            ("Weight given to attackers (%)", "attackers_weight", weight_remark),
        )
        for rule, some in rules.items()
    ]
    printed = rules[PRINTED]
    pictures = curves(printed, "figure2", results.text("As printed. {over_seeds}"))
    words = {"best": best_choices(printed), "correlation": correlations(printed)}
    return Analysis([*shown, first_rounds(printed)], pictures, words)


def first_rounds(printed: Results) -> ComparisonTable:
    """The accuracy in the first two rounds, for which the paper has numbers."""
    column, numbers = next(iter(printed.grid.columns)), printed.numbers["first_rounds"]
    cells = [
        compared(row, name, numbers.find(row, name), [answer["accuracies"][place] for answer in answers])
        for row, answers in printed.column(column).items()
        for name, place in (("round 1", 0), ("round 2", 1), ("last round", -1))
    ]
    remark = f"{column}; the paper does not say which setting its numbers are for. {{over_seeds}}"
    title = "Test accuracy (%) in the first rounds, as printed"
    return ComparisonTable(title, cells, printed.corner, 1, printed.text(remark))


def best_choices(printed: Results) -> str:
    """The best of three choices in each column, and its lead over the worst."""
    found = []
    for column in printed.grid.columns:
        finals = {row: 100 * mean(printed.answers[row, column], "final") for row in CHOICES}
        best = best_of(finals)
        found.append(f"{best} by {finals[best] - min(finals.values()):.1f} ({column})")
    return ", ".join(found)


def correlations(printed: Results) -> str:
    """The correlation of the accuracies after round 2 and after the last round, in each column.

    The extreme choice is left out: a run far behind all others would make any correlation 1.
    """
    found = []
    for column in printed.grid.columns:
        rows = printed.column(column).items()
        runs = [answer["accuracies"] for row, answers in rows if row != EXTREME for answer in answers]
        early, late = [run[1] for run in runs], [run[-1] for run in runs]
        if len(set(early)) > 1 and len(set(late)) > 1:
            found.append(f"{statistics.correlation(early, late):.2f} ({column}, {len(runs)} runs)")
    return ", ".join(found) or "not defined"
