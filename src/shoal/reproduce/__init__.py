"""Tables and figures of papers, repeated: the experiments by name."""

from __future__ import annotations

from shoal.reproduce import fsi_digits, fsi_houses
from shoal.reproduce.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "fsi-table1": fsi_houses.TABLE1,
    "fsi-figure7": fsi_houses.FIGURE7,
    "fsi-figure8": fsi_houses.FIGURE8,
    "fsi-digits": fsi_digits.DIGITS,
}

__all__ = ["EXPERIMENTS", "Experiment"]
