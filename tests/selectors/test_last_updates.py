import numpy as np
import pytest
import torch
from toy import KEY

from shoal.selectors.last_updates import LastUpdates, aligned

BY = pytest.mark.parametrize("by", ["cosine", "l2", "l1"])


@BY
def test_comparing_only_what_is_new_gives_the_bits_of_comparing_all(by):
    draw = KEY.fold("bits").torch()
    in_steps = at_once = LastUpdates({})
    last = {}
    for clients in ((3, 1, 4), (1, 5, 8, 2), (6,), (4, 3)):
        for client in clients:
            last[client] = {"w": torch.randn(11, 47, generator=draw)}
            in_steps = in_steps.with_update(client, last[client])
        in_steps = in_steps.all_compared(by)
        assert not in_steps.changed
    for client in sorted(last):
        at_once = at_once.with_update(client, last[client])
    found, wanted = (state.all_compared(by).compared for state in (in_steps, at_once))
    order = [0, *(1 + found.clients.index(client) for client in wanted.clients)]
    assert torch.equal(found.pairs[order][:, order], wanted.pairs)
    assert np.array_equal(in_steps.distances(range(9), by), at_once.distances(range(9), by))


@BY
def test_a_layer_that_was_not_sent_counts_as_zeros(by):
    """As do all layers of a client that sent none."""
    w, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0])
    no_w, no_b = torch.zeros_like(w), torch.zeros_like(b)
    some, every = LastUpdates({}), LastUpdates({})
    for client, part in enumerate(({"w": w}, {"b": b}, {}, {"w": w, "b": b})):
        some = some.with_update(client, part)
        every = every.with_update(client, {"w": part.get("w", no_w), "b": part.get("b", no_b)})
    assert np.array_equal(some.distances(range(5), by), every.distances(range(5), by))


def test_nothing_is_remembered_but_a_copy():
    update = {"w": torch.ones(3)}
    last = LastUpdates({}).with_update(0, update)
    update["w"].zero_()
    assert last.updates[0]["w"].tolist() == [1, 1, 1]


def test_layers_are_in_one_order():
    first, second = {"w": torch.ones(2), "b": torch.zeros(1)}, {"b": torch.ones(1), "w": torch.zeros(2)}
    assert [vector.tolist() for vector in aligned([first, second])] == [[1, 1, 0], [0, 0, 1]]


def test_nobody_has_been_heard_of():
    assert not LastUpdates({}).distances((3, 7), "l2").any()
