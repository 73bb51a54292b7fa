"""An update that is not finite must look so after it was factorised: the server refuses what it sees."""

import pytest
import torch

from shoal.core.tree import all_finite
from shoal.core.types import Weights
from shoal.parts.factors import compressed


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
def test_a_cut_does_not_hide_it(bad, shape):
    matrix = torch.ones(shape)
    matrix[-1, -1] = bad  # beyond the rank that is kept
    assert not all_finite(compressed(Weights({"w": matrix}, {}), 0.2, stacked=False))
