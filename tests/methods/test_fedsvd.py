import pytest
import torch
from toy import played, setup

import shoal
from shoal.core.errors import SpecError


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_full_rank_is_fedavg(weighting):
    first, second = (
        played(method).state
        for method in (
            {"name": "fedsvd", "rank": 1.0, "weights": weighting},
            {"name": "fedavg", "weights": weighting},
        )
    )
    for name, value in second.model.params.items():
        torch.testing.assert_close(first.model.params[name], value, rtol=1e-5, atol=1e-6)


def test_one_client_moves_by_an_update_of_its_rank():
    made = setup({"name": "fedsvd", "rank": 0.2}, partition={"kind": "iid", "clients": 1}, selector="all")
    before = made.federation.method.init(made.federation.task, made.federation.key.fold("init"))
    from toy import play

    after = play(made, 1).state
    step = after.model.params["0.weight"] - before.model.params["0.weight"]  # 12 x 10
    values = torch.linalg.svdvals(step.double())
    assert float(values[1]) > 1e-3
    assert float(values[2:].max()) < 1e-5


def test_fewer_bytes_the_lower_the_rank():
    tables = {"rounds": 1, "task": {"dataset": "digits", "model": "mlp"}, "selector": "all"}
    sent = [
        shoal.run(
            {
                **tables,
                "partition": {"kind": "iid", "clients": 2},
                "method": {"name": "fedsvd", "rank": rank},
                "evaluate": {"every": 0},
            }
        ).bytes_up
        for rank in (0.1, 0.3, 1.0)
    ]
    assert sent[0] < 0.3 * sent[2]
    assert sent[0] < sent[1] < sent[2]


@pytest.mark.parametrize("rank", [0.0, 1.5])
def test_a_bad_rank_is_refused(rank):
    with pytest.raises(SpecError, match=r"rank must be in \(0, 1\]"):
        setup({"name": "fedsvd", "rank": rank})
