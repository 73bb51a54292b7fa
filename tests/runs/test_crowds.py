"""What a run writes is of its cohorts and of a sample: a million clients cost no more than a thousand."""

import pytest
from crowd import SEEN
from toy import table

import shoal
from shoal import cli
from shoal.runs.evaluation import shown_clients
from shoal.spec import from_table

MILLION = 10**6


def crowd(clients=MILLION, **changes):
    return table(partition={"kind": "crowd:Crowd", "clients": clients}, evaluate={"clients": 20}, **changes)


@pytest.fixture(autouse=True)
def _nobody_seen_yet():
    SEEN.clear()


def test_a_run_and_its_report_look_at_the_cohorts_and_the_sample_only(tmp_path):
    result = shoal.run(crowd(), tmp_path / "run")
    cohorts = {client for record in result.records for client in record["cohort"]}
    sample = shown_clients(result.spec, MILLION)
    assert len(sample) == 20
    assert cohorts | set(sample) >= SEEN > cohorts
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Measured on 20 of 1,000,000 clients." in page
    assert "12 of 1,000,000 clients took part at least once." in page


def test_the_files_are_as_small_as_those_of_a_thousand(tmp_path):
    def sizes(clients):
        folder = tmp_path / str(clients)
        shoal.run(crowd(clients, attack="sign_flip"), folder)
        return {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}

    few, many = sizes(1000), sizes(MILLION)
    assert few.keys() == many.keys()
    assert all(many[name] < 1.2 * few[name] for name in few)


def test_of_very_many_attackers_the_summary_lists_those_of_the_sample():
    result = shoal.run(crowd(attack={"name": "sign_flip", "fraction": 0.5}, rounds=1))
    listed, sample = result.summary["attackers"], shown_clients(result.spec, MILLION)
    assert set(listed) < set(sample)
    assert result.summary["attackers_share"] == 0.5
    few = shoal.run(crowd(attack={"name": "sign_flip", "attackers": [5, 999_999]}, rounds=1))
    assert few.summary["attackers"] == [5, 999_999]


def test_clients_that_are_shown():
    assert shown_clients(from_table(crowd()), 1000) == range(1000)
    assert len(shown_clients(from_table(crowd()), 1001)) == 20
    nobody = from_table({**crowd(), "evaluate": {"clients": 0}})
    assert len(shown_clients(nobody, 1001)) == 100


def test_the_picture_of_a_partition_looks_at_the_sample_only(tmp_path, monkeypatch):
    spec, picture = tmp_path / "crowd.toml", tmp_path / "crowd.png"
    spec.write_text(shoal.dump_spec(from_table(crowd())))
    monkeypatch.setattr("sys.argv", ["shoal", "partition", str(spec), "--out", str(picture)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert picture.exists()
    assert set(shown_clients(from_table(crowd()), MILLION)) == SEEN
