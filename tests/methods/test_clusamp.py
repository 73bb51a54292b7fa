import numpy as np
import pytest
import torch
from toy import KEY, play, played, same, setup, spec

from shoal.aggregators.averaging import Averaged
from shoal.core.engine import Work
from shoal.core.types import Cohort, ModelMessage, ModelUpdate, Moment, Reply, Weights
from shoal.loop import start
from shoal.methods.fedavg import FedAvg
from shoal.overrides import with_method, with_settings
from shoal.selectors.clustered import Clustered
from shoal.selectors.uniform import All, Uniform
from shoal.spec import from_table, to_table
from shoal.study import compare

SAMPLES = "the selector draws clients by their samples, and the mean counts these once more"
MOMENT = Moment(0, 0, True, KEY)


def weights(*values):
    return Weights({"w": torch.tensor(values)}, {})


def reply(*values, samples=1.0):
    return Reply(ModelUpdate(weights(*values)), torch.tensor(samples, dtype=torch.float64), {})


def selected(selector, state, draw):
    return selector.select(state, range(8), {}, MOMENT._replace(key=KEY.fold(draw)))


def test_a_client_drawn_twice_counts_twice():
    """By hand: (2 * 3 + 1 * 0) / 3, and by samples (2 * 1 * 3 + 1 * 4 * 0) / 6."""
    cohort = Cohort((4, 9), {"count": (2, 1)}, 10)
    for weighting, expected in (("uniform", 3.0), ("samples", 2.0)):
        method, state = FedAvg(weights=weighting), Averaged(weights(1.0), (), ())
        acc = method.begin(state, cohort)
        acc = method.fold(acc, 4, ModelMessage(state.model), reply(3.0, samples=1.0))
        acc = method.fold(acc, 9, ModelMessage(state.model), reply(0.0, samples=4.0))
        assert method.finish(None, state, acc, MOMENT)[0].model.params["w"].tolist() == [expected]


def test_a_block_counts_as_its_clients_do():
    cohort = Cohort((4, 9, 2), {"count": (2, 1, 3)}, 10)
    method, state = FedAvg(weights="samples"), Averaged(weights(1.0, 2.0), (), ())
    rows = KEY.fold("rows").uniform((3, 2))
    one = block = method.begin(state, cohort)
    for row, client in zip(rows, cohort.ids, strict=True):
        one = method.fold(one, client, ModelMessage(state.model), reply(*row.tolist(), samples=5.0))
    stacked = Reply(ModelUpdate(Weights({"w": rows}, {})), torch.full((3,), 5.0, dtype=torch.float64), {})
    block = method.fold_block(method.begin(state, cohort), cohort.ids, ModelMessage(state.model), stacked)
    assert same(method.finish(None, state, one, MOMENT)[0], method.finish(None, state, block, MOMENT)[0])


def test_the_mean_model_over_many_rounds_is_that_of_all_clients_by_samples():
    """The same replies, aggregated after 800 selections of three."""
    made = setup("clusamp", selector={"count": 3})
    federation = made.federation
    progress = play(made, 2)
    everyone = Cohort(tuple(range(8)), {}, 8)
    message = federation.method.dispatch(federation.task, progress.state, everyone, MOMENT)
    work = Work("update", 1, 0, {})
    deliveries = federation.engine.exchange(work, everyone, message, federation.key)
    singles = {single.clients[0]: single for delivery in deliveries for single in delivery.singles()}

    def aggregated(method, cohort):
        acc = method.begin(progress.state, cohort)
        for client in cohort.ids:
            acc = method.fold(acc, client, message, singles[client].reply)
        return method.finish(None, progress.state, acc, MOMENT)[0].model.params["3.weight"].double()

    rounds = 800
    cohorts = [selected(federation.selector, progress.selector, draw) for draw in range(rounds)]
    found = torch.stack([aggregated(federation.method, cohort) for cohort in cohorts])
    error = (found.mean(0) - aggregated(FedAvg(weights="samples"), everyone)).abs()
    assert bool((error <= 4.5 * found.std(0) / rounds**0.5 + 1e-7).all())
    assert float(found.std(0).max()) > 1e-3  # the cohorts do differ


