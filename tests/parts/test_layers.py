import pytest
import torch
from toy import KEY

from shoal.core.tree import subtract
from shoal.core.types import Weights
from shoal.parts.layers import update_beyond

NAMES = ("a", "b", "c")


def drawn(name):
    draw = KEY.fold(name).torch()
    return {layer: torch.randn(3, 2, generator=draw) for layer in NAMES}


@pytest.mark.parametrize("loaded", [(), ("b",), ("a", "c"), NAMES])
def test_the_update_of_a_client_that_loads_some_layers_is_what_it_sends_minus_what_it_was_sent(loaded):
    sent, own, trained = drawn("sent"), drawn("own"), drawn("trained")
    start = {name: sent[name] if name in loaded else own[name] for name in NAMES}
    found = update_beyond(Weights(sent, {}), Weights(trained, {}), subtract(trained, start), loaded)
    for name in NAMES:
        assert torch.equal(found.params[name], trained[name] - sent[name])


def test_layers_that_were_not_sent_have_no_update():
    sent, trained = {"b": drawn("sent")["b"]}, drawn("trained")
    found = update_beyond(Weights(sent, {}), Weights(trained, {}), drawn("change"), ("b",))
    assert torch.equal(found.params["b"], trained["b"] - sent["b"])
    assert list(found.params) == ["b"]
