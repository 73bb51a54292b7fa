"""SITUA-CQ's experiments: what is measured of the clients that are always slow."""

import pytest
import torch
from toy import table

import shoal
from shoal.study.reproduce.situa import clusters, slow_accuracy


def test_the_slow_clients_are_measured_on_their_own_labels(tmp_path):
    """Eight clients, two of which are slow: one computes slowly, the other has a slow link."""
    speeds = {2: (0.1, 1e6), 5: (1e3, 10)}
    rows = ["client,speed,down,up"]
    rows += [f"{c},{speed},{rate},{rate}" for c in range(8) for speed, rate in [speeds.get(c, (1e3, 1e6))]]
    (tmp_path / "devices.csv").write_text("\n".join(rows))
    devices = {"name": "trace", "path": str(tmp_path / "devices.csv")}
    result = shoal.run(table("fedavg", devices=devices, rounds=2))
    shares = []
    for client in speeds:
        own = result.setup.side.data.test(client).all
        with torch.no_grad():
            shares.append((result.model()(own.x).argmax(1) == own.y).double().mean().item())
    assert slow_accuracy(result) == pytest.approx(sum(shares) / 2)


@pytest.mark.parametrize("tables", [{}, {"devices": {"name": "tiers"}}])
def test_nobody_is_always_slow_without_fixed_devices(tables):
    assert slow_accuracy(shoal.run(table("fedavg", **tables, rounds=1))) is None


def test_nothing_is_trained_for_the_clusters():
    sizes, left = clusters(None).tables
    assert sizes.find("KL 0.2 to 0.5", "theta_d = 0.8").ours == 1.0
    assert left.find("KL 0.2 to 0.5", "theta_d = 0.8").ours == 0.0
