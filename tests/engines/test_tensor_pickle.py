"""Objects for the actors of a cluster: large tensors travel apart, and come back the same."""

import torch

from shoal.core.types import ModelMessage, Weights
from shoal.engines.tensor_pickle import pack, unpack


def test_large_tensors_travel_apart_and_come_back():
    large, small = torch.arange(10_000, dtype=torch.float32).reshape(100, 100), torch.ones(3)
    sent = ModelMessage(Weights({"a": large, "b": large.t()}, {"n": small}))
    packed = pack((sent, lambda x: x + 1))
    assert [array.nbytes for array in packed.arrays] == [40_000, 40_000]
    assert len(packed.pickled) < 4_000
    found, function = unpack(packed)
    assert torch.equal(found.model.params["a"], large)
    assert torch.equal(found.model.params["b"], large.t())
    assert torch.equal(found.model.buffers["n"], small)
    assert function(1) == 2


def test_a_copy_can_be_written_to_without_changing_what_was_packed():
    large = torch.zeros(5_000)
    packed = pack(large)
    unpack(packed)[0] = 1.0
    assert float(unpack(packed, copied=False).sum()) == 0.0


def test_formats_that_numpy_lacks_travel_too():
    large = torch.ones(5_000, dtype=torch.bfloat16)
    packed = pack(large)
    assert packed.arrays == []
    assert torch.equal(unpack(packed), large)
