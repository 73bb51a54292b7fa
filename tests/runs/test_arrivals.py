"""Runs with clients that come and go."""

import time
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
from crowd import SEEN
from toy import play, same, setup, table

import shoal
from shoal import SpecError, cli
from shoal.core.data import Partition
from shoal.data.shards import DealtShards
from shoal.loop import advance
from shoal.runs.build import build
from shoal.spec import from_table

MILLION = 10**6


def listed(join=(), leave=()):
    def events(pairs):
        return [{"round": round, "clients": clients} for round, clients in pairs]

    return {"name": "list", "join": events(join), "leave": events(leave)}


def test_who_is_not_there_is_neither_selected_nor_evaluated():
    arrivals = listed(join=[(3, "4-7")], leave=[(3, "0-3")])
    result = shoal.run(table(rounds=4, arrivals=arrivals, selector="all", evaluate={"every": 1}))
    for record in result.records:
        new = record["round"] > 2
        assert sorted(record["cohort"]) == ([4, 5, 6, 7] if new else [0, 1, 2, 3])
        assert record["present"] == 4
        assert record["present_newcomers"] == (4 if new else 0)
        assert ("newcomers" in record) == new
        assert "known" not in record
    last = result.records[-1]
    assert last["newcomers"] == {"clients": 4, "mean_client_accuracy": last["mean_client_accuracy"]}
    assert result.summary["newcomers"] == last["newcomers"]


def test_known_clients_and_newcomers_are_recorded_apart():
    arrivals = {"name": "rate", "initial": 5, "rate": 1.0}
    last = shoal.run(table(rounds=3, arrivals=arrivals, evaluate={"every": 1})).records[-1]
    known, new = last["known"], last["newcomers"]
    assert (known["clients"], new["clients"]) == (5, 2)
    both = (5 * known["mean_client_accuracy"] + 2 * new["mean_client_accuracy"]) / 7
    assert last["mean_client_accuracy"] == pytest.approx(both)


def test_a_run_without_arrivals_records_nothing_of_them():
    record = shoal.run(table(rounds=1, evaluate={"every": 1})).records[0]
    assert not {"present", "present_newcomers", "known", "newcomers"} & record.keys()


def test_a_client_comes_back_with_the_memory_that_it_left_with(tmp_path):
    """Also if the run went on in another process while it was away."""
    arrivals = listed(join=[(4, "0")], leave=[(2, "0")])
    tables = table("scaffold", rounds=3, arrivals=arrivals, selector="all")
    left = setup("scaffold", arrivals=arrivals, selector="all")
    progress = play(left, 1)
    memory = left.federation.engine.memory(0, progress.accepted[0])
    result = shoal.run(tables, tmp_path / "run", report=False)
    assert result.progress.accepted[0] == (0, 0)
    assert result.progress.accepted[1] == (2, 0)
    path = tmp_path / "run"
    (path / "summary.json").unlink()
    text = (path / "spec.toml").read_text()
    (path / "spec.toml").write_text(text.replace("rounds = 3", "rounds = 4"))
    resumed = shoal.resume(path, report=False)
    whole = shoal.run({**tables, "rounds": 4})
    assert resumed.memory_sha256 == whole.memory_sha256
    assert 0 in resumed.records[3]["cohort"]
    engine = result.setup.federation.engine
    assert same(engine.memory(0, (0, 0)), memory)
    assert not same(resumed.setup.federation.engine.memory(0, (3, 0)), memory)


@dataclass(frozen=True)
class Poor(Partition):
    """Client 6 holds no samples, client 7 holds samples of one class only, the others anything."""

    clients: int = 8

    def split(self, dataset, key):
        labels = dataset.y_train.numpy()
        owner = np.where(labels == 3, 7, np.arange(len(labels)) % 6)
        return DealtShards.by_owner(owner, self.clients, key)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedgen", "clusamp", "fsi", "genefl"])
def test_newcomers_without_samples_or_with_one_class_only(name):
    result = shoal.run(
        table(
            name,
            rounds=3,
            arrivals=listed(join=[(2, "6-7")]),
            partition={"kind": f"{__name__}:Poor"},
            selector={"name": "clustered", "count": 8} if name == "clusamp" else "all",
            evaluate={"every": 1},
        )
    )
    first, *later = result.records
    assert first["rejected"] == []
    for record in later:
        refused = {entry["client"]: entry["reason"] for entry in record["rejected"]}
        assert refused == ({} if name == "clusamp" else {6: "it holds no samples"})  # never drawn there
        assert record["newcomers"]["clients"] == 1  # 7
        assert record["newcomers"]["mean_client_accuracy"] is not None
    assert name == "clusamp" or 7 in later[0]["cohort"]


