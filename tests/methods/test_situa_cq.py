"""SITUA-CQ: its plan by hand, and settings that equal other methods to the bit."""

import math

import pytest
import torch
from toy import KEY, play, same, setup, spec, table

import shoal
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Context, Report
from shoal.parts.cluster_plan import LEVELS, Thresholds, levels, plan, round_time
from shoal.parts.transfer import HandedOn, in_format, widened

MEMBERS = [Report(10.0, 1000.0, 500.0, 0.0, 0.0), Report(4.0, 2000.0, 2000.0, 0.5, 0.0)]
ALONE = {"name": "situa_cq", "theta_d": math.inf, "theta_k": 1.0, "theta_b": [1.0, 0.0, 0.0]}
ONE_CHAIN = {"name": "situa_cq", "theta_d": 1e-9, "theta_k": 1.0, "theta_b": [1.0, 0.0, 0.0]}


def test_the_time_of_a_cluster_is_the_sum_over_its_members():
    assert round_time(MEMBERS, 1000, "float32") == pytest.approx((10 + 1 + 2) + (4 + 0.5 + 0.5 + 1))


@pytest.mark.parametrize(("name", "compute", "links"), [("float16", 1.46, 2), ("e5m2", 1.81, 4)])
def test_formats_scale_computing_and_links(name, compute, links):
    for member in MEMBERS:
        work = member._replace(down=math.inf, up=math.inf, latency=0.0)
        link = member._replace(compute=0.0, latency=0.0)
        for some, factor in ((work, compute), (link, links)):
            times = [round_time([some], 1000, form) for form in ("float32", name)]
            assert times[0] / times[1] == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "quotas", "wanted"),
    [
        ([50, 5, 5], (0.3, 0.3, 0.4), [32, 8, 8]),  # one large cluster fills two quotas
        ([2] * 10, (0.3, 0.3, 0.4), [32] * 3 + [16] * 3 + [8] * 4),
        ([3, 1], (0.0, 0.0, 1.0), [8, 8]),
        ([3, 1], (0.0, 1.0, 0.0), [16, 16]),
        ([3, 1], (1.0, 0.0, 0.0), [32, 32]),
    ],
)
def test_levels_by_hand(sizes, quotas, wanted):
    bits = dict(zip(LEVELS, (32, 16, 8), strict=True))
    assert [bits[name] for name in levels(sizes, quotas)] == wanted


def test_a_plan_takes_the_fastest_clusters_until_there_are_enough():
    rng = KEY.numpy()
    histograms = {c: tuple(rng.integers(0, 9, 4).tolist()) for c in range(40)}
    reports = {c: Report(*rng.uniform(1, 9, 3).tolist(), 0.0, 0.0) for c in range(40)}
    values = Thresholds(0.3, 0.5, (0.3, 0.3, 0.4), 1.0, "model")
    found = plan(values, histograms, reports, 100)
    chosen = [client for members in found.clusters for client in members]
    assert len(chosen) == len(set(chosen)) >= 20
    assert len(chosen) - len(found.clusters[-1]) < 20
    full = [round_time([reports[c] for c in members], 100, "float32") for members in found.clusters]
    assert full == sorted(full)
    order = [LEVELS.index(name) for name in found.formats]
    assert order == sorted(order)
    given = 0
    for members, level in zip(found.clusters, order, strict=True):  # the quota of its level was not full yet
        assert given < sum((0.3, 0.3, 0.4)[: level + 1]) * len(chosen)
        given += len(members)
    small = plan(values._replace(pool=0.25), histograms, reports, 100)
    alone = {c: round_time([report], 100, "float32") for c, report in reports.items()}
    fastest = set(sorted(alone, key=lambda c: alone[c])[:10])
    assert fastest >= {c for members in small.clusters for c in members}
    assert len(small.unused) >= 30


def test_clusters_may_run_out():
    found = plan(
        Thresholds(0.01, 0.9, (1.0, 0.0, 0.0), 1.0, "model"),
        {0: (1, 0), 1: (0, 1), 2: (1, 0)},
        dict.fromkeys(range(3), MEMBERS[0]),
        100,
    )
    assert found.clusters == ((0, 1),)
    assert found.unused == (2,)
    empty = plan(Thresholds(0.4, 0.6, (1.0, 0.0, 0.0), 1.0, "model"), {}, {}, 100)
    assert empty.clusters == ()


def test_everybody_alone_in_float32_is_fedavg():
    first, second = setup(ALONE), setup("fedavg", selector="all", devices={"name": "tiers"})
    assert same(play(first, 3).state.model, play(second, 3).state.model)


def test_one_chain_is_sequential_training():
    """Two clients with one class each; the second starts from what the first has made."""
    tables = table(ONE_CHAIN, partition={"kind": "one_class", "clients": 4}, rounds=1)
    made = setup(**{k: v for k, v in tables.items() if k != "method"}, method=tables["method"])
    federation = made.federation
    key = federation.key.fold("round", 0)
    record = shoal.run(tables).records[0]
    ((members), *rest) = record["clusters"]
    assert sorted(members) == [0, 1, 2, 3]
    assert not rest
    model = federation.task.init(federation.model_key)
    for leg, client in enumerate(members):
        context = Context(0, leg, {}, key.fold("leg", leg).fold("client", client))
        data = made.side.training_data(client, context)
        trained = federation.method.local.train(federation.task, model, data, context)
        change = trained.update(model)
        model = model._replace(params={n: model.params[n] + change.params[n] for n in model.params})
    found = play(made, 1).state.model
    assert all(torch.allclose(found.params[n], model.params[n], atol=1e-7) for n in model.params)


