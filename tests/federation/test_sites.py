"""Sites in memory: the same bits as on one machine, and what happens if a site cannot do its part."""

import json
import re
from pathlib import Path

import pytest
import torch
from federation.sites_in_memory import MemoryPost, federated, sites

import shoal
from shoal.core.serialization import from_bytes
from shoal.data.client_data import Simulated
from shoal.data.own import csv as simulated_csv
from shoal.federation.explain import explained
from shoal.federation.letters import Answer, read_job, write_answer
from shoal.federation.own_files import load_own, own_source, read_agreement
from shoal.federation.site_client import SiteClient, SiteInvitation, join
from shoal.federation.site_data import expected_of
from shoal.spec import from_table

METHODS = {
    "fedavg": {},
    "scaffold": {},
    "fedqp": {},
    "fsi": {"epochs": 20},
    "genefl": {"clusters": 2},
    "dsvd": {},
    "situa_cq": {},
}


def table(name="fedavg", **more):
    task = {"dataset": "digits", "model": "logistic_ova" if name == "fsi" else "mlp", "hidden": 16}
    if name == "fsi":
        del task["hidden"]
    local = {} if name == "fsi" else {"local": {"batch": 50, "epochs": 1}}
    return {
        "rounds": 2,
        "task": task,
        "partition": {"kind": "dirichlet", "clients": 3, "beta": 1.0},
        "method": {"name": name, **METHODS.get(name, {})},
        "evaluate": {"every": 0},
        **({} if name == "situa_cq" else {"selector": {"fraction": 1.0}}),
        **local,
        **more,
    }


def summary(folder):
    return json.loads((folder / "run" / "summary.json").read_text())


@pytest.mark.parametrize("name", METHODS)
def test_sites_give_the_bits_and_bytes_of_one_machine(name, tmp_path):
    spec = from_table(table(name))
    local = shoal.run(spec)
    post = federated(spec, tmp_path, ["spec"] * 3)
    assert "profile" not in {read_job(letter.job).verb for letter in post.letters}  # it came on joining
    found = summary(tmp_path)
    assert found["weights_sha256"] == local.weights_sha256
    assert (found["bytes_up"], found["bytes_down"]) == (local.bytes_up, local.bytes_down)
    assert found["final_accuracy"] == local.final_accuracy
    assert found["rejected"] == 0


# ---- sites with data of their own

COLUMNS = ("height", "weight", "age")