@pytest.mark.parametrize(
    ("arrivals", "changes", "message"),
    [
        (listed(join=[(2, "5-9")]), {}, r"\[arrivals\] there is no client 9"),
        (listed(join=[(9, "0-7")]), {}, "nobody is there in any of the 3 rounds"),
        (listed(join=[(2, "4-7")], leave=[(2, "0-3")]), {"selector": {"count": 5}}, "population of 4"),
        ("rate", {}, "arrivals.initial is missing"),
        ({"name": "list", "path": "x"}, {}, "unknown key arrivals.path"),
        ({"rate": 2.0}, {}, "arrivals needs a name, one of: list, rate, csv"),
    ],
)
def test_arrivals_that_do_not_suit_the_run(arrivals, changes, message):
    with pytest.raises(SpecError, match=message):
        setup(arrivals=arrivals, **changes)


def test_a_wrong_file_ends_the_command_with_code_2(tmp_path, monkeypatch, capsys):
    path = tmp_path / "spec.toml"
    path.write_text('[arrivals]\nname = "csv"\npath = "nobody.csv"\n')
    monkeypatch.setattr("sys.argv", ["shoal", "run", str(path), "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "[arrivals] path = 'nobody.csv' does not exist" in capsys.readouterr().err


def test_clients_that_are_too_small_do_not_come():
    privacy = {"name": "gaussian", "noise": 0.0, "min_samples": 30}
    made = setup(privacy=privacy, arrivals=listed(join=[(2, "4-7")]), selector="all")
    sizes = made.shards.counts(range(8))
    assert min(sizes) < 30 < max(sizes)
    there = made.federation.engine.clients
    assert list(there(0)) == [client for client in range(4) if sizes[client] >= 30]
    assert list(there(1)) == [client for client in range(8) if sizes[client] >= 30]


def crowd(clients, arrivals, **changes):
    partition = {"kind": "crowd:Crowd", "clients": clients}
    return table(partition=partition, evaluate={"clients": 20}, arrivals=arrivals, **changes)


GOING = listed(join=[(2, "500-1399"), (3, "7")], leave=[(2, "0-99"), (2, "200,300")])


def test_a_million_that_come_and_go_cost_what_a_few_thousand_cost():
    def cost(clients):
        made = build(from_table(crowd(clients, GOING)))
        progress = play(made, 1)
        tracemalloc.start()
        started = time.perf_counter()
        for _ in range(2):
            progress, _ = advance(made.federation, progress)
        used = tracemalloc.get_traced_memory()[1], time.perf_counter() - started
        tracemalloc.stop()
        return used

    cost(2000)  # warm
    (few, short), (many, long) = cost(2000), cost(MILLION)
    assert many < 1.5 * few + 50_000  # bytes
    assert long < 3 * short + 0.1
    SEEN.clear()
    result = shoal.run(crowd(MILLION, GOING))
    cohorts = {client for record in result.records for client in record["cohort"]}
    assert len(SEEN - cohorts) <= 80  # the samples of three rounds, and of the summary
    assert [record["present"] for record in result.records] == [999_100, 999_898, 999_899]


def test_a_million_at_a_rate():
    SEEN.clear()
    arrivals = {"name": "rate", "initial": 999_000, "rate": 250.5, "stay": 2}
    result = shoal.run(crowd(MILLION, arrivals))
    assert [record["present"] for record in result.records] == [999_000, 999_250, 501]
    assert min(result.records[-1]["cohort"]) >= 999_000
    assert len(SEEN) <= 3 * (20 + 4) + 20  # and those of the summary


def test_all_rounds_may_be_empty_but_one():
    arrivals = listed(join=[(2, "0-7")], leave=[(3, "0-7")])
    result = shoal.run(table(rounds=3, arrivals=arrivals, evaluate={"every": 1}))
    assert [len(record["cohort"]) for record in result.records] == [0, 4, 0]
    assert result.records[0]["bytes_up"] == 0
    assert result.records[0]["accuracy"] is not None
    assert result.final_accuracy == result.records[1]["accuracy"]
    assert result.mean_client_accuracy is None


def test_a_run_that_starts_with_nobody(tmp_path):
    arrivals = {"name": "rate", "initial": 0, "rate": 4.0}
    result = shoal.run(table("local", rounds=2, arrivals=arrivals, evaluate={"every": 1}), tmp_path / "run")
    assert [record["present"] for record in result.records] == [0, 4]
    assert result.records[0]["accuracy"] is None  # there is no global model, and nobody to ask
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Clients present" in page
    assert "Known clients and newcomers" in page
