import pytest
import torch
from toy import table

import shoal
from shoal import SpecError


def test_nothing_travels():
    result = shoal.run(table("local", evaluate={"every": 1}))
    assert result.bytes_up == result.bytes_down == 0
    assert result.final_accuracy is not None
    assert (
        result.weights_sha256 == shoal.run(table("local", rounds=1)).weights_sha256
    )  # the server holds none


def test_each_client_has_its_own_model():
    result = shoal.run(table("local", selector="all"))
    assert not torch.equal(result.model(client=0)[0].weight, result.model(client=1)[0].weight)
    with pytest.raises(SpecError, match="local has no global model"):
        result.model()


def test_one_client_alone_is_fedavg_with_one_client():
    """With a single client there is nothing to average."""
    alone = {"partition": {"kind": "iid", "clients": 1}, "selector": "all"}
    local, fedavg = (shoal.run(table(name, **alone)) for name in ("local", "fedavg"))
    for one, two in zip(local.model(client=0).parameters(), fedavg.model().parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
