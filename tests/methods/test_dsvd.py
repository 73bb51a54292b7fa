import pytest
import torch
from toy import KEY, play, played, setup

import shoal
from shoal.aggregators.dsvd import Similarity
from shoal.aggregators.dsvd_trust import nothing_known
from shoal.aggregators.matrix import UpdateMatrix
from shoal.codecs.low_rank import Cut
from shoal.core.errors import SpecError
from shoal.core.types import Cohort, Context, Moment, Weights
from shoal.loop import advance, start
from shoal.methods.dsvd import next_shares, weights

SHAPES = {"wide": (8, 6), "conv": (4, 2, 3, 3), "bias": (8,)}
UNIFORM = {"name": "fedavg", "weights": "uniform"}


def normal(name):
    draw = KEY.fold(name).numpy()
    return {key: torch.from_numpy(draw.normal(size=shape)).float() for key, shape in SHAPES.items()}


def times(factor, update):
    return {name: factor * value for name, value in update.items()}


def plus(first, second):
    return {name: first[name] + second[name] for name in first}


def honest(n, noise=1.0):
    return [plus(normal("centre"), times(noise, normal(f"noise {i}"))) for i in range(n)]


def even(found):
    return found.tolist() == pytest.approx([1 / len(found)] * len(found), abs=1e-6)


FORMS = pytest.mark.parametrize(
    "how",
    [
        {},
        {"adaptive": False},
        {"form": "literal"},
        {"form": "subspace"},
        {"literal": True, "temperature": 1.0},
    ],
    ids=["default", "softmax", "signs", "subspace", "raw"],
)


@FORMS
def test_equal_updates_count_alike(how):
    assert even(weights([normal("one")] * 5, **how))


@FORMS
@pytest.mark.parametrize("off", [{"alpha1": 0.0, "alpha2": 0.0, "alpha3": 0.0}, {"temperature": 1e12}])
def test_nothing_looked_at_is_uniform(how, off):
    given = honest(6)
    assert even(weights([*given, given[0], given[0], times(-1, given[1])], **{**how, **off}))


@FORMS
def test_one_two_and_three_clients_and_no_update_at_all(how):
    assert weights(honest(1), **how).tolist() == [1.0]
    assert even(weights(honest(2), **how))
    for given in ([times(0.0, normal("one"))] * 3, [times(0.0, normal("one")), *honest(3)]):
        found = weights(given, **how)
        assert float(found.sum()) == pytest.approx(1.0)
        assert bool((found >= 0).all())


@FORMS
def test_the_order_of_clients_does_not_matter(how):
    given, order = honest(7), [3, 6, 0, 5, 1, 4, 2]
    here, there = weights(given, **how), weights([given[i] for i in order], **how)
    torch.testing.assert_close(there, here[order], rtol=1e-4, atol=1e-6)


def test_signs_of_singular_vectors_do_not_matter():
    """The same update, built from factors with other signs."""
    given = honest(6)
    turned = []
    for i, update in enumerate(given):
        u, s, v = torch.linalg.svd(update["wide"].double(), full_matrices=False)
        signs = torch.from_numpy(KEY.fold("signs", i).numpy().choice([-1.0, 1.0], len(s)))
        turned.append({**update, "wide": ((u * signs * s) @ (v * signs[:, None])).float()})
    torch.testing.assert_close(weights(given), weights(turned), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("factor", [-1.0, 100.0, -100.0, 0.01])
def test_a_liar_counts_for_nothing(factor):
    given = [*honest(9), times(factor, honest(9)[0])]
    found = weights(given)
    assert float(found[9]) < 1e-3
    assert float(found[:9].min()) > 0.05


def test_one_at_a_hundred_times_the_scale_has_the_smallest_weight_in_whole_updates():
    given = [*honest(5), times(100.0, honest(1)[0])]
    for adaptive in (True, False):
        found = weights(given, alpha1=0.0, alpha2=0.0, alpha3=1.0, adaptive=adaptive)
        assert int(found.argmin()) == 5


def test_an_honest_majority_of_equals_is_no_plot():
    found = weights([normal("one")] * 9 + [times(-1, normal("one"))])
    assert float(found[9]) < 1e-3
    assert found[:9].tolist() == pytest.approx([1 / 9] * 9, rel=1e-3)


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_twenty_of_fifty_who_send_the_same_get_next_to_nothing(noise):
    lie = times(-2.0, plus(normal("centre"), times(0.3, normal("lie"))))
    given = [*honest(30, noise), *[lie] * 20]
    assert float(weights(given)[30:].sum()) < 0.01
    raised = weights(given, adaptive=False)  # the paper's rule: they raise each other's similarity
    assert float(raised[30:].sum()) > 0.5


def test_twenty_copies_of_an_update_like_any_other_count_as_one():
    given = [*honest(30), *honest(31)[30:] * 20]
    assert float(weights(given)[30:].sum()) < 1.5 / 31


def test_ranks_follow_scores_and_stay_in_bounds():
    scores = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]).double()
    assert next_shares([0.5] * 5, scores, 0.0) == [0.4375, 0.5, 0.5, 0.5, 0.5625]
    assert next_shares([0.0, 0.5, 0.5, 0.5, 1.0], scores, 0.0) == [0.0, 0.5, 0.5, 0.5, 1.0]
    assert next_shares([0.25, 0.5, 0.5, 0.5, 1.0], scores, 0.25) == [0.25, 0.5, 0.5, 0.5, 1.0]
    assert next_shares([0.25], torch.ones(1).double(), 0.25) == [0.25]


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize(
    "off",
    [{"alpha1": 0.0, "alpha2": 0.0, "alpha3": 0.0}, {"temperature": float("inf")}],
    ids=["alphas", "hot"],
)
@pytest.mark.parametrize("adaptive", [True, False])
def test_with_nothing_looked_at_it_is_fedavg(off, norm, adaptive):
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": norm}
    method = {"name": "dsvd", "aggregate": "full", "adaptive": adaptive, **off}
    first, second = (played(m, task=task).state.model for m in (method, UNIFORM))
    for part, twin in zip(first, second, strict=True):
        for name, value in twin.items():
            torch.testing.assert_close(part[name], value, rtol=1e-6, atol=1e-6)


