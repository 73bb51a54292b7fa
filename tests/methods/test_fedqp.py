import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from quadratic_clients import Quadratics
from scipy.optimize import nnls
from toy import KEY, play, played, same, setup, table

import shoal
from shoal import SpecError
from shoal.core.types import Cohort, Moment
from shoal.loop import start
from shoal.methods.fedqp import LARGEST, FedQP, adapted, effective_momentum, probability, project

# ---- the projection

numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
vectors = arrays(np.float64, 3, elements=numbers).map(torch.from_numpy)
axes = vectors.filter(lambda v: bool(v.abs().max() > 0))
factors = st.floats(1e-3, 1e3)
quick = settings(max_examples=100, deadline=None)


def size(*found):
    return max(1.0, *(float(v.abs().max()) for v in found))


@quick
@given(vectors, axes)
def test_the_projection_is_what_a_solver_finds(mutation, delta):
    """The dual of the quadratic program is a least squares problem with a multiplier >= 0."""
    multiplier, _ = nnls(delta.numpy()[:, None], -mutation.numpy())
    solved = mutation + delta * multiplier[0]
    torch.testing.assert_close(project(mutation, delta), solved, rtol=0, atol=1e-9 * size(mutation))


@quick
@given(vectors, axes)
def test_the_projection_is_feasible_and_idempotent(mutation, delta):
    found = project(mutation, delta)
    assert float(found @ delta) >= -1e-9 * size(mutation) * size(delta)
    torch.testing.assert_close(project(found, delta), found, rtol=0, atol=1e-9 * size(mutation))
    if mutation @ delta >= 0:
        assert torch.equal(found, mutation)


@quick
@given(vectors, vectors, axes)
def test_the_projection_brings_nothing_apart(first, second, delta):
    apart = (project(first, delta) - project(second, delta)).norm()
    assert float(apart) <= float((first - second).norm()) + 1e-9 * size(first, second)


@quick
@given(vectors, axes, factors, factors)
def test_the_projection_scales(mutation, delta, s, t):
    scaled = project(s * mutation, t * delta)
    torch.testing.assert_close(
        scaled, s * project(mutation, delta), rtol=1e-9, atol=1e-9 * s * size(mutation)
    )


@quick
@given(axes, factors)
def test_what_points_straight_back_vanishes(delta, a):
    for dtype in (torch.float64, torch.float32):
        assert not project(-a * delta.to(dtype), delta.to(dtype)).any()


def test_straight_back_in_many_dimensions_and_odd_scales():
    delta = torch.randn(50, 200, generator=torch.Generator().manual_seed(1))
    for scale in (1e-20, 1.0, 1e15):
        assert not project(-1.7 * scale * delta, scale * delta).any()


def test_without_a_delta_nothing_is_projected():
    mutation = torch.tensor([[1.0, -2.0]])
    assert torch.equal(project(mutation, torch.zeros(1, 2)), mutation)
    assert project(torch.empty(0), torch.empty(0)).shape == (0,)


def test_a_projection_by_hand():
    found = project(torch.tensor([-2.0, 1.0]), torch.tensor([1.0, 1.0]))
    assert found.tolist() == [-1.5, 1.5]


# ---- what is sent and recorded


THIRD = Moment(2, 0, True, KEY)  # of the third round


def sent(method, state, clients=10, moment=THIRD):
    message = method.dispatch(None, state, Cohort(tuple(range(clients)), {}, 100), moment)
    return list(message.model.rows)


@pytest.mark.parametrize(("p", "c"), [(0.0, 0.0), (1.0, 0.0), (0.0, 0.4), (1.0, 0.4)])
def test_the_models_sent_lie_ahead_by_the_effective_momentum(p, c):
    method = FedQP(alpha=0.6, p=p, acc=0.5, bound=10) if c else FedQP(alpha=0.6, p=p)
    state = Quadratics(tensors=4).play(method, 2).state  # c = 0.5 (1 - 2 / 10)
    for name, value in state.model.params.items():
        ahead = torch.stack([m.params[name] for m in sent(method, state)]).mean(0) - value
        expected = effective_momentum(0.6, p, c) * (value - state.before[name])
        torch.testing.assert_close(ahead, expected, rtol=1e-9, atol=1e-12)


