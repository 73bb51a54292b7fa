import pytest
import torch
from audit.upload import examined, spec_of

from shoal.audit.closed_form import dense_input, from_signature, inverted, readable
from shoal.core.errors import SpecError
from shoal.parts.signature import signature
from shoal.runs.build import Samples, load_dataset, make_task


def test_a_dense_layer_gives_its_input_away():
    x, d = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, -0.25])
    assert inverted(torch.outer(d, x), d).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("model", "layer"), [("linear", "fc."), ("mlp", "fc1."), ("logistic_ova", "fc."), ("sigmoid_cnn", None)]
)
def test_the_layer_that_sees_the_sample_is_found(model, layer):
    spec = spec_of(model=model)
    dataset = load_dataset(spec.task)
    task = make_task(spec, Samples.of(dataset))
    assert dense_input(task, dataset.shape) == layer
    assert readable(task, dataset.shape, {"fc.weight": torch.ones(1)}) is None  # its bias did not travel


@pytest.mark.parametrize("model", ["linear", "logistic_ova"])
def test_a_linear_classifier_is_inverted_in_closed_form(model):
    found = examined(dataset="mnist5k", model=model, images=10)
    assert found["attack"] == "closed"
    assert min(found["knows"]["psnrs"]) > 100
    assert found["knows"]["labels"] == 1.0


def test_an_update_of_several_steps_of_a_deep_model_is_no_safer():
    local = {"lr": 0.1, "momentum": 0.9}
    assert min(examined(model="mlp", images=3, steps=5, local=local)["knows"]["psnrs"]) > 100


def test_closed_form_needs_one_sample_and_a_dense_first_layer():
    for given in ({"model": "linear", "samples": 2}, {"model": "sigmoid_cnn"}):
        with pytest.raises(SpecError, match=r"closed needs a dense first layer.*use idlg or cosine"):
            examined(effort={"attack": "closed"}, images=1, **given)


def test_the_signature_of_one_sample_is_that_sample():
    x = torch.tensor([[0.0, 0.5, 1.0]])
    assert from_signature(signature(x, 2), 1.0).tolist() == pytest.approx([0.0, 0.5, 1.0])
    found = examined("genefl", dataset="mnist5k", images=3, effort={"iterations": 1, "restarts": 1})
    assert min(found["signature"]["psnrs"]) > 100