@pytest.mark.parametrize("lost", ["first", "middle", "last", "all"])
def test_a_lost_member_of_a_chain_is_skipped(lost, monkeypatch):
    made = setup(ONE_CHAIN, partition={"kind": "one_class", "clients": 4}, faults={"on_error": "refuse"})
    (members,) = shoal.run(table(ONE_CHAIN, partition={"kind": "one_class", "clients": 4}, rounds=1)).records[
        0
    ]["clusters"]
    gone = {"first": members[:1], "middle": members[1:3], "last": members[-1:], "all": members}[lost]
    data = type(made.side.data)
    usual = data.train

    def train(self, client, *rest, **more):
        if client in gone and rest[0] is not None:
            raise OSError("the disk is gone")
        return usual(self, client, *rest, **more)

    monkeypatch.setattr(data, "train", train)
    before = made.federation.method.init(made.federation.task, made.federation.model_key).model
    progress = play(made, 1)
    assert same(progress.state.model, before) == (lost == "all")
    assert progress.state.chains == {}


@pytest.mark.parametrize("preset", ["paper", "fast"])
def test_both_presets_learn_in_their_formats(preset):
    result = shoal.run(table({"name": "situa_cq", "preset": preset}, rounds=6, evaluate={"every": 1}))
    first, last = result.records[0], result.records[-1]
    assert last["accuracy"] > 0.5
    assert set(first["formats"]) <= ({8} if preset == "fast" else {32, 16, 8})
    assert len(first["formats"]) == len(first["clusters"]) == len(first["cluster_seconds"])
    assert sorted(c for members in first["clusters"] for c in members) == sorted(first["cohort"])


def test_fields_beside_a_preset_win():
    values = spec({"name": "situa_cq", "preset": "fast", "theta_d": 0.1}).method.settled
    assert values == Thresholds(0.1, 0.2, (0.0, 0.0, 1.0), 0.3, "delta")


def test_fewer_bits_make_shorter_packets():
    sizes = {}
    for place, bits in enumerate((32, 16, 8)):
        quotas = [0.0, 0.0, 0.0]
        quotas[place] = 1.0
        record = shoal.run(table({**ALONE, "theta_b": quotas}, rounds=2)).records[1]
        sizes[bits] = record["bytes_down"] / 8
    weights = 4 * (10 * 12 + 12 + 12 * 4 + 4)
    assert sizes[32] - sizes[16] == pytest.approx(weights / 2, abs=40)
    assert sizes[16] - sizes[8] == pytest.approx(weights / 4, abs=40)


def test_a_model_travels_in_its_format_and_comes_back():
    task = setup().federation.task
    model = task.init(Key.from_seed(1))
    for name in ("float16", "e5m2"):
        sent = in_format(model, name, KEY)
        start = widened(sent)
        change = start.params["0.weight"] * 2 - start.params["0.weight"]  # doubled: still of the format
        params = {n: torch.zeros_like(v) for n, v in start.params.items()} | {"0.weight": change}
        reply = HandedOn(start._replace(params=params), start)
        back = reply.packed(name).unpacked(sent)
        assert torch.equal(back.update.params["0.weight"], change)
        assert torch.equal(back.update.params["3.bias"], torch.zeros(4))
    assert in_format(model, "float32", KEY) is model
    assert widened(model) is model


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"theta_d": -0.1}, "theta_d must be at least 0, got -0.1"),
        ({"theta_k": 0.0}, "theta_k must be above 0, got 0"),
        ({"theta_b": [0.5, 0.5]}, r"three shares that add up to 1, .* got \[0.5, 0.5\]"),
        ({"theta_b": [0.5, 0.5, 0.5]}, "three shares that add up to 1"),
        ({"pool": 2.0}, r"pool must be a share of the clients in \(0, 1\], got 2"),
        ({"preset": "slow"}, "must be one of paper, fast"),
    ],
)
def test_wrong_fields_are_named(fields, message):
    with pytest.raises(SpecError, match=message):
        spec({"name": "situa_cq", **fields})


def test_a_regression_has_no_labels():
    with pytest.raises(SpecError, match="clusters clients by their labels; a regression has none"):
        setup(
            "situa_cq",
            task={"dataset": "toy:line", "model": "linear"},
            partition={"kind": "iid", "clients": 8},
        )


def test_no_member_of_a_chain_can_be_spared():
    tables = table(ONE_CHAIN, devices={"name": "tiers"}, faults={"over_select": 1.5})
    with pytest.raises(SpecError, match="needs every member of a chain"):
        shoal.run(tables)


def test_chains_in_eight_bits_need_random_rounding():
    """Small steps are lost if every sum is rounded to the nearest of few numbers."""

    def accuracy(shares, rounding):
        tables = {
            "rounds": 20,
            "task": {"dataset": "mnist5k", "model": "mlp"},
            "partition": {"kind": "dirichlet", "clients": 100, "beta": 0.3},
            "method": {"name": "situa_cq", "theta_d": 0.2, "theta_k": 10.0, "theta_b": shares},
            "local": {"lr": 0.01, "momentum": 0.5, "batch": 10, "epochs": 1, "rounding": rounding},
            "devices": {"name": "tiers"},
            "evaluate": {"every": 0, "clients": 0, "metrics": ["accuracy"]},
        }
        return shoal.run(tables).final_accuracy

    whole = accuracy([1.0, 0.0, 0.0], "stochastic")
    assert accuracy([0.0, 0.0, 1.0], "stochastic") == pytest.approx(whole, abs=0.03)
    assert accuracy([0.0, 0.0, 1.0], "nearest") < whole - 0.1
