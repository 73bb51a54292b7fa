"""Updates that cannot be decomposed: what is not finite must look so to the server, which refuses it."""

import pytest
import torch

from shoal.codecs.low_rank import LowRank
from shoal.core.tree import all_finite
from shoal.core.types import ModelUpdate, Weights
from shoal.parts.factors import spectrum


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
def test_a_cut_does_not_hide_it(bad, shape):
    matrix = torch.ones(shape)
    matrix[-1, -1] = bad  # beyond the rank that is kept
    codec, update = LowRank(0.2), ModelUpdate(Weights({"w": matrix}, {}))
    packet, _ = codec.encode(update)
    assert not all_finite(packet.content)
    assert not all_finite(codec.decode(packet))


def test_what_does_not_converge_is_tried_with_more_digits(monkeypatch):
    matrix = torch.arange(12.0).reshape(3, 4)
    usual, eigh = spectrum(matrix), torch.linalg.eigh

    def stubborn(gram):
        if gram.dtype == torch.float32:
            raise torch.linalg.LinAlgError("failed to converge")
        return eigh(gram)

    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    vectors, values = spectrum(matrix)
    assert vectors.dtype == values.dtype == torch.float32
    torch.testing.assert_close(values[:2], usual[1][:2])
    torch.testing.assert_close(vectors[:, 0].abs(), usual[0][:, 0].abs())
