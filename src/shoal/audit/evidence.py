"""What an attacker holds of one victim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.parts.factors import as_matrix, is_matrix
from shoal.solver.torch_sgd import Rule

SPARSE = 0.2  # the share of numbers that are not 0, below which a tensor was made sparse
NEGLIGIBLE = 1e-5  # of the largest singular value: what float32 leaves where a matrix has none


class Window(NamedTuple):
    """The part of a tensor that an upload shows; without any field, all of it."""

    mask: Tensor | None = None  # 1 where a number travelled
    left: Tensor | None = None  # [rows, rank]: the column space of a matrix that was cut to a low rank
    right: Tensor | None = None  # [columns, rank]: its row space

    def __call__(self, value: Tensor) -> Tensor:
        """The tensor with all that cannot be seen set to zero."""
        if self.mask is not None:
            return value * self.mask
        if self.left is None or self.right is None:
            return value
        matrix = as_matrix(value)
        across = self.left @ (self.left.T @ matrix)
        return (across + (matrix - across) @ self.right @ self.right.T).reshape(value.shape)


def window(value: Tensor) -> Window:
    """What a tensor shows after lossy coding.

    A zero of a sparse codec says nothing. A truncated SVD keeps U_k and V_k, in whose directions it is exact:
    the rest was cut off and says nothing either.
    """
    shown = (value != 0).to(value.dtype)
    if is_matrix(value) and shown.mean() > SPARSE:
        u, s, v = torch.linalg.svd(as_matrix(value), full_matrices=False)
        rank = int((s > NEGLIGIBLE * s[0]).sum())
        if 0 < rank < len(s):
            return Window(None, u[:, :rank], v[:rank].T)
    return Window(shown)


class Overheard(NamedTuple):
    """The weights that the attacker believes in, the update that it saw, and how the client trained."""

    task: Task
    start: Weights
    update: Mapping[str, Tensor]  # float64, of the tensors that travelled
    windows: Mapping[str, Window]
    rule: Rule
    steps: int
    shape: tuple[int, ...]  # of the samples, [n, ...]
    low: float  # the range of the values of a sample
    high: float


class Rebuilt(NamedTuple):
    """What an attack found."""

    x: Tensor  # [n, ...] float64
    labels: list[int]  # empty for a regression
    value: float  # of the attack's objective
