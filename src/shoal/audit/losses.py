"""What the losses of a swarm reveal: clients that send losses instead of gradients send equations.

A linear regression's summed squared error is a quadratic function of the d + 1 parameters,

    L(t) = t' A t - 2 b' t + c,   A = [X 1]'[X 1],  b = [X 1]'y,  c = y'y,

so that (d + 1)(d + 2) / 2 + (d + 1) + 1 answers determine A, b and c, whatever the server asked. For a client
with a single sample, one-versus-all logistic losses give the sample itself: L = log(1 + exp(z)) for a wrong
class and log(1 + exp(-z)) for the right one, hence z = x't + t0, a linear equation in x from every answer.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Statistics(NamedTuple):
    """The sufficient statistics of a linear regression."""

    gram: Tensor  # [d + 1, d + 1]: [X 1]'[X 1]
    moment: Tensor  # [d + 1]: [X 1]'y
    square: Tensor  # []: y'y

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> Statistics:
        """The statistics of these samples."""
        rows = torch.cat([x.double().flatten(1), torch.ones(len(x), 1, dtype=torch.float64)], 1)
        target = y.double()
        return cls(rows.T @ rows, rows.T @ target, target @ target)


def unknowns(width: int) -> int:
    """The number of coefficients of a quadratic in `width` parameters, and so of the answers needed."""
    return width * (width + 1) // 2 + width + 1


def regression(points: Tensor, answers: Tensor) -> Statistics:
    """The statistics, from the answers [n] to the questions [n, width], all in float64."""
    width = points.shape[1]
    rows, columns = torch.triu_indices(width, width)
    doubled = torch.where(rows == columns, 1.0, 2.0).double()
    terms = [doubled * points[:, rows] * points[:, columns], -2 * points, torch.ones(len(points), 1).double()]
    found = _solved(torch.cat(terms, 1), answers)
    size = len(rows)
    gram = torch.zeros(width, width, dtype=torch.float64)
    gram[rows, columns] = found[:size]
    gram[columns, rows] = found[:size]
    return Statistics(gram, found[size : size + width], found[-1])


def logistic_sample(points: Tensor, answers: Tensor) -> tuple[Tensor, int]:
    """The only sample of a client and its class.

    They follow from the answers [n, classes] to the questions [n, classes, d + 1], whose last coordinate is
    the bias. Each class alone determines the sign of its equations, since a sample's own last coordinate is
    1; then all classes together determine the sample.
    """
    margins = answers + torch.log(-torch.expm1(-answers))  # z with log(1 + exp(z)) = L
    usable = margins.isfinite()  # a loss of 0 carries no information
    classes = range(answers.shape[1])
    ends = [float(_solved(points[usable[:, c], c], margins[usable[:, c], c])[-1]) for c in classes]
    label = min(classes, key=ends.__getitem__)
    margins[:, label] = -margins[:, label]
    return _solved(points[usable], margins[usable])[:-1], label


def _solved(matrix: Tensor, values: Tensor) -> Tensor:
    """Least squares after normalising rows, then columns, so that far points do not drown near ones."""
    far = matrix.norm(dim=1, keepdim=True)
    matrix, values = matrix / far, values[:, None] / far
    lengths = matrix.norm(dim=0)
    found: Tensor = torch.linalg.lstsq(matrix / lengths, values, driver="gelsd").solution[:, 0] / lengths
    return found
