import pytest
import torch
from toy import KEY, played, same

from shoal.codecs.low_rank import Cut, LowRank, restored
from shoal.core.codec import Packet
from shoal.core.errors import SpecError
from shoal.core.flat import flat
from shoal.core.serialization import nbytes
from shoal.core.types import ModelMessage, ModelUpdate, Weights
from shoal.parts.factors import Factors, as_matrix, factored, rank_of


def normal(shape, name):
    return torch.from_numpy(KEY.fold(name).numpy().normal(size=shape)).float()


def update(name="u"):
    params = {
        "wide": normal((20, 50), name),
        "square": normal((10, 10), name),
        "conv": normal((8, 4, 3, 3), name),
        "bias": normal((20,), name),
    }
    return Weights(params, {"mean": normal((3,), name)})


def compressed(given, share, setting=None):
    return LowRank(share).encode(ModelUpdate(given), setting=setting)[0].content.update


def test_the_shortest_form_travels():
    given = update()
    sent = compressed(given, 0.5)
    assert isinstance(sent.params["wide"], Cut)  # 10 (20 + 50 + 1) numbers for 1000
    assert isinstance(sent.params["conv"], Cut)  # 4 (8 + 36 + 1) for 288
    assert isinstance(sent.params["square"], torch.Tensor)  # 5 (10 + 10 + 1) would be more than 100
    assert sum(part.numel() for part in sent.params["wide"].factors) == 710
    assert sent.params["bias"] is given.params["bias"]
    assert sent.buffers is given.buffers
    assert nbytes(sent) < nbytes(given)
    back = restored(ModelUpdate(sent), given).update
    assert same(back, LowRank().decode(Packet(ModelUpdate(sent))).update)
    assert {name: value.shape for name, value in back.params.items()} == {
        name: value.shape for name, value in given.params.items()
    }
    assert sent.params["square"] is given.params["square"]  # so it need not be cut, either
    for name in ("wide", "conv"):
        matrix = as_matrix(back.params[name])
        expected = factored(as_matrix(given.params[name]), rank_of(0.5, min(matrix.shape))).dense()
        torch.testing.assert_close(matrix, expected)
        assert int((torch.linalg.svdvals(matrix) > 1e-3).sum()) == min(matrix.shape) // 2


def test_the_full_rank_is_the_update_itself():
    given = update()
    sent = compressed(given, 1.0)
    assert all(sent.params[name] is value for name, value in given.params.items())


def test_a_block_has_the_bits_of_its_clients():
    """A client's matrices are cut alone, whoever trained beside it."""
    block, serial = (
        played(codec={"name": "low_rank", "rank": 0.2}, engine={"mode": mode}) for mode in ("block", "serial")
    )
    assert same(block.state, serial.state)
    assert not same(block.state, played().state)


def test_a_client_may_have_a_rank_of_its_own():
    given = update()
    assert same(compressed(given, 0.5, {"rank": 0.1}), compressed(given, 0.1))
    assert same(compressed(given, 0.5, {"bits": 8}), compressed(given, 0.5))


def test_what_is_no_update_travels_as_it_is():
    message = ModelMessage(update())
    packet, _ = LowRank(0.1).encode(message)
    assert packet.content is message
    assert LowRank(0.1).decode(packet) is message


def test_what_arrives_lies_in_one_vector_like_the_model():
    given = update()
    model = Weights(flat(update("model").params), given.buffers)
    sent = compressed(given, 0.5)
    back = restored(ModelUpdate(sent), model).update
    apart = restored(ModelUpdate(sent), given).update
    assert back.params.layout == model.params.layout
    assert same(dict(back.params), dict(apart.params))
    for name, wrong in (
        ("bias", torch.zeros(21)),
        ("bias", torch.zeros(20).double()),
        ("bias", 3),
        ("new", 1),
    ):
        strange = sent._replace(params={**sent.params, name: wrong})
        assert restored(ModelUpdate(strange), model).update.params[name] is wrong  # for the gate to refuse


def misfits(cut):
    """Factors that do not make the matrix, and what else may come in their place."""
    (u, s, v), shape = cut
    yield Cut(Factors(u[:-1], s, v), shape)
    yield Cut(Factors(u, s, torch.cat([v, v])), shape)
    yield Cut(Factors(u, s[:-1], v), shape)
    yield Cut(Factors(u[:, :1], s, v), shape)
    yield Cut(Factors(u, s[:, None], v), shape)
    yield Cut(Factors(u, s, v), (50, 20))
    yield Cut(Factors(u, s, v), (1000,))
    yield Cut(Factors(u.new_zeros(10**6, 1), s[:1], v.new_zeros(10**6, 1)), (10**6, 10**6))


def test_factors_that_do_not_fit_are_refused_before_they_are_multiplied(monkeypatch):
    given = update()
    sent = compressed(given, 0.5)

    def multiplied(cut):
        raise AssertionError("it was made whole")

    monkeypatch.setattr(Cut, "whole", multiplied)
    for wrong in misfits(sent.params["wide"]):
        payload = ModelUpdate(sent._replace(params={**sent.params, "wide": wrong}))
        with pytest.raises(ValueError, match="the factors of wide do not fit"):
            restored(payload, given)


@pytest.mark.parametrize("rank", [0.0, -0.5, 1.5])
def test_a_bad_rank_is_refused(rank):
    with pytest.raises(SpecError, match=r"rank must be in \(0, 1\]"):
        LowRank(rank)
