"""Codecs one after another, and one for each direction."""

import pytest
import torch
from toy import KEY, after, played, same, setup, spec, table
from wire import over_the_wire

import shoal
from shoal import SpecError
from shoal.codecs.combined import Chain, EachWay
from shoal.codecs.float_format import FloatFormat
from shoal.codecs.low_rank import LowRank
from shoal.codecs.qsgd import Qsgd
from shoal.codecs.raw import Raw
from shoal.codecs.sign import Sign
from shoal.codecs.sparse import RandomK, TopK
from shoal.codecs.uniform import UniformAffine
from shoal.core.types import ModelUpdate, Weights
from shoal.loop import advance, start


def normal(shape):
    return torch.from_numpy(KEY.fold("x").numpy().normal(size=shape)).float()


def test_a_chain_encodes_what_the_one_before_has_left():
    x = normal(10_000)
    codec = Chain((TopK(0.01), UniformAffine(4)))
    packet, memory = codec.encode({"x": x}, key=KEY)
    chosen = packet.content["x"]
    assert chosen.values.data.numel() == 8 + 50
    back = codec.decode(packet)["x"]
    assert int((back != 0).sum()) == 100
    torch.testing.assert_close(back + memory[".x"], x)


def test_what_quantising_loses_is_fed_back_too():
    x = {"x": normal(1000)}
    for codec in (Chain((TopK(0.1), UniformAffine(1))), Chain((UniformAffine(1), TopK(0.1)))):
        packet, memory = codec.encode(x, key=KEY)
        torch.testing.assert_close(memory[".x"], x["x"] - codec.decode(packet)["x"])


@pytest.mark.parametrize(
    "codecs",
    [
        (LowRank(0.1), UniformAffine(8)),
        (TopK(0.3), LowRank(0.5), FloatFormat("e5m2")),
        (FloatFormat("float16"), UniformAffine(4)),
        (TopK(0.5), Sign()),
        (RandomK(0.5), Qsgd(4)),
    ],
    ids=str,
)
def test_any_codecs_chain(codecs):
    value = ModelUpdate(Weights({"w": normal((60, 50)), "b": normal(50)}, {"n": torch.tensor(3)}))
    codec = Chain(codecs)
    packet, _ = codec.encode(value, key=KEY)
    assert len(bytes(packet)) == packet.nbytes < 0.75 * Raw().encode(value)[0].nbytes
    back = codec.decode(packet)
    assert back.update.params["w"].shape == (60, 50)
    assert same(back.update.buffers, value.update.buffers)


def test_a_spec_may_leave_the_names_out():
    chain = {"chain": [{"name": "top_k", "share": 0.1}, "uniform"]}
    assert spec(codec=chain).codec == Chain((TopK(0.1), UniformAffine()))
    up = spec(codec={"up": chain}).codec
    assert up == EachWay(up=Chain((TopK(0.1), UniformAffine())), down=Raw())
    both = spec(codec={"up": "sign", "down": {"name": "uniform", "bits": 4}}).codec
    assert both.for_direction("down") == UniformAffine(4)


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ({"down": "top_k"}, r"TopK is for updates.* use it in \[codec.up\]"),
        ({"chain": []}, "at least one codec"),
        ({"chain": ["top_k", "uniform", "top_k"]}, "TopK twice; once is enough"),
        ({"up": {"bits": 3}}, "codec.up needs a name"),
        ({"up": "raw", "bits": 3}, "unknown key codec.bits"),
    ],
)
def test_bad_specs_are_refused(codec, message):
    with pytest.raises(SpecError, match=message):
        spec(codec=codec)


def traffic(codec):
    federation = setup(codec=codec).federation
    _, record = advance(federation, start(federation))
    return record.bytes_down, record.bytes_up


def test_one_direction_leaves_the_other_alone():
    down, up = traffic("raw")
    narrow = {"name": "uniform", "bits": 2}
    assert traffic({"up": narrow})[0] == down
    assert traffic({"up": narrow})[1] < up
    assert traffic({"down": narrow})[1] == up
    assert traffic({"down": narrow})[0] < down
    assert traffic(narrow) == (traffic({"down": narrow})[0], traffic({"up": narrow})[1])
    assert traffic("top_k")[0] == down


def test_32_bits_are_no_codec_to_the_bit():
    plain = played().state
    assert same(played(codec={"name": "uniform", "bits": 32}).state, plain)
    assert same(played(codec={"name": "qsgd", "bits": 32}).state, plain)
    assert same(played(codec={"name": "float", "format": "float32"}).state, plain)


def test_bits_by_client_reach_the_codec_in_every_mode():
    chosen = {"selector": "protocol_probes:BitsBySize", "codec": "uniform"}
    one_by_one = after(setup(**chosen, engine={"mode": "serial"}), 2)
    assert same(after(setup(**chosen, engine={"mode": "block"}), 2), one_by_one)
    assert same(after(over_the_wire(spec(**chosen)), 2), one_by_one)
    assert not same(one_by_one.state, after(setup(selector="all", codec="uniform"), 2).state)


def test_what_is_fed_back_survives_a_crash(tmp_path):
    class CrashError(Exception):
        pass

    def crash(record):
        if record["round"] == 2:
            raise CrashError

    tables = table(rounds=4, codec={"chain": [{"name": "top_k", "share": 0.2}, "sign"]})
    with pytest.raises(CrashError):
        shoal.run(tables, tmp_path / "run", watcher=crash)
    resumed = shoal.resume(tmp_path / "run", report=False)
    assert resumed.weights_sha256 == shoal.run(tables).weights_sha256
