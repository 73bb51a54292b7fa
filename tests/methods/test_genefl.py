"""GENE-FL: what travels, what is averaged, and settings that equal other methods to the bit."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from toy import KEY, play, same, setup, spec, table

import shoal
from shoal.core.data import Partition
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, Context, ModelUpdate, Moment, Reply, Weights
from shoal.data.shards import DealtShards
from shoal.methods.gene import Gene, GeneMemory, some_layers

LAYERS = 4  # of the toy's model: two weights, two biases
NEUTRAL = {"lambda1": 0.0, "lambda2": 0.0}
MOMENT = Moment(1, 0, True, KEY)
CONTEXT = Context(2, 0, {}, KEY)
LOCAL = {"lr": 0.1, "batch": 8, "epochs": 2, "momentum": 0.5}
TASKS = {norm: {"dataset": "toy:blobs", "model": "toy:net", "norm": norm} for norm in ("none", "batch")}


def gene_fl(**fields):
    return {"name": "genefl", "clusters": 1, **fields}


def models(method, rounds=3, **changes):
    made = setup(method, local=LOCAL, **changes)
    return made.federation.method.models(play(made, rounds).state)


def everything(norm):
    return LAYERS if norm == "none" else LAYERS + 2


@pytest.mark.parametrize("norm", TASKS)
@pytest.mark.parametrize("start", ["cluster", "mixed"])
def test_all_layers_and_no_pull_is_uniform_fedavg(start, norm):
    first = models(gene_fl(**NEUTRAL, gamma=everything(norm), start=start), task=TASKS[norm])
    second = models({"name": "fedavg", "weights": "uniform"}, task=TASKS[norm])
    assert same(first, second)


def test_clusters_are_fedavg_in_each():
    first = models(gene_fl(**NEUTRAL, gamma=LAYERS, start="cluster", clusters=3))
    inner = {"name": "fedavg", "weights": "uniform"}
    second = models({"name": "per_cluster", "inner": inner, "clusters": 3})
    assert same(first, second)


def test_a_cluster_for_each_client_is_local_training():
    changes = {"selector": "all", "local": LOCAL}
    made = setup(gene_fl(**NEUTRAL, gamma=LAYERS, start="cluster", clusters=8), **changes)
    alone = setup("local", **changes)
    first, second = play(made, 2), play(alone, 2)
    for client in range(8):
        memory = made.federation.engine.memory(client, first.accepted[client]).method
        assert close(memory.model, alone.federation.engine.memory(client, second.accepted[client]).method)


def close(first, second):
    """Equal but for the rounding of an update that was sent and added again."""
    return all(torch.allclose(first.params[n], second.params[n], atol=1e-6) for n in first.params)


def test_without_layers_the_cluster_model_never_changes():
    initial = setup(gene_fl()).federation.task.init(spec().seeds.key("model", 3).fold("init"))
    found = models(gene_fl(gamma=0))[""]
    assert same(dict(found.params), dict(initial.params))


def test_a_high_mask_above_everything_is_no_second_term():
    first = models(gene_fl(gamma=2, epsilon=1.0, lambda2=0.3))
    second = models(gene_fl(gamma=2, lambda2=0.0))
    assert same(first, second)


def test_a_low_mask_of_everything_is_the_first_term():
    first = models(gene_fl(gamma=2, mask="low", epsilon=1.0, lambda1=0.0, lambda2=0.3))
    second = models(gene_fl(gamma=2, lambda1=0.3, lambda2=0.0))
    assert same(first, second)


@pytest.mark.parametrize(
    "fields",
    [
        {"lambda1": 0.5},
        {"lambda2": 0.5},
        {"mask": "low"},
        {"strength": "layer"},
        {"score": "rel_l2", "gamma": 2},
        {"start": "own"},
        {"start": "cluster"},
        {"budget": 0.5},
        {"adaptive": True},
    ],
)
def test_every_field_matters(fields):
    assert not same(models(gene_fl(**fields)), models(gene_fl()))


def test_disjoint_layers_are_averaged_over_those_who_sent_them():
    """Three clients, by hand: `a` from two of them, `b` from one, `c` from none."""
    method = Gene(gamma=1)
    task = setup(gene_fl()).federation.task
    state = method.init(task, KEY)
    names = list(task.shapes)
    a, b, c = names[0], names[1], names[2]
    model = state.model
    cohort = Cohort((0, 1, 2), {}, 3)
    acc = method.begin(state, cohort)
    sent = method.dispatch(task, state, cohort, MOMENT)
    for client, (name, value) in enumerate([(a, 1.0), (a, 4.0), (b, 7.0)]):
        update = Weights({name: torch.full(task.shapes[name], value)}, {})
        reply = Reply(ModelUpdate(update), torch.tensor(9.0 + client), {"train_loss": torch.tensor(1.0)})
        acc = method.fold(acc, client, sent, reply)
    after, metrics = method.finish(task, state, acc, MOMENT)
    assert torch.allclose(after.model.params[a], model.params[a] + 2.5)
    assert torch.allclose(after.model.params[b], model.params[b] + 7.0)
    assert torch.equal(after.model.params[c], model.params[c])
    assert after.gene == (a, b)
    assert metrics["layers"] == {a: 2, b: 1}
    assert metrics["layer_bytes"] == {a: 8 * task.shapes[a].numel(), b: 4 * task.shapes[b].numel()}


def test_only_the_chosen_layers_travel_up():
    whole, some = (shoal.run(spec(gene_fl(gamma=g), rounds=2)).records[1] for g in (LAYERS, 2))
    sizes = {"0.weight": 480, "0.bias": 48, "3.weight": 192, "3.bias": 16}
    assert whole["layers"] == dict.fromkeys(sizes, 4)
    assert some["layers"] == {"0.bias": 4, "3.bias": 4}  # the smallest, by the literal score
    assert some["layer_bytes"] == {"0.bias": 4 * 48, "3.bias": 4 * 16}
    saved = 4 * (sizes["0.weight"] + sizes["3.weight"])
    assert 0 <= whole["bytes_up"] - some["bytes_up"] - saved < 4 * 100  # with the names of the layers
    assert some["bytes_down"] > 4 * sum(sizes.values())  # the whole model travels down


def test_only_the_current_gene_replaces_layers():
    task = setup(gene_fl()).federation.task
    own, cluster = (task.init(KEY.fold(name)) for name in ("own", "cluster"))
    message = shoal.methods.gene.GeneMessage(cluster, ("0.bias",), 0)
    memory = GeneMemory(own, True)
    mixed = Gene(start="mixed").local_model(memory, message).params
    assert {name for name in mixed if torch.equal(mixed[name], cluster.params[name])} == {"0.bias"}
    assert Gene(start="own").local_model(memory, message).params == own.params
    assert Gene(start="cluster").local_model(memory, message).params is cluster.params
    fresh = Gene(start="own").local_model(GeneMemory(own, False), message)
    assert fresh.params is cluster.params  # whoever takes part for the first time starts from the cluster


@pytest.mark.parametrize(("head", "inherited"), [(False, {"0.bias"}), (True, {"0.bias", "3.bias"})])
def test_a_newcomer_inherits_the_gene_and_starts_fresh_otherwise(head, inherited):
    made = setup(gene_fl(gamma=2, head=head), selector="all")
    method, task = made.federation.method.client_method, made.federation.task
    state = method.admit(play(made, 2).state.inner[0], {70: ()}, MOMENT)
    message = method.dispatch(task, state, Cohort((3, 70), {}, 9), MOMENT)
    known, new = message.model.rows
    assert known is state.model
    assert set(new.params) == inherited
    memory = made.side.fresh.method
    start = method.local_model(memory, message._replace(model=new))
    for name, value in start.params.items():
        there = state.model if name in inherited else memory.model
        assert torch.equal(value, there.params[name])
    _, reply = method.client_update(task, memory, message._replace(model=new), data_of(made, 0), CONTEXT)
    assert set(reply.payload.update.params) <= inherited
    acc = method.fold(method.begin(state, Cohort((70,), {}, 9)), 70, message._replace(model=new), reply)
    later, _ = method.finish(task, state, acc, MOMENT)
    assert later.newcomers == ()
    assert method.dispatch(task, later, Cohort((3, 70), {}, 9), MOMENT).model is later.model


def data_of(made, client):
    return made.side.training_data(client, CONTEXT)


def test_adaptive_genes_shrink_to_their_floor():
    result = shoal.run(spec(gene_fl(gamma=1, adaptive=True, tolerance=10.0), selector="all", rounds=5))
    assert [len(record["layers"]) for record in result.records] == [4, 3, 2, 1, 1]


def test_adaptive_genes_stay_while_the_loss_is_high():
    made = setup(gene_fl(gamma=1, adaptive=True))
    method, task = made.federation.method.client_method, made.federation.task
    state = method.init(task, KEY)._replace(best=0.1)
    cohort = Cohort((0,), {}, 8)
    sent = method.dispatch(task, state, cohort, MOMENT)
    for loss, extra in ((0.2, 3), (0.101, 2)):
        update = ModelUpdate(some_layers(state.model, ["0.bias"]))
        reply = Reply(update, torch.tensor(8.0), {"train_loss": torch.tensor(loss)})
        acc = method.fold(method.begin(state, cohort), 0, sent, reply)
        assert method.finish(task, state, acc, MOMENT)[0].extra == extra


def test_buffers_travel_with_their_layer():
    weights = Weights(
        {"1.weight": torch.ones(2), "2.weight": torch.ones(3)},
        {"1.running_mean": torch.ones(2), "2.count": torch.tensor(1)},
    )
    some = some_layers(weights, ["1.weight"])
    assert set(some.params) == {"1.weight"}
    assert set(some.buffers) == {"1.running_mean"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gamma": 2, "budget": 0.5}, "give gamma or budget, not both"),
        ({"gamma": -1}, "gamma must be at least 0, got -1"),
        ({"budget": 1.5}, r"share of the model's bytes in \(0, 1\], got 1.5"),
        ({"epsilon": 2.0}, r"epsilon must be in \[0, 1\], got 2"),
        ({"lambda1": -1.0}, "lambda1 must be at least 0, got -1"),
        ({"lambda2": math.inf}, "lambda2 must be at least 0, got inf"),
        ({"score": "l3"}, "must be one of cos_over_dim"),
        ({"start": "random"}, "must be one of mixed, own, cluster"),
    ],
)
def test_wrong_fields_are_named(fields, message):
    with pytest.raises(SpecError, match=message):
        spec({"name": "genefl", **fields})


def test_a_gene_must_fit_the_model():
    with pytest.raises(SpecError, match="gamma must be at most 4, the model's layers, got 9"):
        setup(gene_fl(gamma=9))
    with pytest.raises(SpecError, match=r"no room for any layer of this model; the smallest takes 0\.022"):
        setup(gene_fl(budget=0.001))


@dataclass(frozen=True)
class Uneven(Partition):
    """Client 6 holds nothing, client 7 one class."""

    def split(self, dataset, key):
        owner = np.arange(len(dataset.y_train)) % 6
        owner[dataset.y_train.numpy() == 3] = 7
        return DealtShards.by_owner(owner, 8, key)


def test_newcomers_without_samples_or_with_one_class():
    arrivals = {"name": "list", "join": [{"round": 3, "clients": "6-7"}]}
    changes = {"partition": Uneven(), "arrivals": arrivals, "selector": "all", "evaluate": {"every": 1}}
    result = shoal.run(table(gene_fl(gamma=2), rounds=4, **changes))
    third, last = result.records[2:]
    assert {(entry["client"], entry["reason"]) for entry in third["rejected"]} == {
        (6, "it holds no samples to make a profile from"),
        (6, "it holds no samples"),
    }
    assert third["clusters"] == {7: 0}
    assert third["layers"] == {
        "0.bias": 7,
        "3.bias": 6,
    }  # in its first round client 7 has no classifier of theirs
    assert last["layers"] == {"0.bias": 7, "3.bias": 7}
    assert last["newcomers"]["clients"] == 1
