import pytest
import torch
from toy import spec

import shoal
from shoal.core.errors import SpecError
from shoal.study.newcomers import newcomers_of, starting_points, starts_compared

LATER = {"name": "list", "join": [{"round": 3, "clients": "6-7"}]}


def after_two_rounds(method, **changes):
    return shoal.run(spec(method, rounds=2, arrivals=LATER, **changes))


@pytest.fixture(scope="module")
def gene():
    return after_two_rounds({"name": "genefl", "clusters": 2, "gamma": 2})


def test_newcomers_are_those_who_have_not_come(gene):
    assert newcomers_of(gene) == [6, 7]


def test_a_gene_costs_less_than_a_model_and_a_random_start_nothing(gene):
    points = starting_points(gene.setup, gene.progress, 6)
    assert list(points) == ["random", "gene", "gene with head", "cluster model"]
    sizes = {name: point.nbytes for name, point in points.items()}
    assert 0 == sizes["random"] < sizes["gene"] < sizes["gene with head"] < sizes["cluster model"]
    fresh, inherited = points["random"].weights.params, points["gene"].weights.params
    assert not torch.equal(fresh["0.bias"], inherited["0.bias"])
    assert all(torch.equal(fresh[name], inherited[name]) for name in fresh if name != "0.bias")


def test_a_global_model_may_get_a_fresh_head():
    result = after_two_rounds("fedavg")
    points = starting_points(result.setup, result.progress, 7)
    assert list(points) == ["random", "global model", "fresh head"]
    model, mixed = points["global model"].weights.params, points["fresh head"].weights.params
    same = {name for name in model if torch.equal(model[name], mixed[name])}
    assert same == {"0.weight", "0.bias"}


def test_starts_are_compared_after_some_epochs(gene):
    found = starts_compared(gene, (0, 30))
    assert found["random"]["epochs"] == [0, 30]
    for start in found.values():
        before, after = start["accuracies"]
        assert 0 <= before < after <= 1
    assert found == starts_compared(gene, (0, 30))


def test_there_must_be_newcomers():
    with pytest.raises(SpecError, match="let some come later"):
        starts_compared(shoal.run(spec(rounds=1)))
    with pytest.raises(SpecError, match="clients of fsi do not train"):
        starts_compared(after_two_rounds({"name": "fsi", "epochs": 3}, **{"task": LINEAR}))


LINEAR = {"dataset": "toy:blobs", "model": "linear"}