def write_table(path, rows, columns=COLUMNS, labels=("ill", "well"), shift=0.0):
    lines = [",".join([*columns, "diagnosis"])]
    for i in range(rows):
        values = [f"{((7 * i + 3 * j) % 11) / 5 - 1 + shift:.3f}" for j in range(len(columns))]
        lines.append(",".join([*values, labels[(i * i) % 3 == 1]]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def own_table(name="fedavg", rounds=3, **more):
    sites = {"columns": COLUMNS, "label": "diagnosis", "classes": ("ill", "well"), "min_samples": 5}
    return {
        "rounds": rounds,
        "task": {"dataset": "digits", "model": "linear"},
        "method": {"name": name},
        "local": {"batch": 10, "epochs": 1},
        "sites": sites,
        "selector": {"fraction": 1.0},
        **more,
    }


@pytest.fixture
def tables(tmp_path):
    return [write_table(tmp_path / f"{i}.csv", 40 + 8 * i, shift=0.1 * i) for i in range(3)]


def rounds(folder):
    return [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]


def test_a_site_loads_its_kernel_when_it_joins(tmp_path, monkeypatch):
    """To compile one may take longer than the deadline of a round."""
    said = []

    def visited(*job):
        said.append("visited")
        raise OSError

    monkeypatch.setattr("shoal.solver.compiled_sgd.load_kernel", lambda task: said.append("loaded"))
    monkeypatch.setattr(SiteClient, "_visited", visited)
    federated(from_table(table(rounds=1, faults={"on_error": "refuse"})), tmp_path, ["spec"] * 3)
    assert said[:3] == ["loaded"] * 3
    assert "visited" in said


def test_a_server_without_data_records_what_its_sites_measure(tmp_path, tables):
    federated(from_table(own_table()), tmp_path, tables)
    before = None
    for record in rounds(tmp_path):
        if before is not None:  # an update carries an evaluation of the model that was sent
            assert record["clients.sent_accuracy"] == pytest.approx(before, abs=0.1)
        before = record["accuracy"]
        assert record["accuracy"] == pytest.approx(record["mean_client_accuracy"])
        assert record["cohort"] == [2, 1, 0]  # the largest first
        assert not record["rejected"]


def test_no_row_of_a_site_is_in_the_server_s_files(tmp_path, tables):
    federated(from_table(own_table("scaffold")), tmp_path / "f", tables)
    rows = {line for table in tables for line in Path(table).read_text().splitlines()}
    for path in [*(tmp_path / "f" / "run").rglob("*"), tmp_path / "f" / "status.json"]:
        if path.is_file():
            text = path.read_bytes().decode("latin-1")
            assert not any(row in text for row in rows - {""}), path


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: write_table(path, 40, columns=("height", "age")), "has no column weight"),
        (lambda path: write_table(path, 40, labels=("ill", "dead")), "the class 'dead' is unknown"),
        (lambda path: write_table(path, 4), "it holds 4 samples for training, fewer than 5"),
        (lambda path: "digits", r"the shape \(1, 8, 8\), the server expects \(3,\)"),
        (lambda path: str(path), "cannot be read"),
        (lambda path: "nowhere", "neither a CSV file nor a data set"),
    ],
)
def test_a_site_that_cannot_serve_the_spec_is_named_and_the_others_go_on(tmp_path, tables, make, reason):
    lines = []
    federated(from_table(own_table()), tmp_path, [*tables[:2], make(tmp_path / "bad.csv")], lines=lines)
    said = [line for line in lines if line.startswith("site2 is refused")]
    assert len(said) == 1
    assert re.search(reason, said[0])
    status = json.loads((tmp_path / "status.json").read_text())
    assert [site["state"] for site in status["sites"]] == ["ready", "ready", "refused"]
    assert [record["cohort"] for record in rounds(tmp_path)] == [[1, 0]] * 3


def test_a_site_that_is_lost_in_a_round_costs_its_reply_and_is_used_again(tmp_path, tables):
    spec = from_table(
        own_table("scaffold", rounds=3, evaluate={"every": 0, "clients": 0}, faults={"deadline": 0.5})
    )
    # letters 1 to 3 are descriptions, 4 to 6 the first round
    post = MemoryPost(sites(tmp_path, tables), lost=lambda node, count: node == 101 and 6 < count < 10)
    federated(spec, tmp_path, tables, post)
    found = rounds(tmp_path)
    assert [record["cohort"] for record in found] == [[2, 1, 0]] * 3
    assert [[r["client"] for r in record["rejected"]] for record in found] == [[], [1], []]
    assert "the deadline is 0.5 s" in found[1]["rejected"][0]["reason"]
    asked = [read_job(letter.job) for letter in post.letters if letter.node == 101]
    assert [job.accepted for job in asked] == [None, None, (0, 0), (0, 0)]  # its memory of the first round


def test_a_site_that_leaves_is_not_asked_until_it_returns(tmp_path, tables):
    spec = from_table(own_table("scaffold", rounds=3, evaluate={"every": 0, "clients": 0}))
    post = MemoryPost(sites(tmp_path, tables))
    answer = post.clients[100].answer

    def leaves(job, packet):
        read = read_job(job)
        if read.verb == "update":
            post.gone = {101} if read.round == 0 else set()
        return answer(job, packet)

    post.clients[100].answer = leaves
    federated(spec, tmp_path, tables, post)
    assert [record["cohort"] for record in rounds(tmp_path)] == [[2, 1, 0], [2, 0], [2, 1, 0]]
    last = [read_job(letter.job) for letter in post.letters if letter.node == 101][-1]
    assert last.accepted == (0, 0)


