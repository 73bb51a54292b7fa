"""Tables and figures of papers, repeated: the experiments by name."""

from __future__ import annotations

from shoal.study.reproduce import (
    dsvd_curves,
    dsvd_robustness,
    dsvd_table3,
    fedqp_curves,
    fedqp_landscape,
    fedqp_tables,
    fsi_digits,
    fsi_houses,
)
from shoal.study.reproduce.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "fsi-table1": fsi_houses.TABLE1,
    "fsi-figure7": fsi_houses.FIGURE7,
    "fsi-figure8": fsi_houses.FIGURE8,
    "fsi-digits": fsi_digits.DIGITS,
    "fedqp-table1": fedqp_tables.TABLE1,
    "fedqp-table2": fedqp_tables.TABLE2,
    "fedqp-figure3": fedqp_curves.FIGURE3,
    "fedqp-ablation": fedqp_curves.ABLATION,
    "fedqp-landscape": fedqp_landscape.LANDSCAPE,
    "dsvd-table2": dsvd_robustness.TABLE2,
    "dsvd-table3": dsvd_table3.TABLE3,
    "dsvd-figure1": dsvd_curves.FIGURE1,
    "dsvd-ablation": dsvd_curves.ABLATION,
}

__all__ = ["EXPERIMENTS", "Experiment"]
