import torch
from toy import play, played, same, setup

import shoal
from shoal.parts.layers import AllButBatchNorm, other_layers, some_layers

NORMED = {"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"}


def test_norm_layers_stay_at_home():
    made = setup("fedbn", task=NORMED, selector="all")
    progress = play(made, 3)
    assert not any(name.startswith("1.") for part in progress.state.model for name in part)
    memories = [made.federation.engine.memory(c, v).method for c, v in progress.accepted.items()]
    for name in ("1.weight", "1.bias"):
        assert len({tuple(m.params[name].tolist()) for m in memories}) == 8
    for name in ("1.running_mean", "1.running_var"):
        assert len({tuple(m.buffers[name].tolist()) for m in memories}) == 8


def test_parts_make_the_whole():
    task = setup("fedbn", task=NORMED).federation.task
    weights = task.init(shoal.core.key.Key.from_seed(0))
    names = AllButBatchNorm().names(task)
    own, shared = other_layers(weights, names), some_layers(weights, names)
    assert set(own.params) == {"1.weight", "1.bias"}
    assert set(own.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert own.params.keys() | shared.params.keys() == weights.params.keys()
    assert not shared.buffers


def test_a_client_trains_on_with_its_own_norms():
    """The memory of the first round is what the second starts from."""
    made = setup("fedbn", task=NORMED, selector="all")
    first = play(made, 1)
    before = made.federation.engine.memory(0, first.accepted[0]).method
    second = play(made, 1, first)
    after = made.federation.engine.memory(0, second.accepted[0]).method
    counted = before.buffers["1.num_batches_tracked"]
    assert int(after.buffers["1.num_batches_tracked"]) == 2 * int(counted)
    assert not torch.equal(before.params["1.weight"], after.params["1.weight"])


def test_every_client_is_judged_by_its_own_model():
    result = shoal.run({**_table(), "rounds": 2})
    assert result.final_accuracy is not None
    first, second = result.model(client=0), result.model(client=1)
    assert torch.equal(first[0].weight, second[0].weight)
    assert not torch.equal(first[1].weight, second[1].weight)


def _table():
    from toy import table

    return table("fedbn", task=NORMED, selector="all", evaluate={"every": 1})


def test_uniform_by_default():
    assert same(played("fedbn").state.model, played({"name": "fedavg", "weights": "uniform"}).state.model)