@pytest.mark.parametrize("name", ["scaffold", "fedavg"])
def test_a_server_that_was_killed_goes_on_to_the_same_bits(name, tmp_path, tables):
    spec = from_table(own_table(name, rounds=4))
    federated(spec, tmp_path / "whole", tables)

    class KilledError(Exception):
        pass

    def stop(node, count):
        if count == 3 + 2 * 6 + 2:  # in the third round, after one of its letters
            raise KilledError
        return False

    with pytest.raises(KilledError):
        federated(spec, tmp_path / "parts", tables, MemoryPost(sites(tmp_path / "parts", tables), stop))
    federated(spec, tmp_path / "parts", tables)  # with new processes on both sides
    whole, parts = summary(tmp_path / "whole"), summary(tmp_path / "parts")
    assert whole["weights_sha256"] == parts["weights_sha256"]
    assert whole["rounds"] == parts["rounds"] == 4


def test_a_site_says_when_its_memory_is_lost(tmp_path, tables):
    spec = from_table(own_table("scaffold", rounds=2, evaluate={"every": 0, "clients": 0}))
    post = MemoryPost(sites(tmp_path, tables))
    answer = post.clients[102].answer

    def forgets(job, packet):
        if read_job(job).round == 1:
            for file in (tmp_path / "site2" / "memory").glob("*/0-0"):
                file.unlink()
        return answer(job, packet)

    post.clients[102].answer = forgets
    federated(spec, tmp_path, tables, post)
    assert rounds(tmp_path)[1]["rejected"] == [{"client": 2, "reason": "its memory of round 1 is lost"}]


def test_a_site_s_noise_cannot_be_drawn_by_the_server(tmp_path, tables):
    spec = from_table(own_table(rounds=1, privacy={"name": "gaussian", "noise": 0.1}))
    for name in ("one", "other"):
        federated(spec, tmp_path / name, tables)
    one, other = summary(tmp_path / "one"), summary(tmp_path / "other")
    assert one["weights_sha256"] != other["weights_sha256"]


def test_garbage_from_a_site_is_refused(tmp_path, tables):
    spec = from_table(own_table(rounds=2, evaluate={"every": 0, "clients": 0}))
    post = MemoryPost(sites(tmp_path, tables))
    right = {node: client.answer for node, client in post.clients.items()}
    written = Answer(0, 0, 0)
    bad = {
        100: lambda job, packet: (b"garbage", b""),
        101: lambda job, packet: (right[101](job, packet)[0], b"\xff" * 100),
        102: lambda job, packet: (write_answer(written), b""),
    }
    for node, client in post.clients.items():
        client.answer = lambda job, packet, n=node: (
            bad[n] if read_job(job).verb == "update" and read_job(job).round == 0 else right[n]
        )(job, packet)
    federated(spec, tmp_path, tables, post)
    first, second = rounds(tmp_path)
    assert {r["client"]: r["reason"].split(":")[0] for r in first["rejected"]} == {
        0: "its answer cannot be read",
        1: "it cannot be read",
        2: "it answers as site 0",
    }
    assert not second["rejected"]


# ---- files of the kinds that a spec can name


def csv_table(**more):
    task = {"dataset": "csv", "path": "*.csv", "label": "diagnosis", "model": "linear"}
    return {k: v for k, v in own_table(**more).items() if k != "sites"} | {"task": task}


