"""Any method, once for each cluster of clients."""

import pytest
import torch
from toy import KEY, play, played, same, setup, spec, table

import shoal
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, Moment
from shoal.methods import METHODS
from shoal.methods.per_cluster import PerCluster
from shoal.parts.cluster_metrics import merged
from shoal.runs.build import build
from shoal.spec import dump_spec, from_table, to_table


def wrapped(inner, clusters, **fields):
    return {"name": "per_cluster", "inner": inner, "clusters": clusters, **fields}


EVERY_KIND = [
    "fedavg",
    "scaffold",
    "clusamp",
    "fedqp",
    "fedbn",
    "dsvd",
    "fedgen",
    "qfedavg",
    "krum",
    "fedadam",
    "local",
    "fsi",
]


@pytest.mark.parametrize("name", EVERY_KIND)
def test_one_cluster_is_the_method_itself(name):
    tables = table(name, selector={"name": METHODS[name].selector or "uniform", "count": 4})
    alone = build(from_table(tables))
    whole = build(from_table({**tables, "method": wrapped(tables["method"], 1)}))
    ends = [play(made, 2) for made in (alone, whole)]
    models = [m.federation.method.models(end.state) for m, end in zip((alone, whole), ends, strict=True)]
    assert same(*models)
    assert ends[0].accepted == ends[1].accepted


def test_each_cluster_is_a_federation_of_its_own():
    """The model of a cluster is FedAvg's of its members alone, to the bit."""
    made = setup(wrapped("fedavg", 3), selector="all")
    progress = play(made, 2)
    homes = progress.state.clusters.homes
    assert set(homes) == set(range(8))
    assert len(set(homes.values())) == 3
    for k in range(3):
        alone = setup("fedavg", selector="all")
        members = tuple(client for client in range(8) if homes[client] == k)
        alone.federation.engine._timetable = lambda round, members=members: members
        assert same(play(alone, 2).state.model, progress.state.inner[k].model)


def test_as_many_clusters_as_clients_train_alone():
    first = played(wrapped({"name": "fedavg", "weights": "uniform"}, 8), selector="all")
    made = setup("local", selector="all")
    second = play(made)
    for client, version in second.accepted.items():
        memory = made.federation.engine.memory(client, version).method
        assert torch.allclose(
            first.state.inner[first.state.clusters.homes[client]].model.params["0.weight"],
            memory.params["0.weight"],
            atol=1e-6,
        )


def test_clusters_are_recorded_once_and_clients_are_judged_with_their_own():
    result = shoal.run(spec(wrapped("fedavg", 3), evaluate={"every": 1}))
    assert set(result.records[0]["clusters"]) == set(range(8))
    assert all("clusters" not in record for record in result.records[1:])
    assert result.mean_client_accuracy is not None
    with pytest.raises(SpecError, match="no global model"):
        result.model()
    assert result.model(client=2)(torch.zeros(1, 10)).shape == (1, 4)


def test_a_signature_costs_bytes_once():
    plain, profiled = (shoal.run(spec(m, rounds=2)) for m in ("fedavg", wrapped("fedavg", 1)))
    first, second = (
        b["bytes_up"] - a["bytes_up"] for a, b in zip(plain.records, profiled.records, strict=True)
    )
    assert first > 8 * 10 * 5 * 4  # a matrix of ten features and five vectors from each of eight clients
    assert second == 0


def test_a_newcomer_joins_without_moving_the_others():
    made = setup(wrapped("fedavg", 2))
    method, state = made.federation.method, play(made, 1).state
    data = made.side.data.train(0, None, KEY, full=False)
    profile = method.profile(made.federation.task, data, KEY)
    later = method.admit(state, {100: profile}, Moment(5, 0, False, KEY))
    assert later.clusters.homes[100] == state.clusters.homes[0]
    assert {**later.clusters.homes, 100: 0} == {**state.clusters.homes, 100: 0}
    assert later.moved == {100: state.clusters.homes[0]}


def test_a_cohort_without_members_of_a_cluster_leaves_it_alone():
    made = setup(wrapped("fedavg", 3), selector="all")
    progress = play(made, 1)
    homes = progress.state.clusters.homes
    only = tuple(c for c in range(8) if homes[c] == 0)
    method = made.federation.method
    message = method.dispatch(
        made.federation.task, progress.state, Cohort(only, {}, 8), Moment(1, 0, True, KEY)
    )
    assert message.model is progress.state.inner[0].model  # shared: it is encoded once
    acc = method.begin(progress.state, Cohort(only, {}, 8))
    state, metrics = method.finish(made.federation.task, progress.state, acc, Moment(1, 0, True, KEY))
    assert same(state.inner, progress.state.inner)
    assert metrics == {}


def test_chains_of_different_clusters_are_different_chains():
    """Each cluster plans with the reports of its own members, and the clock keeps their chains apart."""
    result = shoal.run(table(wrapped("situa_cq", 2), selector="all", rounds=2))
    record = result.records[1]
    lines = record["timeline"]
    assert record["virtual_seconds"] == pytest.approx(max(_end(line) for line in lines))
    chains = {}
    for line in lines:
        chains.setdefault(line["chain"], []).append(line["client"])
    homes = result.progress.state.clusters.homes
    assert all(len({homes[client] for client in members}) == 1 for members in chains.values())
    assert len(chains) == len(record["formats"]) == len(record["cluster_seconds"])
    assert len(set(record["cluster_seconds"])) > 1  # they know how fast clients are


def _end(line):
    return line["start"] + line["down"] + line["compute"] + line["up"]


def test_metrics_of_clusters_are_merged():
    told = [{"loss": 1.0, "weights": {1: 0.5}, "layers": {"a": 2}}, {"loss": 3.0, "layers": {"a": 1, "b": 4}}]
    assert merged(told) == {"loss": 2.0, "weights": {1: 0.5}, "layers": {"a": 3, "b": 4}}
    assert merged([{"note": "x"}]) == {"note": "x"}


def test_the_solver_belongs_to_the_inner_method():
    made = spec(wrapped("scaffold", 3), local={"lr": 0.25})
    assert isinstance(made.method, PerCluster)
    assert made.method.inner.local.lr == 0.25
    tables = to_table(made)
    assert tables["local"]["lr"] == 0.25
    assert "local" not in tables["method"]["inner"]
    assert from_table(tables) == made
    assert 'name = "scaffold"' in dump_spec(made)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clusters": 0}, "clusters must be at least 1, got 0"),
        ({"rank": 0}, "rank must be at least 1, got 0"),
        ({"inner": "fedavgg"}, "did you mean fedavg"),
        ({"inner": {"name": "per_cluster"}}, "inner forms clusters of its own"),
        ({"inner": "genefl"}, "inner forms clusters of its own"),
        ({"clustering": "birch"}, "must be one of kmeans, kmedoids, linkage, literal"),
        ({"inner": {"name": "fedprox", "muu": 1}}, "did you mean method.inner.mu"),
    ],
)
def test_wrong_fields_are_named(fields, message):
    with pytest.raises(SpecError, match=message):
        spec({"name": "per_cluster", "inner": "fedavg", **fields})


def test_clusters_that_nobody_is_in_are_saved_too(tmp_path):
    """They share their initial weights, which a file must hold once for each."""
    method = {"name": "per_cluster", "inner": {"name": "fedavg"}, "clusters": 8}
    partition = {"kind": "iid", "clients": 3}
    result = shoal.run(
        from_table(table(method=method, partition=partition, selector="all", rounds=1)), tmp_path / "run"
    )
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert result.rounds == 1
