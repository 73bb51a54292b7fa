import pytest
import torch
from toy import KEY, setup

from shoal.core.gate import mismatch
from shoal.core.types import Weights
from shoal.parts.channels import channel_groups, pruned, strongest
from shoal.parts.pruned_models import enlarged, smaller, whole_shapes


@pytest.fixture(scope="module", params=["lenet", "mlp"])
def model(request):
    task = setup(task={"dataset": "mnist5k", "model": request.param}).federation.task
    return channel_groups(task), task.init(KEY)


def tensor_by_tensor(model):
    """In float64, which the kernels do not take."""
    return Weights({name: value.double() for name, value in model.params.items()}, {})


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8])
def test_one_vector_is_pruned_as_its_tensors_are(model, ratio):
    groups, whole = model
    kept = pruned(groups, strongest(groups, whole), ratio)
    small, back = smaller(whole, kept), enlarged(smaller(whole, kept), kept)
    expected = smaller(tensor_by_tensor(whole), kept)
    for name, value in expected.params.items():
        assert torch.equal(small.params[name].double(), value), name
    for name, value in enlarged(expected, kept).params.items():
        assert torch.equal(back.params[name].double(), value), name
        assert torch.equal(back.params[name] != 0, (value != 0) & (whole.params[name] != 0)), name


def test_the_template_fits_the_whole_and_nothing_else(model):
    groups, whole = model
    kept = pruned(groups, strongest(groups, whole), 0.5)
    small = smaller(whole, kept)
    template = whole_shapes(small, kept)
    assert not mismatch(enlarged(small, kept), template, "update")
    assert not mismatch(Weights(dict(whole.params), {}), template, "update")
    assert "shape" in mismatch(small, template, "update")
    assert "not finite" in mismatch(
        Weights({name: value / 0 for name, value in whole.params.items()}, {}), template, "update"
    )


def test_numbers_that_do_not_fit_the_marks_are_refused(model):
    groups, whole = model
    kept = pruned(groups, strongest(groups, whole), 0.5)
    with pytest.raises(ValueError, match="do not fit"):
        enlarged(whole, kept)
