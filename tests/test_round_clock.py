"""Virtual time, by hand."""

import json

import pytest
from toy import spec, table

import shoal
from shoal.core.devices import Spent
from shoal.core.engine import Delivery
from shoal.core.types import Cohort
from shoal.round_clock import Deadline, RoundClock

COUNTED = {"constant": {"name": "constant", "speed": 10.0, "down": 1000.0, "up": 500.0, "latency": 0.25}}


def delivery(client, *seconds, reason=""):
    return Delivery((client,), (0, 0), (), None, reason, 10, 10, (Spent(*seconds),))


def run_leg(clock, deliveries, **settings):
    ids = tuple(d.clients[0] for d in deliveries)
    clock.next_leg(Cohort(ids, settings, 9))
    return list(clock.timed(iter(deliveries), len(ids)))


def test_a_round_takes_as_long_as_its_slowest_client():
    clock = RoundClock(Deadline())
    assert clock.seconds is None
    run_leg(clock, [delivery(1, 1.0, 2.0, 0.5), delivery(2, 0.5, 0.25, 0.125)])
    assert clock.seconds == pytest.approx(3.5, abs=1e-12)
    run_leg(clock, [delivery(2, 1.0, 1.0, 1.0)])  # the next exchange begins when all have replied
    assert clock.seconds == pytest.approx(6.5, abs=1e-12)
    clock.repeat(2)
    assert clock.seconds == pytest.approx(12.5, abs=1e-12)


def test_three_clients_a_chain_of_two_and_a_deadline():
    """Clients 1 and 2 are a chain of 2 + 3 s, client 3 alone takes 6 s of the 5.5 s that there are."""
    clock = RoundClock(Deadline(5.5))
    first = run_leg(clock, [delivery(1, 0.5, 1.0, 0.5), delivery(3, 1.0, 4.0, 1.0)], chain=(0, 1))
    second = run_leg(clock, [delivery(2, 1.0, 1.5, 0.5)], chain=(0,))
    assert [d.reason for d in (*first, *second)] == ["", "it is late: 6 s, the deadline is 5.5 s", ""]
    assert [turn.start for turn in clock.turns] == [0.0, 0.0, 2.0]
    assert clock.seconds == pytest.approx(5.5, abs=1e-9)  # the server waits for client 3 as long as it may
    assert [turn.client for turn in clock.wasted] == [3]
    assert clock.recorded()["wasted_seconds"] == pytest.approx(6.0, abs=1e-9)


def test_chains_do_not_wait_for_each_other():
    clock = RoundClock(Deadline())
    run_leg(clock, [delivery(1, 0, 5.0, 0), delivery(2, 0, 1.0, 0)], chain=(0, 1))
    run_leg(clock, [delivery(3, 0, 1.0, 0), delivery(4, 0, 2.0, 0)], chain=(0, 1))
    assert clock.seconds == 6.0  # max(5 + 1, 1 + 2)


def test_the_first_replies_count():
    clock = RoundClock(Deadline(over_select=1.5))
    found = run_leg(clock, [delivery(1, 0, 9.0, 0), delivery(2, 0, 1.0, 0), delivery(3, 0, 4.0, 0)])
    assert [d.reason for d in found] == ["it came after the first 2 replies", "", ""]
    assert clock.seconds == 4.0


def test_a_rate_of_zero_never_replies():
    clock = RoundClock(Deadline())
    (found,) = run_leg(clock, [delivery(1, 0.5, 1.0, float("inf"))])
    assert "would never reply" in found.reason
    assert clock.seconds == 0.0


def test_the_time_of_a_client_follows_from_its_packets():
    result = shoal.run(spec(rounds=1, devices=COUNTED["constant"], selector="all"))
    record = result.records[0]
    assert record["bytes_down"] % 8 == 0
    down, up = record["bytes_down"] / 8, record["bytes_up"] / 8
    largest = 2 * max(result.setup.shards.counts(range(8)))  # samples, in two epochs
    expected = (0.25 + down / 1000) + largest / 10 + (0.25 + up / 500)
    assert record["virtual_seconds"] == pytest.approx(expected, abs=1e-9)
    assert result.virtual_seconds == pytest.approx(expected, abs=1e-9)
    assert {line["client"] for line in record["timeline"]} == set(range(8))


@pytest.mark.parametrize("mode", ["serial", "block", "workers"])
def test_virtual_time_is_the_same_in_every_mode(mode):
    tables = table(devices={"name": "tiers"}, faults={"deadline": 25.0})
    first, second = (shoal.run({**tables, "engine": {"mode": m, "workers": 2}}) for m in ("serial", mode))
    lines = [[json.dumps({**r, "seconds": 0}) for r in result.records] for result in (first, second)]
    assert lines[0] == lines[1]
    assert any(record["rejected"] for record in first.records)


def test_who_is_late_keeps_no_memory():
    tables = table("local", devices={"name": "tiers"}, faults={"deadline": 15.0}, selector="all", rounds=1)
    result = shoal.run(tables)
    late = {entry["client"] for entry in result.records[0]["rejected"]}
    assert late
    assert set(result.progress.accepted) == set(range(8)) - late


def test_a_run_stops_by_the_clock():
    tables = table(
        devices={"name": "tiers"}, rounds=50, evaluate={"every": 0, "stop_at_virtual_seconds": 60.0}
    )
    result = shoal.run(tables)
    assert result.virtual_seconds >= 60 > sum(r["virtual_seconds"] for r in result.records[:-1])
    assert result.final_accuracy is not None
