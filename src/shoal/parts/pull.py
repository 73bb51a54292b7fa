"""A quadratic pull towards a model other than the one that training starts from."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from shoal.core.term import Term
from shoal.core.training import Start
from shoal.core.tree import elementwise
from shoal.core.types import Weights


def pulled(
    start: Weights,
    centre: Mapping[str, Tensor],
    mu: float,
    terms: tuple[Term, ...],
    proximal: tuple[Term, ...],
) -> Start:
    """Training from `start` with `(mu / 2) ||w - centre||^2` in the loss.

    Its gradient is that of the proximal term around the start plus a constant, so solvers need no other
    support: `mu (w - centre) = mu (w - start) + mu (start - centre)`. `proximal` are the terms including the
    proximal term with this mu; without a pull, `terms` are used.
    """
    if not mu:
        return Start(start, terms)
    if mu == 1:  # the solver does the subtraction
        return Start(start, proximal, start.params, centre)
    return Start(start, proximal, elementwise(lambda w, c: (w - c).mul_(mu), start.params, centre))
