"""Laws of faults: every method outlives clients that drop out, late and damaged replies, and empty rounds."""

import pytest
from toy import after, hardest_task, play, same, setup, spec
from wire import over_the_wire

from shoal.core.tree import all_finite
from shoal.loop import advance, start
from shoal.methods import METHODS
from shoal.runs.runner import one_thread

MANY = {"dropout": 0.3, "late": 0.1, "corrupt": 0.1}
EVERY = pytest.mark.parametrize("name", METHODS)


@EVERY
def test_every_method_outlives_dropouts_and_damaged_replies(name):
    made = setup(name, faults=MANY, task=hardest_task(name))
    with one_thread():
        progress, refused = start(made.federation), []
        for _ in range(3):
            progress, done = advance(made.federation, progress)
            refused += [reason for _, reason in done.rejected]
    assert all(map(all_finite, made.federation.method.models(progress.state).values()))
    assert any("dropped out" in reason for reason in refused)


@EVERY
def test_rounds_in_which_nobody_answers_change_no_model(name):
    made = setup(name, faults={"dropout": 1.0})
    models = made.federation.method.models
    before = models(start(made.federation).state)
    assert same(models(play(made, 1).state), before)


@pytest.mark.parametrize("name", ["scaffold", "situa_cq"])
def test_the_same_clients_fail_in_every_mode_and_on_the_wire(name):
    one_by_one = after(setup(name, faults=MANY, engine={"mode": "serial"}))
    for mode in ("block", "workers"):
        assert same(after(setup(name, faults=MANY, engine={"mode": mode, "workers": 2})), one_by_one)
    assert same(after(over_the_wire(spec(name, faults=MANY))), one_by_one)