def test_weights_and_ranks_are_recorded_and_ranks_move():
    made = setup("dsvd", selector="all")
    progress, first = advance(made.federation, start(made.federation))
    assert set(first.metrics["weights"]) == set(first.metrics["ranks"]) == set(range(8))
    assert sum(first.metrics["weights"].values()) <= 1 + 1e-9
    assert first.metrics["ranks"][0] == [5, 2]  # half of 12 x 10 and 4 x 12
    assert sorted(progress.state.shares.values()) == [0.5] * 6 + [0.5625] * 2  # none falls below a half
    _, second = advance(made.federation, progress)
    assert len({tuple(ranks) for ranks in second.metrics["ranks"].values()}) > 1


def test_factors_travel_and_full_updates_on_demand():
    task = {"dataset": "digits", "model": "mlp"}
    partition = {"kind": "iid", "clients": 3}
    cut, full, plain = (
        shoal.run(
            {
                "rounds": 1,
                "task": task,
                "partition": partition,
                "selector": "all",
                "method": m,
                "evaluate": {"every": 0},
            }
        )
        for m in ("dsvd", {"name": "dsvd", "aggregate": "full"}, "fedavg")
    )
    assert cut.bytes_up < 0.95 * full.bytes_up
    assert plain.bytes_up == full.bytes_up
    side = setup({"name": "dsvd", "score": "claimed"}).side
    data = side.data.train(0, side.method.batching, KEY, full=False)
    state, moment = side.method.init(side.task, KEY), Moment(0, 0, True, KEY)
    message = side.method.dispatch(side.task, state, Cohort((0,), {}, 8), moment)
    _, reply = side.method.client_update(side.task, (), message, data, Context(0, 0, {}, KEY))
    sent = side.method.upload(reply, {"rank": 1 / 12})
    cut = sent.payload.update.params["0.weight"]
    assert isinstance(cut, Cut)
    assert cut.factors.s.shape == (1,)
    assert float(reply.payload.score) > 0  # training on its own samples helped


@pytest.mark.parametrize("aggregate", ["truncated", "full"])
def test_it_stands_where_the_mean_falls(aggregate):
    attack = {"name": "scale", "fraction": 0.25, "factor": -20.0}
    partition = {"kind": "iid", "clients": 8}
    made = setup({"name": "dsvd", "aggregate": aggregate}, selector="all", attack=attack, partition=partition)
    progress, record = advance(made.federation, start(made.federation))
    caught = [record.metrics["weights"][client] for client in made.side.attackers]
    assert max(caught) < 1e-3
    before = play(made, 3, progress).state
    assert all(sum(before.evidence.against[client]) < -1 for client in made.side.attackers)


