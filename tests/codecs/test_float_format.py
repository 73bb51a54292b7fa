import torch

from shoal.codecs.float_format import FloatFormat
from shoal.codecs.raw import Raw


def decoded(values):
    codec = FloatFormat("float16")
    return codec.decode(codec.encode({"x": values})[0])["x"]


def test_half_the_bytes():
    value = {"x": torch.ones(10_000)}
    raw, half = Raw().encode(value)[0].nbytes, FloatFormat("float16").encode(value)[0].nbytes
    assert 39_990 < raw - 0 < 40_100
    assert 20_000 < half < 20_150


def test_values_beyond_the_largest_half_are_cut_and_infinities_stay():
    found = decoded(torch.tensor([1e6, -1e6, float("inf"), float("nan"), 65504.0]))
    assert found[:2].tolist() == [65504.0, -65504.0]
    assert found[2].isinf()
    assert found[3].isnan()
    assert found[4] == 65504.0


def test_what_is_already_short_stays():
    short = torch.ones(3, dtype=torch.bfloat16)
    assert decoded(short).dtype == torch.bfloat16


def test_encoding_twice_changes_nothing():
    once = decoded(torch.linspace(-3, 3, 50))
    assert torch.equal(once, decoded(once))
