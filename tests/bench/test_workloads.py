"""The catalogue holds what it says, and every contestant would do the same work."""

from dataclasses import replace

import pytest
from bench.tiny import tiny
from torch import nn

from shoal.bench.contestant import shoal as shoal_contestant
from shoal.bench.partitions import PowerLaw
from shoal.bench.workloads import GROUPS, WORKLOADS, named
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.data.bundled import mnist5k
from shoal.engines.local import LocalEngine
from shoal.loop import advance, start
from shoal.runs.build import load_and_partition
from shoal.runs.runner import closing, one_thread

# name: clients, cohort, samples a client, batch, epochs, parameters
EXPECTED = {
    "lr-mnist": (1000, 10, None, 10, 1, 7_850),
    "mlp": (100, 10, 50, 10, 1, 199_210),
    "logreg-1k": (1000, 100, 5, 5, 1, 7_850),
    "lenet-cifar": (100, 10, 500, 50, 5, 62_006),
    "lenet-digits": (100, 10, 50, 10, 1, 44_426),
    "cnn-pfl": (1000, 50, 50, 10, 1, 1_626_442),
    "cnn-mcmahan": (100, 10, 500, 50, 5, 1_663_370),
    "cnn-small-batch": (100, 10, 50, 10, 1, 1_663_370),
    "million-1k": (10**3, 50, 50, 10, 1, 199_210),
    "million-10k": (10**4, 50, 50, 10, 1, 199_210),
    "million-100k": (10**5, 50, 50, 10, 1, 199_210),
    "million-1m": (10**6, 50, 50, 10, 1, 199_210),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_catalogue_holds_what_it_says(name):
    clients, cohort, samples, batch, epochs, parameters = EXPECTED[name]
    workload = WORKLOADS[name]
    material = workload.material()
    picked = material.cohort(0)
    assert (workload.clients, len(material.shards), len(picked)) == (clients, clients, cohort)
    assert (material.batch, material.epochs) == (batch, epochs)
    assert sum(value.numel() for value in material.build().parameters()) == parameters
    if samples is not None:
        assert {len(material.shards.indices(client)) for client in picked} == {samples}
        assert material.samples(picked) == cohort * samples * epochs


def test_the_catalogue_is_whole():
    assert set(WORKLOADS) == set(EXPECTED)
    assert GROUPS["million"] == ("million-1k", "million-10k", "million-100k", "million-1m")


@pytest.mark.parametrize("workload", [*WORKLOADS.values(), tiny()], ids=lambda w: w.name)
def test_nothing_is_timed_but_training(workload):
    spec = workload.spec
    assert (spec.evaluate.every, spec.evaluate.clients, spec.checkpoint.every) == (0, 0, 0)
    assert spec.rounds == workload.rounds


def test_a_million_clients_are_timed_with_their_directory(tmp_path, monkeypatch):
    assert {workload.name for workload in WORKLOADS.values() if workload.directory} == set(GROUPS["million"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    written = []

    def serve(stretch, rounds):
        for turn in range(2):
            seconds, samples = stretch(turn * rounds, rounds)
            written.append({path.name for path in tmp_path.rglob("*") if path.is_file()})
            assert seconds > 0
            assert samples == 2 * rounds * 4 * 40

    for directory in (False, True):
        shoal_contestant(replace(tiny(), directory=directory), serve)
    whole = {
        "spec.toml",
        "rounds.jsonl",
        "model.safetensors",
        "summary.json",
        "report.html",
        "latest.json",
        "lock",
    }
    assert written[:2] == [{"spec.toml", "rounds.jsonl", "latest.json", "lock"}] * 2
    for rounds, names in zip((2, 4), written[2:], strict=True):
        assert whole | {f"progress-{rounds}.safetensors"} <= names


def test_modes_are_tried_before_anything_is_timed(monkeypatch):
    modes, tried = [], LocalEngine.exchange

    def exchange(engine, *args):
        modes.append(engine.settled)
        return tried(engine, *args)

    def serve(stretch, rounds):
        assert modes.count(False) == len(modes) > 0
        modes.clear()
        stretch(0, rounds)
        assert modes == [True] * rounds

    monkeypatch.setattr(LocalEngine, "exchange", exchange)
    shoal_contestant(tiny(), serve)


def test_settings_of_the_published_workloads():
    pfl, mcmahan, flute = (WORKLOADS[name] for name in ("cnn-pfl", "cnn-mcmahan", "lr-mnist"))
    assert (pfl.local.lr, pfl.local.momentum) == (0.1, 0)
    assert (mcmahan.local.lr, mcmahan.local.momentum) == (0.01, 0.5)
    assert (flute.local.lr, flute.rounds) == (0.03, 100)
    layers = [layer.p for layer in pfl.material().build() if type(layer).__name__ == "Dropout"]
    assert layers == [0.25, 0.5]


def test_the_cohorts_are_those_of_the_loop():
    workload = tiny()
    material = workload.material()
    with one_thread(), closing(workload.spec) as setup:
        progress = start(setup.federation)
        for round in range(3):
            progress, done = advance(setup.federation, progress)
            assert set(done.cohort) == set(material.cohort(round))


def test_the_power_law():
    dataset, shards = load_and_partition(WORKLOADS["lr-mnist"].spec)
    sizes = [shards.count(client) for client in range(len(shards))]
    assert min(sizes) >= 10
    assert 50 < sum(sizes) / len(sizes) <= 69
    assert max(sizes) > 5 * sum(sizes) / len(sizes)
    for client in (0, 9, 999):
        rows = shards.indices(client)
        assert len(set(rows.tolist())) == len(rows)
        assert set(dataset.y_train[rows].tolist()) == {client % 10, (client + 1) % 10}


def test_the_power_law_depends_on_the_key_alone():
    digits = mnist5k()
    first, again, other = (PowerLaw(20).split(digits, Key.from_seed(seed)) for seed in (1, 1, 2))
    assert (first.indices(3) == again.indices(3)).all()
    assert [first.count(i) for i in range(20)] != [other.count(i) for i in range(20)]


@pytest.mark.parametrize("fields", [{"clients": 0}, {"base": 0}, {"mean": 9}, {"sigma": 0.0}])
def test_a_power_law_that_cannot_be(fields):
    with pytest.raises(SpecError):
        PowerLaw(**fields)


def test_names():
    assert [workload.name for workload in named("million")] == list(GROUPS["million"])
    assert named("mlp") == [WORKLOADS["mlp"]]
    (found,) = named("bench.tiny:tiny")
    assert found.name == "bench.tiny:tiny"
    assert found.rounds == 2
    with pytest.raises(SpecError, match="did you mean cnn-pfl"):
        named("cnn-pfll")
    with pytest.raises(SpecError, match="must return a Workload"):
        named("toy:blobs")
    assert isinstance(found.material().build(), nn.Module)
