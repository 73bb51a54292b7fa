"""Laws that every codec of the catalogue keeps."""

import pytest
import torch
from toy import KEY, same

from shoal.codecs import CODECS
from shoal.codecs.low_rank import LowRank
from shoal.core.codec import Packet
from shoal.core.types import ModelUpdate, Weights

EVERY = pytest.mark.parametrize("name", CODECS)

MADE = {name: codec() for name, codec in CODECS.items()} | {"low_rank": LowRank(1.0)}  # less is another law
RELATIVE = {"raw": 0.0, "float16": 2**-11, "low_rank": 0.0}  # the stated error of each
ABSOLUTE = {"raw": 0.0, "float16": 2**-25, "low_rank": 0.0}


def payload():
    draw = KEY.fold("payload").torch()
    values = {
        "matrix": torch.randn(7, 5, generator=draw),
        "tiny": 1e-6 * torch.randn(9, generator=draw),
        "large": 1e4 * torch.rand(9, generator=draw),
        "double": torch.randn(3, generator=draw, dtype=torch.float64),
        "zero": torch.zeros(4),
        "none": torch.zeros(0),
        "scalar": torch.tensor(0.7),
    }
    counters = {"counter": torch.tensor(12345678901), "flag": torch.tensor([True, False])}
    return ModelUpdate(Weights(values, counters))


@EVERY
def test_within_the_stated_error_and_other_leaves_exact(name):
    codec = MADE[name]
    packet, _ = codec.encode(payload(), key=KEY)
    back = codec.decode(packet)
    assert same(back.update.buffers, payload().update.buffers)
    for leaf, value in payload().update.params.items():
        found = back.update.params[leaf]
        assert found.dtype == value.dtype
        allowed = RELATIVE[name] * value.abs() + ABSOLUTE[name]
        assert bool(((found - value).abs() <= allowed).all()), leaf


@EVERY
def test_its_length_is_the_length_on_the_wire(name):
    codec = MADE[name]
    packet, _ = codec.encode(payload(), key=KEY)
    assert packet.nbytes == len(bytes(packet))
    again = Packet.from_bytes(bytes(packet))
    assert same(codec.decode(again), codec.decode(packet))


@EVERY
def test_what_is_encoded_is_left_alone(name):
    value = payload()
    MADE[name].encode(value, key=KEY)
    assert same(value, payload())


@EVERY
def test_an_empty_tree_needs_no_bytes(name):
    packet, _ = MADE[name].encode((), key=KEY)
    assert packet.nbytes == 0
    assert MADE[name].decode(Packet.from_bytes(b"")) == ()


def test_every_codec_states_its_error():
    assert RELATIVE.keys() == ABSOLUTE.keys() == CODECS.keys()
