"""Trimmed mean and median: each coordinate is averaged on its own, without its extremes.

Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates,
ICML 2018, Algorithm 1, options I and II.

    median:        w_p <- w_p + median of D_1p ... D_np                          -> `Median`
    trimmed mean:  w_p <- w_p + mean of D_1p ... D_np without the b smallest and
                   the b largest                                                 -> `trimmed`

The median is the trimmed mean that drops all but the middle one or two.

Departures: D_i is the change by local training, not a gradient. The paper's b is a share beta of all clients;
`trim` may be a share or a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from shoal.aggregators.aggregator import check_amount, count_of
from shoal.aggregators.matrix import Decision, MatrixRule, UpdateMatrix, in_pieces
from shoal.core.errors import SpecError


def trimmed(rows: Tensor, trim: int) -> tuple[Tensor, Tensor]:
    """The mean of each column without its `trim` smallest and largest numbers, and the share of the columns
    in which each row was kept. Rows that tie with the last one kept share its place."""
    from shoal.kernels.trimming import trim_between  # few runs need it

    numbers = rows.float().cpu().contiguous().numpy()
    means = np.empty(numbers.shape[1])
    kept = sum(in_pieces(lambda first, last: trim_between(numbers, trim, means, first, last), means.size))
    return torch.from_numpy(means).to(rows.device), torch.from_numpy(kept / means.size)


@dataclass(frozen=True)
class TrimmedMean(MatrixRule):
    """Averages each coordinate without its smallest and largest values."""

    weighs: ClassVar[bool] = False

    trim: float = 0.2  # values dropped on each side: a number, or a share of the cohort

    def __post_init__(self) -> None:
        check_amount("trim", self.trim, 0.5)

    def check_cohort(self, clients: int) -> None:
        """See `Aggregator`."""
        dropped = count_of(self.trim, clients)
        if clients <= 2 * dropped:
            raise SpecError(
                f"trimmed_mean with trim = {self.trim:g} drops {2 * dropped} of {clients} clients a round, "
                "which leaves none; let more take part, or lower trim"
            )

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        n = len(updates.ids)
        return Decision(state, *trimmed(updates.rows, min(count_of(self.trim, n), (n - 1) // 2)))


@dataclass(frozen=True)
class Median(MatrixRule):
    """Takes the median of each coordinate: the mean of the middle two where their number is even."""

    weighs: ClassVar[bool] = False

    def decide(self, state: Any, updates: UpdateMatrix) -> Decision:
        """See `MatrixRule`."""
        return Decision(state, *trimmed(updates.rows, (len(updates.ids) - 1) // 2))
