import pytest
import torch
from shoal.methods.fltrust import levelled, trusted
from shoal.parts.gathering import gram
from toy import play, setup

from shoal.core.errors import SpecError
from shoal.loop import advance, start


def counted(*rows):
    """How far each update is trusted; the first is the server's own."""
    return trusted(gram(torch.tensor(rows, dtype=torch.float64)))


def test_by_hand():
    rows = [2.0, 0.0], [3.0, 4.0], [0.0, 1.0], [-5.0, 0.1], [7.0, 0.0]
    # cosines 0.6, 0, below 0, 1
    assert counted(*rows).tolist() == pytest.approx([0.0, 0.6 / 1.6, 0.0, 0.0, 1 / 1.6])
    factors = levelled(gram(torch.tensor(rows, dtype=torch.float64)))
    lengths = factors * torch.tensor(rows).norm(dim=1)
    assert lengths.tolist() == pytest.approx([2.0] * 5)  # all as long as the server's own


def test_the_length_of_an_update_does_not_matter():
    once, more = counted([1.0, 2.0], [2.0, 1.0], [3.0, 1.0]), counted([1.0, 2.0], [2e6, 1e6], [3.0, 1.0])
    torch.testing.assert_close(more, once)


def test_the_opposite_is_ignored_and_with_nobody_to_trust_nothing_moves():
    assert counted([1.0, 2.0], [-1.0, -2.0], [1.0, 2.0]).tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert counted([1.0, 2.0], [-1.0, -2.0], [0.0, 0.0]).tolist() == [0.0, 0.0, 0.0]


def test_the_server_has_root_samples_and_no_client_loses_any():
    made, plain = (setup({"name": "fltrust", "root": 32}, selector="all"), setup(selector="all"))
    root = made.federation.task.root
    assert root.count == 32
    assert len(set(root.rows.tolist())) == 32
    assert [made.shards.count(c) for c in range(8)] == [plain.shards.count(c) for c in range(8)]
    assert made.side.task.root is None  # clients do not see them
    assert plain.federation.task.root is None


def test_those_who_turn_round_get_nothing():
    made = setup(
        {"name": "fltrust", "root": 64},
        selector="all",
        partition={"kind": "iid", "clients": 8},
        attack={"name": "sign_flip", "fraction": 0.25},
    )
    progress, record = advance(made.federation, start(made.federation))
    for client, weight in record.metrics["weights"].items():
        assert (weight == 0) == (client in made.side.attackers)
    assert play(made, 1, progress).state.round == 2


def test_refusals():
    with pytest.raises(SpecError, match="root must be at least 1, got 0"):
        setup({"name": "fltrust", "root": 0})
    with pytest.raises(SpecError, match="root must be at most 320"):
        setup({"name": "fltrust", "root": 321})