def test_its_weights_serve_another_method():
    state = played(
        {"name": "fedavg", "aggregator": {"name": "dsvd", "temperature": 0.05}}, selector="all"
    ).state
    assert set(state.aggregator.against) == set(range(8))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alpha1": -0.1}, "alpha1 must be at least 0"),
        ({"temperature": 0.0}, "temperature must be > 0"),
        ({"aggregate": "half"}, "must be one of truncated, full"),
        ({"form": "best"}, "must be one of invariant, literal, subspace"),
    ],
)
def test_bad_values_are_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        setup({"name": "dsvd", **fields})


def test_a_claimed_score_moves_ranks_only_where_it_is_asked_for():
    """Attackers claim the best score: by default nobody listens; as the paper has it, their ranks grow."""
    attack = {"name": "false_scores", "attackers": [0, 1]}
    for score, grow in (("seen", False), ("claimed", True)):
        made = setup({"name": "dsvd", "score": score}, selector="all", attack=attack)
        state = play(made, 2).state
        assert all((state.shares[client] > 0.5) == grow for client in (0, 1))


def test_who_is_shut_out_and_for_how_long_is_recorded():
    attack = {"name": "sign_flip", "attackers": [0, 1]}
    partition = {"kind": "iid", "clients": 8}
    made = setup("dsvd", selector="all", attack=attack, partition=partition)
    progress = start(made.federation)
    for rounds in (1, 2, 3):
        progress, record = advance(made.federation, progress)
        assert record.metrics["shut_out"] == {0: rounds, 1: rounds}
        assert abs(sum(record.metrics["step_shares"].values()) - 1) < 1e-6
        assert abs(sum(record.metrics["step_shares"][client] for client in (0, 1))) < 0.01


def test_a_lie_in_a_bias_moves_it_by_little():
    """Six of twenty lie by fifty lengths in a bias, which hardly shows in whole updates."""
    given = honest(20, 0.5)
    usual = plus(normal("centre"), times(0.0, normal("centre")))["bias"]
    for liar in range(6):
        given[liar]["bias"] = given[liar]["bias"] - 50 * usual
    together = {name: torch.stack([update[name] for update in given]) for name in SHAPES}
    model = Weights({name: torch.zeros(shape) for name, shape in SHAPES.items()}, {})
    rows = torch.cat([value.reshape(20, -1) for value in together.values()], 1)
    matrix = UpdateMatrix(model, tuple(range(20)), rows, torch.ones(20).double(), {}, {})
    rule = Similarity()
    step = matrix.step(rule.judged(rule.init(model), matrix, [0.5] * 20, matrix.weights, KEY).step)
    truth = torch.stack([update["bias"] for update in given[6:]]).mean(0)
    assert float((step.params["bias"] - truth).norm()) < 1.5 * float(truth.norm())


def judged_often(given, rounds=10):
    """The evidence against clients, of whom something is known, who send the same again and again."""
    together = {name: torch.stack([update[name] for update in given]) for name in given[0]}
    past = nothing_known(len(given))
    for _ in range(rounds):
        _, past = Similarity().weigh(together, 0.5, past, torch.ones_like(past[0]), KEY)
    return past.sum(0)


@pytest.mark.parametrize("length", [0.2, 3.5])
def test_clients_with_few_samples_or_many_are_not_suspected_for_the_length_of_their_updates(length):
    """Where clients have little in common, unlike lengths are most of the distance between them."""
    given = honest(12, 3.0)
    assert float(judged_often(given)[5]) == 0
    given[5] = times(length, given[5])
    assert float(judged_often(given)[5]) == 0


@pytest.mark.parametrize(("length", "suspected"), [(0.2, False), (2.2, False), (3.0, True)])
def test_while_most_clients_are_new_who_is_three_times_as_long_is_suspected(length, suspected):
    given = honest(12, 3.0)
    given[5] = times(length, given[5])
    together = {name: torch.stack([update[name] for update in given]) for name in given[0]}
    none = torch.full((12,), torch.nan, dtype=torch.float64)
    weights, _ = Similarity().weigh(together, 0.5, nothing_known(12), none, KEY)
    assert (float(weights[5]) < 0.1 * float(weights[4])) == suspected


def test_rounding_in_a_tensor_without_a_gradient_is_no_evidence():
    """A bias before BatchNorm: what its updates are is rounding, in some clients a hundred times as much."""
    given = honest(12, 0.5)
    for i, update in enumerate(given):
        update["bias"] = update["bias"] * (1e-7 if i == 3 else 1e-9)
    assert float(judged_often(given).min()) > -1
    given[3]["bias"] = given[3]["bias"] * 1e7  # no rounding any more
    assert float(judged_often(given)[3]) < -12
