"""Parts that users write keep the laws of ours: one client is one client, in every mode and on a wire."""

import pytest
import users
from toy import BATCH_NORM, DENSE, after, play, same, setup, spec, table
from wire import over_the_wire

import shoal
from shoal.methods import METHODS
from shoal.selectors import SELECTORS

USERS = {
    "gathers": {"method": "users:RandomlyWeighted"},
    "folds by itself": {"method": "users:CountsItsReplies"},
    "own randomness": {"method": "users:NoisyUpdate"},
    "own start": {"method": "users:NoisyStart"},
    "own memory": {"method": "users:TrainsTwice"},
    "own aggregator": {"method": {"name": "fedavg", "aggregator": "users:MedianNorm"}},
    "aggregator in fedqp": {"method": {"name": "fedqp", "aggregator": "users:MedianNorm"}},
    "own server": {"method": {"name": "scaffold", "server": "users:HalfSteps"}},
    "own selector": {"method": "scaffold", "selector": "users:LargestUpdates"},
}


@pytest.mark.parametrize("task", [DENSE, BATCH_NORM], ids=["dense", "batch norm"])
@pytest.mark.parametrize("changes", USERS.values(), ids=USERS)
def test_every_mode_and_the_wire_have_the_bits_of_one_client_after_another(changes, task):
    one_by_one = after(setup(**changes, task=task, engine={"mode": "serial"}))
    for mode in ("block", "workers"):
        found = after(setup(**changes, task=task, engine={"mode": mode, "workers": 2}))
        assert same(found, one_by_one), mode
    assert same(after(over_the_wire(spec(**changes, task=task))), one_by_one)


def test_the_mode_that_is_chosen_has_the_same_bits():
    for task in (DENSE, BATCH_NORM):  # a block, and one after another
        found, one_by_one = (
            after(setup("users:TrainsTwice", task=task, engine={"mode": mode})) for mode in ("auto", "serial")
        )
        assert same(found, one_by_one)


@pytest.mark.parametrize("changes", USERS.values(), ids=USERS)
def test_a_resumed_run_equals_an_uninterrupted_one(changes, tmp_path):
    class CrashError(Exception):
        pass

    def crash(record):
        if record["round"] == 2:
            raise CrashError

    tables = table(**{"rounds": 4, **changes})
    whole = shoal.run(tables)
    with pytest.raises(CrashError):
        shoal.run(tables, tmp_path / "run", crash)
    resumed = shoal.resume(tmp_path / "run", report=False)
    assert (resumed.weights_sha256, resumed.memory_sha256) == (whole.weights_sha256, whole.memory_sha256)


def test_what_a_client_draws_and_is_told_is_its_own():
    """In a block the key and the setting are each client's, and both differ by client."""
    made = setup("users:NoisyUpdate", selector="all", engine={"mode": "block"})
    seen = {}
    update = users.NoisyUpdate.client_update

    def watched(self, task, memory, message, data, context):
        seen[context.key] = context.setting["strength"]
        return update(self, task, memory, message, data, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users.NoisyUpdate, "client_update", watched)
        play(made, 1)
    assert len(seen) == 8
    assert len(set(seen.values())) == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("selector", [*sorted(SELECTORS.keys() - {"uniform", "all"}), "users:LargestUpdates"])
@pytest.mark.filterwarnings("ignore:the selector draws clients by their samples")
def test_every_selector_with_every_method(selector, method):
    """Those that treat all clients alike are in every other law."""
    chosen = {"name": selector, "count": 4}
    one_by_one, block = (
        after(setup(method, selector=chosen, engine={"mode": mode}), 2) for mode in ("serial", "block")
    )
    assert same(block, one_by_one)