def test_equal_clients_and_as_many_draws_are_fedavg_over_all():
    partition = {"kind": "iid", "clients": 8}
    for by in ("size", "cosine"):
        clustered = played("clusamp", partition=partition, selector={"count": 8, "by": by})
        everyone = played({"name": "fedavg", "weights": "uniform"}, partition=partition, selector="all")
        assert same(clustered.state, everyone.state)


def test_scaffolds_control_counts_a_client_once_however_often_it_was_drawn():
    made = setup("scaffold", selector={"name": "clustered", "count": 6, "by": "size"})
    progress = play(made, 6)
    engine = made.federation.engine
    own = [engine.memory(client, progress.accepted.get(client)).method for client in range(8)]
    for name, value in progress.state.control.items():
        mean = torch.stack([control[name] for control in own]).mean(0)
        torch.testing.assert_close(value, mean, rtol=1e-4, atol=1e-6)


def test_clients_say_how_many_samples_they_hold_and_it_is_counted():
    made = setup("clusamp")
    progress = play(made, 1)
    assert progress.selector.counts == {client: made.shards.count(client) for client in range(8)}
    assert progress.known == frozenset(range(8))
    assert set(progress.selector.last.updates) <= set(range(8))
    assert len(start(made.federation).selector.counts) == 0


# -- who brings the selector


def test_the_method_brings_its_selector_unless_the_spec_names_another():
    assert from_table({"method": "clusamp"}).selector == Clustered()
    assert from_table({"method": "clusamp", "selector": {"count": 7, "by": "l1"}}).selector == Clustered(
        7, by="l1"
    )
    assert from_table({"method": "clusamp", "selector": "all"}).selector == All()
    assert from_table({"method": "clusamp", "selector": {"name": "uniform"}}).selector == Uniform()
    assert from_table({"method": "fedavg", "selector": {"count": 7}}).selector == Uniform(7)
    chosen = spec("clusamp")
    assert from_table(to_table(chosen)) == chosen


def test_a_method_from_the_command_line_replaces_the_selector_and_keeps_the_count():
    table = {"selector": {"name": "uniform", "count": 7}, "method": {"name": "fedprox", "mu": 0.1}}
    assert from_table(with_method(table, "clusamp")).selector == Clustered(7)
    assert from_table(with_method(table, "fedavg")).selector == Uniform(7)
    again = with_settings(with_method(table, "clusamp"), ["selector.name=uniform"])
    assert from_table(again).selector == Uniform(7)
    chosen = {"selector": "all", "method": "clusamp"}
    assert from_table(with_method(chosen, "clusamp")).selector == Clustered()
    kept = {"selector": {"name": "uniform"}, "method": {"name": "clusamp"}}
    assert from_table(with_method(kept, "clusamp")).selector == Uniform()


def test_in_a_comparison_each_method_has_its_own(tmp_path):
    table = {"selector": {"name": "uniform", "count": 7}}
    cells = compare.plan(["fedavg", "clusamp"], table, ["selector.count=5"], [0], tmp_path)
    assert [cell.spec.selector for cell in cells] == [Uniform(5), Clustered(5)]


def test_counting_samples_twice_is_worth_a_warning():
    with pytest.warns(UserWarning, match=SAMPLES):
        setup("fedavg", selector="clustered")
    with pytest.warns(UserWarning, match=SAMPLES):
        setup({"name": "clusamp", "weights": "samples"})


def test_it_spreads_better_than_independent_draws():
    """How often clients are drawn varies less than in draws from the shares themselves."""
    made = setup("clusamp", selector={"count": 4, "by": "size"})
    state = play(made, 1).selector
    drawn = np.zeros((1500, 8))
    for draw in range(len(drawn)):
        cohort = selected(made.federation.selector, state, draw)
        drawn[draw, list(cohort.ids)] = cohort.settings["count"]
    shares = np.array([made.shards.count(client) for client in range(8)]) / 320
    assert drawn.var(0).sum() < 0.9 * (4 * shares * (1 - shares)).sum()
