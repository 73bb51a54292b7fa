import numpy as np
import pytest
from toy import KEY, setup, spec

from shoal.core.devices import Crowd, Fleet
from shoal.core.errors import SpecError
from shoal.devices.constant import ConstantDevices
from shoal.devices.lognormal import LognormalDevices
from shoal.devices.tiers import TierDevices
from shoal.devices.trace import TraceDevices

CROWD = Crowd(400, 50.0, 796_840)
ALL = np.arange(400)


def test_tiers_are_the_authors():
    """Four equal tiers: epochs of about 4, 8, 12 and 16 s, and links of the authors' rates for 20 MB."""
    table = TierDevices().draw(ALL, 0, CROWD, KEY)
    epochs = np.sort(CROWD.samples / table.speed)
    for tier, quarter in enumerate(np.split(epochs, 4)):
        assert quarter.mean() == pytest.approx(4 * (tier + 1), abs=0.2)
        assert 0.3 < quarter.std() < 0.7
    for rates in (table.down, table.up):
        seconds = np.sort(CROWD.model_bytes / rates)
        for tier, quarter in enumerate(np.split(seconds, 4)):
            expected = 20 / (5 * np.log2(1 + 10 ** (4 - tier)) / 8)
            assert quarter.mean() == pytest.approx(expected, rel=0.1)
    assert not np.allclose(table.down, table.up)


def test_devices_are_fixed_or_drawn_anew():
    for redraw in (True, False):
        fleet = Fleet(TierDevices(redraw=redraw), CROWD, KEY)
        first, second = fleet.table([3, 5], 0), fleet.table([3, 5], 1)
        assert np.array_equal(first.speed, second.speed) != redraw
        assert np.array_equal(fleet.table([5], 0).speed, first.speed[1:])  # whoever else is asked


def test_lognormal_devices_spread_around_their_median():
    table = LognormalDevices(speed=10.0, sigma=0.5).draw(np.arange(4000), 0, CROWD, KEY)
    assert np.median(table.speed) == pytest.approx(10, rel=0.05)
    assert np.log(table.up).std() == pytest.approx(0.5, rel=0.05)
    assert np.corrcoef(np.log(table.speed), np.log(table.down))[0, 1] == pytest.approx(0, abs=0.05)


def test_a_client_can_be_out_of_reach():
    fleet = Fleet(ConstantDevices(availability=0.25), CROWD, KEY)
    some = fleet.reachable(range(400), 0)
    assert 60 < len(some) < 140
    assert set(some) != set(fleet.reachable(range(400), 1))
    assert Fleet(ConstantDevices(), CROWD, KEY).reachable(range(400), 0) == range(400)


def test_a_trace_counts_from_its_round_on(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("client,speed,down,up,latency,round\n0,10,5,2,0.5,\n0,20,5,2,0.5,3\n1,1,1,0,0,1\n")
    devices = TraceDevices(str(path))
    devices.check(2)
    assert devices.draw(np.array([0, 1]), 1, CROWD, KEY).speed.tolist() == [10, 1]
    assert devices.draw(np.array([0]), 2, CROWD, KEY).speed.tolist() == [20]
    with pytest.raises(SpecError, match="no row for client 2"):
        devices.check(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,speed,up\n0,1,1\n", "no column down"),
        ("client,speed,down,up\n0,fast,1,1\n", "line 2: .* is not a row of numbers"),
        ("client,speed,down,up\n0,1,-1,1\n", "line 2: .* negative or not finite"),
    ],
)
def test_mistakes_in_a_trace_are_named(tmp_path, text, message):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        TraceDevices(str(path)).check(1)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({"name": "constant", "up": 0.0}, "up must be a number of bytes per second above 0, got 0"),
        ({"name": "constant", "latency": -1.0}, "latency must be at least 0 seconds, got -1"),
        ({"name": "lognormal", "sigma": -1.0}, "sigma must be at least 0, got -1"),
        ({"name": "tiers", "availability": 0.0}, r"availability must be in \(0, 1\], got 0"),
        ({"name": "tears"}, "did you mean tiers"),
        ({"name": "trace"}, "devices.path is missing"),
    ],
)
def test_wrong_fields_are_named(devices, message):
    with pytest.raises(SpecError, match=message):
        spec(devices=devices)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"faults": {"deadline": 3.0}}, r"faults.deadline is in virtual seconds, which need \[devices\]"),
        ({"faults": {"over_select": 2.0}}, "faults.over_select is in virtual seconds"),
        ({"evaluate": {"stop_at_virtual_seconds": 9.0}}, "evaluate.stop_at_virtual_seconds is in virtual"),
        ({"devices": {"name": "trace", "path": "nowhere.csv"}}, "cannot be read: No such file"),
    ],
)
def test_a_clock_needs_devices(changes, message):
    with pytest.raises(SpecError, match=message):
        setup(**changes)
