"""Codecs that pack bits: codes, lengths, averages."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import KEY, same

from shoal import SpecError
from shoal.codecs.fedpaq import FedPaq
from shoal.codecs.leaves import packed_length
from shoal.codecs.qsgd import Levels, Qsgd
from shoal.codecs.sign import Sign, Signs
from shoal.codecs.sparse import Chosen, Drawn, RandomK, TopK
from shoal.codecs.uniform import BITS, Codes, UniformAffine
from shoal.core.codec import Packet
from shoal.kernels.packing import largest, pack, unpack
from shoal.kernels.philox import sample

CODED = BITS[:-1]


def normal(size, name="x"):
    return torch.from_numpy(KEY.fold(name).numpy().normal(size=size)).float()


def sent(codec, x, **options):
    """What goes on the wire for a tensor, and what comes out."""
    packet, _ = codec.encode({"x": x}, key=KEY, **options)
    return packet.content["x"], codec.decode(packet)["x"]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 32), st.integers(0, 1100), st.integers(0, 2**32))
def test_codes_are_packed_as_numpy_packs_bits(bits, count, seed):
    codes = KEY.fold(seed).numpy().integers(2**bits, size=count, dtype=np.uint64)
    data, back = np.empty(packed_length(count, bits), np.uint8), np.empty(count, np.uint32)
    pack(codes.astype(np.uint32), bits, data)
    matrix = (codes[:, None] >> np.arange(bits, dtype=np.uint64)[::-1]) & np.uint64(1)
    assert np.array_equal(data, np.packbits(matrix.astype(np.uint8).reshape(-1)))
    unpack(data, bits, back)
    assert np.array_equal(back, codes)


def test_bytes_of_another_length_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        pack(np.zeros(9, np.uint32), 3, np.empty(3, np.uint8))
    with pytest.raises(ValueError, match="do not fit"):
        unpack(np.zeros(3, np.uint8), 33, np.empty(1, np.uint32))


@pytest.mark.parametrize("bits", CODED)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_uniform_has_the_stated_length_and_error(bits, rounding):
    x = normal(1001)
    code, back = sent(UniformAffine(bits, rounding), x)
    assert code.data.numel() == 8 + math.ceil(1001 * bits / 8)
    step = float(x.max() - x.min()) / (2**bits - 1)
    assert float((back - x).abs().max()) <= step * (0.5 if rounding == "nearest" else 1) + 1e-6
    assert back.min() == x.min()
    assert back.max() == x.max()


@pytest.mark.parametrize("codec", [UniformAffine(32), Qsgd(32), FedPaq(32)])
def test_32_bits_are_no_codec(codec):
    tree = {"x": normal(100)}
    packet, _ = codec.encode(tree)
    assert packet.content is tree
    assert packet.nbytes == Packet(tree).nbytes


@pytest.mark.parametrize(
    "codec",
    [
        *(UniformAffine(1, "stochastic"), UniformAffine(3, "stochastic"), Qsgd(2, 50), Qsgd(4, 64)),
        *(FedPaq(3), RandomK(0.3, feedback=False)),
    ],
    ids=str,
)
def test_right_on_average(codec):
    x, draws = normal(64), 1000
    packets = [codec.encode({"x": x}, key=KEY.fold("draw", i))[0] for i in range(draws)]
    found = torch.stack([codec.decode(packet)["x"] for packet in packets])
    error = found.mean(0) - x
    assert bool((error.abs() <= 5 * found.std(0) / math.sqrt(draws) + 1e-6).all())


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_variance_of_qsgd_is_within_its_bound(bits):
    x, levels = normal(512), 2 ** (bits - 1) - 1
    found = [Qsgd(bits).decode(Qsgd(bits).encode({"x": x}, key=KEY.fold(i))[0])["x"] for i in range(50)]
    squares = [float((one - x).square().sum()) for one in found]
    bound = min(512 / levels**2, math.sqrt(512) / levels) * float(x.square().sum())
    assert np.mean(squares) <= bound


def test_an_error_halves_with_each_bit():
    x = normal(20_000)
    errors = [float((sent(UniformAffine(bits), x)[1] - x).norm()) for bits in range(2, 9)]
    assert all(1.8 < wide / narrow < 2.6 for wide, narrow in pairwise(errors))


def test_a_bucket_has_its_own_norm():
    x = torch.cat([1e-3 * normal(512), 1e3 * normal(512, "y"), normal(10, "z")])
    code, back = sent(Qsgd(8, 512), x)
    assert code.data.numel() == 4 * 3 + 1034
    for some in (slice(0, 512), slice(512, 1024), slice(1024, 1034)):
        assert float((back - x)[some].abs().max()) <= float(x[some].norm()) / 127
    hurt = x.clone()
    hurt[3] = math.inf
    assert sent(Qsgd(8, 512), hurt)[1].isnan().sum() == 512


def test_constant_empty_and_short_tensors_are_exact():
    for x in (torch.full((100,), 0.1), torch.zeros(0), torch.tensor(0.7), normal(2)):
        for bits in CODED:
            assert torch.equal(sent(UniformAffine(bits), x)[1], x)


def test_large_numbers_do_not_overflow():
    x = torch.tensor([3e38, -3e38, 0.0] * 20)
    assert torch.equal(sent(UniformAffine(2), x)[1].abs().max(), x.max())
    assert sent(UniformAffine(1), x)[1].isfinite().all()


def test_a_client_may_have_bits_of_its_own():
    x = normal(1000)
    for codec in (UniformAffine(8), Qsgd(8), FedPaq(8)):
        narrow = type(codec)(2)
        assert same(sent(codec, x, setting={"bits": 2}), sent(narrow, x))
    with pytest.raises(SpecError, match=r"bits must be one of 1, 2, .* got 9"):
        sent(UniformAffine(8), x, setting={"bits": 9})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformAffine(0), "bits must be one of 1, 2"),
        (lambda: Qsgd(1), "bits must be one of 2, 3"),
        (lambda: Qsgd(4, 0), "bucket must be at least 1"),
        (lambda: FedPaq(1), "bits must be one of 2, 3"),
        (lambda: TopK(0.0), r"share must be in \(0, 1\]"),
        (lambda: RandomK(1.5), r"share must be in \(0, 1\]"),
    ],
)
def test_bad_fields_are_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_random_codecs_need_a_key():
    for codec in (UniformAffine(4, "stochastic"), Qsgd(), RandomK()):
        with pytest.raises(ValueError, match="give it a key"):
            codec.encode({"x": normal(1000)})


def test_fedpaq_sends_the_difference_from_what_the_receiver_has():
    model, start = {"w": 10 + 0.01 * normal(600)}, {"w": torch.full((600,), 10.0)}
    codec = FedPaq(8)
    packet, _ = codec.encode(model, key=KEY, reference=start)
    back = codec.decode(Packet.from_bytes(bytes(packet)), start)["w"]
    norm = float((model["w"] - start["w"]).norm())
    assert float((back - model["w"]).abs().max()) <= norm / 127 + 1e-6
    exact, _ = FedPaq(32).encode(model, reference=start)
    assert FedPaq(32).decode(exact, start)["w"] is model["w"]


# ---- a few of the numbers


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_top_k_sends_the_largest_and_their_places(share):
    x = normal((100, 21))
    code, back = sent(TopK(share), x)
    count = math.ceil(share * 2100)
    assert isinstance(code, Chosen)
    assert code.values.numel() == count
    assert code.places.numel() == min(math.ceil(count * 12 / 8), math.ceil(2100 / 8))
    kept = back != 0
    assert int(kept.sum()) == count
    assert torch.equal(back[kept], x[kept])
    assert x[kept].abs().min() >= x[~kept].abs().max()


def test_of_equal_numbers_the_first_are_taken():
    x = np.array([1, -2, 2, 0, 2, -1], np.float32)
    assert largest(x, 2).tolist() == [1, 2]
    assert largest(x, 4).tolist() == [0, 1, 2, 4]
    assert largest(np.array([1, math.nan, math.inf, 9], np.float32), 2).tolist() == [1, 2]
    assert largest(x, 0).tolist() == []


def test_random_places_do_not_travel():
    x = normal(1000)
    code, back = sent(RandomK(0.1), x)
    assert isinstance(code, Drawn)
    assert code.values.numel() == 100
    assert code.words.numel() == 16
    assert torch.equal(back[back != 0], x[back != 0])
    assert int((back != 0).sum()) == 100


def test_every_sample_is_equally_likely():
    found = [tuple(sorted(sample(*KEY.fold(i).words, 4, 2).tolist())) for i in range(3000)]
    counts = [found.count((a, b)) for a in range(4) for b in range(a + 1, 4)]
    assert sum(counts) == 3000
    assert max(abs(count - 500) for count in counts) < 5 * math.sqrt(500)


def test_a_sign_and_a_scale():
    x = torch.cat([normal(998), torch.tensor([0.0, -1e-20])])
    code, back = sent(Sign(), x)
    assert code.data.numel() == 4 + 125
    expected = torch.where(x < 0, -1.0, 1.0) * x.abs().mean()
    torch.testing.assert_close(back, expected)


def test_without_feedback_nothing_is_kept():
    for codec in (TopK(feedback=False), RandomK(feedback=False), Sign(feedback=False)):
        assert not codec.remembers
        assert codec.encode({"x": normal(1000)}, key=KEY)[1] is None


def test_a_memory_of_another_shape_starts_anew():
    x = normal(1000)
    _, memory = TopK().encode({"x": normal(7000), "y": x})
    packet, _ = TopK().encode({"x": x}, memory=memory)
    assert same(packet.content, TopK().encode({"x": x})[0].content)


# ---- packets come from outside


def forged():
    bits = torch.zeros(21, dtype=torch.uint8)
    yield Codes(bits, 8, (14,), "float32")
    yield Codes(bits, 9, (13,), "float32")
    yield Codes(bits, 8, (-1, -13), "float32")
    yield Codes(bits, 8, (2**40,), "float32")
    yield Codes(bits, 8, (13,), "int64")
    yield Codes(bits.float(), 8, (13,), "float32")
    yield Levels(bits, 8, 0, (17,), "float32")
    yield Levels(bits, 8, 5, (17,), "float32")
    yield Signs(bits, (200,), "float32")


def forged_places():
    values, zeros = torch.ones(3), torch.zeros(25, dtype=torch.uint8)
    yield Chosen(values, torch.tensor([255, 255, 255], dtype=torch.uint8), (200,), "float32")
    yield Chosen(values, torch.tensor([3, 2, 1], dtype=torch.uint8), (200,), "float32")
    yield Chosen(values, torch.tensor([1, 2], dtype=torch.uint8), (200,), "float32")
    yield Chosen(values.long(), zeros[:3], (200,), "float32")
    yield Chosen(values, zeros[:3], (201,), "float32")
    yield Chosen(values[:1], zeros[:10], (2**28,), "float32")
    yield Drawn(values, zeros, (200,), "float32")
    yield Drawn(torch.ones(300), zeros[:16], (200,), "float32")
    yield Drawn(values[:1], zeros[:16], (2**28,), "float32")


@pytest.mark.parametrize("node", list(forged()), ids=lambda node: type(node).__name__)
def test_forged_packets_are_refused(node):
    with pytest.raises(ValueError, match=r"there |bytes were expected|these are not"):
        node.whole()


@pytest.mark.parametrize("node", list(forged_places()), ids=lambda node: type(node).__name__)
def test_forged_places_are_refused(node):
    codec = TopK(0.015) if isinstance(node, Chosen) else RandomK(0.015)
    with pytest.raises(ValueError, match=r"bytes were expected|these are not"):
        codec.decode(Packet({"x": node}))