def test_with_p_between_0_and_1_the_momentum_holds_in_expectation():
    method, clients = FedQP(alpha=0.6, p=0.3), Quadratics(tensors=4)
    state = clients.play(method, 2).state
    ahead = []
    for i in range(300):
        models = sent(method, state, moment=THIRD._replace(key=KEY.fold(i)))
        mean = torch.stack([m.params["w0"] for m in models]).mean(0) - state.model.params["w0"]
        ahead.append(float((mean / (state.model.params["w0"] - state.before["w0"])).mean()))
    assert np.mean(ahead) == pytest.approx(0.3 * 0.6 / 2, abs=4 * np.std(ahead) / np.sqrt(300))


def test_p_moves_no_sign():
    clients = Quadratics(tensors=4)
    state = clients.play(FedQP(), 2).state
    cohort = Cohort(tuple(range(10)), {}, 100)
    plans = [FedQP(p=p)._plan(state, cohort, THIRD).mutations for p in (0.0, 0.4, 1.0)]
    for some in plans[1:]:
        kept = ~some.active
        assert np.array_equal(some.along[kept], plans[0].along[kept])
        assert (plans[0].along[some.active] < 0).all()
    assert plans[2].active.sum() > plans[1].active.sum() > 0


def test_the_record_by_hand():
    """With p = 1 half of all mutations are taken away, and the other half are alpha deltas long."""
    played = Quadratics(tensors=4).play(FedQP(alpha=0.5, p=1.0), 3)
    assert played.records[0] == {"active_share": 0.0, "mutation_ratio": 0.0, "effective_momentum": 0.25}
    assert played.records[1]["active_share"] == 0.5
    assert 0.25 < played.records[1]["mutation_ratio"] < 0.5
    free = Quadratics(tensors=4).play(FedQP(alpha=0.5, p=0.0), 2).records[1]
    assert free == {
        "active_share": 0.0,
        "mutation_ratio": pytest.approx(0.5),
        "effective_momentum": 0.0,
    }
    mixed = Quadratics().play(FedQP(alpha=0.5, p=0.0, mutation="mixed", sigma=2.0), 2).records[1]
    assert mixed["mutation_ratio"] == pytest.approx(0.5 * np.sqrt(1 + 4))


def test_an_odd_cohort_is_pushed_less_and_one_client_not_at_all():
    for cohort, share in ((3, 2 / 3), (1, 0.0)):
        record = Quadratics().play(FedQP(p=0.2), 2, cohort=cohort).records[1]
        assert record["effective_momentum"] == pytest.approx(0.4 * share)


def test_rounds_are_recorded(tmp_path):
    shoal.run(table({"name": "fedqp", "p": "auto"}), tmp_path / "run", report=False)
    lines = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert all(line.keys() >= {"active_share", "mutation_ratio", "effective_momentum"} for line in lines)
    assert 'p = "auto"' in (tmp_path / "run/spec.toml").read_text()


