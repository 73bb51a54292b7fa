"""Laws that every codec of the catalogue keeps."""

import math

import pytest
import torch
from toy import KEY, after, same, setup, spec
from wire import over_the_wire

from shoal.codecs import CODECS
from shoal.codecs.combined import Chain, EachWay
from shoal.codecs.low_rank import LowRank
from shoal.codecs.sparse import TopK
from shoal.codecs.uniform import UniformAffine
from shoal.core.codec import Packet
from shoal.core.tree import all_finite
from shoal.core.types import ModelUpdate, Weights
from shoal.spec import from_table, to_table

EVERY = pytest.mark.parametrize("name", CODECS)

MADE = {
    "low_rank": LowRank(1.0),  # less is another law
    "chain": Chain((TopK(0.5), UniformAffine(4))),
    "each_way": EachWay(up=UniformAffine(8), down=CODECS["float16"]()),
}
MADE |= {name: codec() for name, codec in CODECS.items() if name not in MADE}


def span(x):
    return (x.max() - x.min()).float() if x.numel() else 0.0


STATED = {  # the error of each, at most
    "raw": lambda x: 0.0,
    "float": lambda x: 2**-11 * x.abs() + 2**-25,
    "float16": lambda x: 2**-11 * x.abs() + 2**-25,
    "uniform": lambda x: span(x) / 255 / 2 + 2**-24 * x.abs(),
    "qsgd": lambda x: x.norm() / 127,
    "fedpaq": lambda x: x.norm() / 7,
    "top_k": lambda x: x.abs(),
    "random_k": lambda x: x.abs(),
    "sign": lambda x: x.abs() + x.abs().mean(),
    "low_rank": lambda x: 0.0,
    "chain": lambda x: x.abs() + span(x) / 15 / 2,
    "each_way": lambda x: span(x) / 255 / 2 + 2**-24 * x.abs(),
}


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
        assert bool(((found - value).abs() <= STATED[name](value) * (1 + 1e-6)).all()), leaf


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
    assert STATED.keys() == MADE.keys() == CODECS.keys()


@EVERY
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_visible(name, bad):
    """So that the server's gate refuses it."""
    value = payload()
    value.update.params["matrix"][2, 3] = bad
    packet, _ = MADE[name].encode(value, key=KEY)
    back = MADE[name].decode(packet).update.params
    assert not all_finite(back["matrix"])
    assert all_finite({leaf: found for leaf, found in back.items() if leaf != "matrix"})


@EVERY
def test_zeros_stay_zeros(name):
    packet, _ = MADE[name].encode({"x": torch.zeros(3, 50)}, key=KEY)
    assert torch.equal(MADE[name].decode(packet)["x"], torch.zeros(3, 50))


@EVERY
def test_the_same_key_gives_the_same_packet(name):
    first, second = (MADE[name].encode(payload(), key=KEY.fold("a"))[0] for _ in range(2))
    assert bytes(first) == bytes(second)


@pytest.mark.parametrize("name", [name for name, codec in MADE.items() if codec.remembers])
def test_what_is_left_out_is_sent_in_the_end(name):
    """With error feedback, the sum of all packets lacks the last memory, and nothing else."""
    codec, memory, total = MADE[name], None, 0.0
    draw = KEY.fold("feedback").torch()
    updates = [torch.randn(200, generator=draw) for _ in range(5)]
    for i, update in enumerate(updates):
        packet, memory = codec.encode({"x": update}, key=KEY.fold(i), memory=memory)
        total = total + codec.decode(packet)["x"]
    torch.testing.assert_close(total + memory[".x"], sum(updates), rtol=1e-4, atol=1e-5)


@EVERY
def test_a_spec_describes_it(name):
    chosen = spec(codec=MADE[name])
    assert from_table(to_table(chosen)) == chosen


@EVERY
def test_blocks_workers_and_the_wire_change_no_bit(name):
    """Client memories are those of error feedback."""
    codec = to_table(spec(codec=MADE[name]))["codec"]
    one_by_one = after(setup(codec=codec, engine={"mode": "serial"}), 2)
    for mode in ("block", "workers"):
        assert same(after(setup(codec=codec, engine={"mode": mode, "workers": 2}), 2), one_by_one)
    assert same(after(over_the_wire(spec(codec=codec)), 2), one_by_one)
    assert same(one_by_one.state, after(setup(), 2).state) == (name in ("raw", "low_rank"))
