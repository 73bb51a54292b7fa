"""Reproductions of tables and figures of papers: the experiments by name.

Each one is described by a data file in `tables/`. A plain table of numbers needs only that file and a line
here; an analysis adds what a data file cannot express, and a custom measure extracts what the summary of a
run lacks.
"""

from __future__ import annotations

from pathlib import Path

from shoal.study.reproduce import (
    dsvd,
    dsvd_theorem,
    fedpca,
    fedqp,
    fedqp_landscape,
    fsi_digits,
    fsi_houses,
    genefl,
    genefl_figure4,
    genefl_traffic,
    situa,
)
from shoal.study.reproduce.experiment import Experiment
from shoal.study.reproduce.grid import Measure
from shoal.study.reproduce.table_experiment import Analyse, experiment, plain, summary_and_curve

TABLES = Path(__file__).parent / "tables"

# the analysis and the measure of each experiment; a plain table has (plain, summary_and_curve)
FUNCTIONS: dict[str, tuple[Analyse, Measure]] = {
    "fsi-table1": (fsi_houses.table1, fsi_houses.error_of),
    "fsi-figure7": (fsi_houses.figure7, fsi_houses.error_of),
    "fsi-figure8": (fsi_houses.figure8, fsi_houses.error_of),
    "fsi-digits": (fsi_digits.digits, fsi_digits.confusion_of),
    "fsi-one-class": (plain, summary_and_curve),
    "fsi-features": (plain, summary_and_curve),
    "fedqp-table1": (fedqp.rank, fedqp.accuracy_curve),
    "fedqp-table2": (fedqp.rank, fedqp.accuracy_curve),
    "fedqp-figure3": (fedqp.figure3, fedqp.accuracy_curve),
    "fedqp-ablation": (fedqp.ablation, fedqp.accuracy_curve),
    "fedqp-landscape": (fedqp_landscape.landscape, fedqp_landscape.surroundings_of),
    "dsvd-table2": (dsvd.table2, dsvd.robustness),
    "dsvd-table3": (dsvd.table3, dsvd.robustness),
    "dsvd-figure1": (dsvd.figure1, dsvd.robustness),
    "dsvd-ablation": (dsvd.ablation, dsvd.robustness),
    **{f"genefl-table{number}": (plain, genefl.client_curve) for number in range(1, 8)},
    "genefl-figure3": (genefl.figure3, genefl.client_curve),
    "genefl-figure4": (genefl_figure4.figure4, genefl_figure4.reconstructions_of),
    "genefl-figure5": (genefl.figure5, genefl.client_curve),
    "genefl-figure6": (genefl.figure6, genefl.client_curve),
    "genefl-newcomers": (genefl.newcomers, genefl.starts_of),
    "situa-curve": (situa.to_goal, situa.timed_curve),
    "situa-count": (situa.to_goal, situa.timed_curve),
    "situa-levels": (situa.to_goal, situa.timed_curve),
}
EXPERIMENTS: dict[str, Experiment] = {
    **{name: experiment(TABLES / f"{name}.toml", *functions) for name, functions in FUNCTIONS.items()},
    "dsvd-theorem1": dsvd_theorem.EXPERIMENT,
    "fedpca-merge": fedpca.EXPERIMENT,
    "genefl-traffic": genefl_traffic.EXPERIMENT,
    "situa-clusters": situa.EXPERIMENT,
}

__all__ = ["EXPERIMENTS", "Experiment"]
