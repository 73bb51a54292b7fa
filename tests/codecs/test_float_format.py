import pytest
import torch
from toy import KEY

from shoal import SpecError
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


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float16", torch.float16), ("bfloat16", torch.bfloat16), ("e5m2", torch.float8_e5m2)],
)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_the_bytes_and_the_grid_of_each_format(name, dtype, rounding):
    x = torch.from_numpy(KEY.numpy().normal(size=1000)).float()
    codec = FloatFormat(name, rounding)
    packet, _ = codec.encode({"x": x}, key=KEY)
    assert packet.content["x"].values.dtype == dtype
    back = codec.decode(packet)["x"]
    assert torch.equal(back, back.to(dtype).float())
    if rounding == "nearest":
        assert torch.equal(back, x.to(dtype).float())


def test_all_codes_of_e5m2_stay():
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2).float()
    for rounding in ("nearest", "stochastic"):
        codec = FloatFormat("e5m2", rounding)
        back = codec.decode(codec.encode({"x": codes}, key=KEY)[0])["x"]
        assert torch.equal(back[codes.isfinite()], codes[codes.isfinite()])
        assert torch.equal(back.isnan(), codes.isnan())


def test_beyond_the_largest_of_e5m2_is_the_largest():
    codec = FloatFormat("e5m2")
    x = torch.tensor([57_344.0, 60_000.0, 61_440.0, 1e30, -1e30, float("inf")] * 10)
    back = codec.decode(codec.encode({"x": x})[0])["x"]
    assert back[:6].tolist() == [57_344.0, 57_344.0, 57_344.0, 57_344.0, -57_344.0, float("inf")]


def test_stochastic_rounding_is_right_on_average():
    x = torch.full((40_000,), 1.1)
    codec = FloatFormat("e5m2", "stochastic")
    back = codec.decode(codec.encode({"x": x}, key=KEY)[0])["x"]
    assert set(back.tolist()) == {1.0, 1.25}
    assert float(back.mean()) == pytest.approx(1.1, abs=5 * 0.125 / 200)


def test_a_client_may_have_a_format_of_its_own():
    tree = {"x": torch.ones(100)}
    sizes = [FloatFormat().encode(tree, setting={"bits": bits})[0].nbytes for bits in (8, 16, 32)]
    assert sizes == sorted(set(sizes))
    chosen = FloatFormat().encode(tree, setting={"format": "bfloat16"})[0].content["x"]
    assert chosen.values.dtype == torch.bfloat16
    with pytest.raises(SpecError, match="bits must be one of 8, 16, 32; got 4"):
        FloatFormat().encode(tree, setting={"bits": 4})
    with pytest.raises(SpecError, match=r"format must be one of .* got 'half'"):
        FloatFormat().encode(tree, setting={"format": "half"})
