from shoal.aggregators import AGGREGATORS
from shoal.aggregators.krum import Krum
from shoal.bench import aggregators


def test_every_rule_is_timed_for_every_number_of_clients(monkeypatch):
    monkeypatch.setattr(aggregators, "LARGEST", 8 * 7850)
    seen = []
    rows = list(aggregators.measure(("linear",), (7, 8, 9), 1, lambda *what: seen.append(what)))
    assert [row["aggregator"] for row in rows] == [name for name in AGGREGATORS if name != "fltrust"]
    assert seen == [("linear", row["aggregator"]) for row in rows]
    assert all(row["parameters"] == 7850 for row in rows)
    assert all(row["seconds_7"] > 0 and row["seconds_8"] > 0 and row["seconds_9"] is None for row in rows)


def test_too_few_clients_for_a_rule(monkeypatch):
    monkeypatch.setattr(aggregators, "AGGREGATORS", {"krum": lambda: Krum(f=3)})
    (row,) = aggregators.measure(("linear",), (4, 9), 1)
    assert row["seconds_4"] is None
    assert row["seconds_9"] > 0
