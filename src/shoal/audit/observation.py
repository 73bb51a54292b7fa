"""The information that an attacker has about one victim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.core.task import Task
from shoal.core.types import Weights
from shoal.parts.factors import as_matrix, is_matrix
from shoal.solver.torch_sgd import Rule

SPARSE = 0.2  # a tensor with a smaller share of nonzero entries was sparsified
NEGLIGIBLE = 1e-5  # relative to the largest singular value: float32 rounding in place of a zero one


class Window(NamedTuple):
    """The part of a tensor that an upload reveals; all of it if no field is set."""

    mask: Tensor | None = None  # 1 where a number was uploaded
    left: Tensor | None = None  # [rows, rank]: the column space of a matrix that was cut to a low rank
    right: Tensor | None = None  # [columns, rank]: its row space

    def __call__(self, value: Tensor) -> Tensor:
        """The tensor, with everything outside the window set to zero."""
        if self.mask is not None:
            return value * self.mask
        if self.left is None or self.right is None:
            return value
        matrix = as_matrix(value)
        across = self.left @ (self.left.T @ matrix)
        return (across + (matrix - across) @ self.right @ self.right.T).reshape(value.shape)


def window(value: Tensor) -> Window:
    """The window that remains of a tensor after lossy coding.

    A zero from a sparse codec carries no information. A truncated SVD keeps U_k and V_k, in whose directions
    it is exact; the rest was cut off and carries no information either.
    """
    shown = (value != 0).to(value.dtype)
    if is_matrix(value) and shown.mean() > SPARSE:
        u, s, v = torch.linalg.svd(as_matrix(value), full_matrices=False)
        rank = int((s > NEGLIGIBLE * s[0]).sum())
        if 0 < rank < len(s):
            return Window(None, u[:, :rank], v[:rank].T)
    return Window(shown)


class Observation(NamedTuple):
    """The weights that the attacker assumes, the update that it saw, and how the client trained."""

    task: Task
    start: Weights
    update: Mapping[str, Tensor]  # float64, only the tensors that were uploaded
    windows: Mapping[str, Window]
    rule: Rule
    steps: int
    shape: tuple[int, ...]  # of the samples, [n, ...]
    low: float  # the range of the values of a sample
    high: float


class Reconstruction(NamedTuple):
    """The reconstruction that an attack returns."""

    x: Tensor  # [n, ...] float64
    labels: list[int]  # empty for a regression
    value: float  # of the attack's objective at the reconstruction
