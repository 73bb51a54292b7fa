import math

import pytest
import torch

from shoal.audit.measures import labels_found, matched, mean_psnr, psnr


def test_psnr_by_hand():
    black = torch.zeros(4)
    assert psnr(black, torch.full((4,), 0.1)) == pytest.approx(20.0)  # 10 log10(1 / .01)
    assert psnr(black, torch.full((4,), 0.1), 0.0, 10.0) == pytest.approx(40.0)
    assert psnr(black, torch.full((4,), -3.0)) == math.inf  # clipped first


def test_what_is_perfect_does_not_carry_the_mean():
    assert mean_psnr([math.inf, 20.0]) == 60.0


def test_reconstructions_are_compared_with_the_originals_that_they_are_nearest_to():
    originals, rebuilt = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.9, 1.0], [0.1, 0.0]])
    assert torch.equal(matched(originals, rebuilt), rebuilt.flip(0))


def test_labels_count_in_any_order():
    assert labels_found([1, 1, 2, 3], [3, 1, 2, 2]) == 0.75