def test_sites_agree_on_an_encoding_without_showing_a_row(tmp_path, tables):
    post = federated(from_table(csv_table(rounds=2)), tmp_path / "f", tables)
    verbs = [read_job(letter.job).verb for letter in post.letters]
    assert verbs[:6] == ["survey"] * 3 + ["describe"] * 3
    agreed = read_agreement(from_bytes((tmp_path / "f" / "run" / "agreement").read_bytes()))
    assert agreed.classes == ("ill", "well")
    assert tuple(agreed.numbers) == COLUMNS
    together = simulated_csv(path=str(tmp_path / "*.csv"), label="diagnosis")
    data = [load_own(own_source(from_table(csv_table()).task, "", path), agreed) for path in tables]
    x = torch.cat([one.x_train for one in data])
    assert torch.equal(x, together.x_train)  # as in a simulation that has all files
    assert x.mean(0).abs().max() < 1e-6
    assert [record["cohort"] for record in rounds(tmp_path / "f")] == [[2, 1, 0]] * 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: write_table(path, 40, columns=("height", "age")), "weight"),
        (lambda path: str(path), "cannot be read"),
    ],
)
def test_a_site_whose_file_does_not_fit_is_named_and_the_others_agree(tmp_path, tables, make, reason):
    lines = []
    (tmp_path / "other").mkdir()
    odd = make(tmp_path / "other" / "bad.csv")
    federated(from_table(csv_table(rounds=1)), tmp_path / "f", [*tables[:2], odd], lines=lines)
    (said,) = [line for line in lines if line.startswith("site2 is refused")]
    assert reason in said
    assert rounds(tmp_path / "f")[0]["cohort"] == [1, 0]


def test_explain_names_all_that_leaves_a_site(tmp_path, tables):
    spec = from_table(own_table("scaffold", rounds=1, evaluate={"every": 0}))
    joined = join("", SiteInvitation(spec, expected_of(spec), frozenset()), 0, tables[0], tmp_path)
    lines = list(explained(spec, joined, 0))
    what = [line.what.strip() for line in lines]
    for name in (
        "update.params.fc.weight",
        "number of samples",
        "train_loss",
        "sent_accuracy",
        "own.accuracy",
    ):
        assert name in what, what
    post = federated(spec, tmp_path / "f", tables)
    sent = next(line.size for line in lines if line.what == "one packet, in total")
    assert sent == f"{rounds(tmp_path / 'f')[0]['bytes_up'] // 3:,} bytes"
    assert [read_job(letter.job).verb for letter in post.letters[::3]] == ["describe", "update", "evaluate"]


def test_no_round_is_used_up_while_all_sites_are_away(tmp_path, tables):
    post = MemoryPost(sites(tmp_path, tables))
    looks = []

    def nodes():
        looks.append(len(rounds(tmp_path)) if (tmp_path / "run" / "rounds.jsonl").exists() else 0)
        away = looks[-1] == 1 and looks.count(1) < 3  # after the first round, for three looks
        return [] if away else list(post.clients)

    post.nodes = nodes
    federated(from_table(own_table(rounds=2, evaluate={"every": 0, "clients": 0})), tmp_path, tables, post)
    assert [record["cohort"] for record in rounds(tmp_path)] == [[2, 1, 0]] * 2
    assert looks.count(1) >= 3


def test_what_an_error_at_a_site_says_stays_there(tmp_path, tables, monkeypatch):
    spec = from_table(own_table(rounds=1, evaluate={"every": 0, "clients": 0}))
    said = []
    clients = sites(tmp_path, tables)
    clients[101] = SiteClient(1, tables[1], tmp_path / "site1", said.append)
    train = Simulated.train

    def fails(self, client, *arguments, **options):
        if client == 1:
            raise ValueError("the patient John")
        return train(self, client, *arguments, **options)

    monkeypatch.setattr(Simulated, "train", fails)
    federated(spec, tmp_path, tables, MemoryPost(clients))
    (refused,) = rounds(tmp_path)[0]["rejected"]
    assert refused == {"client": 1, "reason": "ValueError at the site; its log says more"}
    assert "the patient John" in said[-1]