def test_a_momentum_of_one_is_worth_one_warning():
    for fields in ({"p": 0.5}, {"p": 0.0, "acc": 1.0, "bound": 2}, {"p": "auto", "acc": 1.0, "alpha": 5.0}):
        made = setup({"name": "fedqp", **fields})
        with pytest.warns(UserWarning, match=r"effective momentum .* at 1 or more training") as caught:
            play(made, 2)
        assert len(caught) == 1
    for fields in ({}, {"p": "auto"}, {"p": 1.0, "mutation": "gaussian"}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            start(setup({"name": "fedqp", **fields}).federation)


@pytest.mark.parametrize("mutation", ["gaussian", "mixed"])
def test_other_mutations_run_and_differ(mutation):
    whole = played({"name": "fedqp", "mutation": mutation, "granularity": "module"})
    assert not same(whole.state.model, played({"name": "fedqp", "granularity": "module"}).state.model)
    flat = {"name": "fedqp", "mutation": "mixed", "sigma": 0.0}
    assert same(played(flat).state, played("fedqp").state)


def test_a_round_without_a_reply_keeps_the_delta():
    made = setup("fedqp")
    state = play(made, 2).state
    method, cohort = made.federation.method, Cohort((0, 1, 2, 3), {}, 8)
    after, metrics = method.finish(None, state, method.begin(state, cohort), THIRD)
    assert same(after, state)
    assert metrics == {}
    first, again = (list(method.dispatch(None, s, cohort, THIRD).model.rows) for s in (state, after))
    assert same(first, again)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"p": 2.0}, r"p must be in \[0, 1\], got 2"),
        ({"p": -0.1}, r"p must be in \[0, 1\], got -0.1"),
        ({"alpha": -1.0}, "alpha must be >= 0, got -1"),
        ({"sigma": -1.0}, "sigma must be >= 0, got -1"),
        ({"acc": -1.0}, r"acc must be in \[0, 1\], got -1"),
        ({"bound": 0}, "bound must be at least 1, got 0"),
    ],
)
def test_bad_values_are_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        FedQP(**fields)


def test_a_word_that_is_no_number_is_refused():
    with pytest.raises(SpecError, match=r"method\.p must be a number or auto; got 'always'"):
        setup({"name": "fedqp", "p": "always"})
    with pytest.raises(SpecError, match=r"method\.p must be a number, got True"):
        setup({"name": "fedqp", "p": True})


# ---- momentum, and how p = "auto" finds it


def test_p_gives_the_momentum_and_the_momentum_p():
    assert effective_momentum(4.0, 0.3, 0.0) == pytest.approx(0.6)
    assert effective_momentum(4.0, 0.25, 0.2) == pytest.approx(2 * 0.4)
    for alpha, c, momentum in ((4.0, 0.0, 0.7), (2.0, 0.3, 0.8), (8.0, 0.1, 0.5)):
        p = probability(alpha, c, momentum)
        assert effective_momentum(alpha, p, c) == pytest.approx(momentum)
    assert probability(1.0, 0.0, 0.8) == 1
    assert probability(4.0, 0.5, 0.8) == 0
    assert probability(0.0, 0.0, 0.8) == probability(4.0, 1.0, 0.8) == 0


def test_the_momentum_follows_the_cosine_within_its_limits():
    assert adapted(0.5, 1.0) > adapted(0.5, 0.2) > 0.5 > adapted(0.5, 0.0) > adapted(0.5, -1.0)
    assert adapted(LARGEST, 1.0) == LARGEST
    assert adapted(0.01, -1.0) == 0


def test_on_quadratics_momentum_helps_and_too_much_of_it_diverges():
    clients = Quadratics()
    assert clients.floor(FedQP(p=0.3), 100) < 0.5 * clients.floor(FedQP(p=0.0), 100)
    with pytest.warns(UserWarning, match="effective momentum"):
        assert clients.floor(FedQP(p=0.8), rounds=60) > 1e6


def test_auto_is_as_good_as_the_best_p():
    clients = Quadratics()
    best = min(clients.floor(FedQP(p=p), 100) for p in (0.3, 0.4))
    assert clients.floor(FedQP(p="auto"), 100) < 1.05 * best


def test_auto_lets_go_where_clients_overshoot():
    """Local steps so long that they jump over the optimum: any momentum would make it worse."""
    clients = Quadratics(low=0.9, uneven=0.02, lr=2.0)
    clients.shrink = np.full_like(clients.shrink, -0.8)
    auto, none = (clients.play(FedQP(p=p), 60) for p in ("auto", 0.0))
    assert auto.records[-1]["effective_momentum"] < 0.1
    assert clients.excess(auto.models[-1]) < 2 * clients.excess(none.models[-1])
