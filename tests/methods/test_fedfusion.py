from dataclasses import replace

import pytest
import torch
from toy import BATCH_NORM, DENSE, KEY, played, same, setup

from shoal import SpecError
from shoal.core.types import Context, Weights
from shoal.methods.fedfusion import FedFusion
from shoal.parts.fusion import FUSION, folded, fused_task, initial_fusion, renamed, with_features
from shoal.terms.proximal import Proximal

CONTEXT = Context(0, 0, {}, KEY)


def prepared(operator, task=DENSE):
    """A model and its fusion, and a client's samples with the features of another model."""
    made = setup({"name": "fedfusion", "operator": operator}, task=task)
    base, method = made.federation.task, made.federation.method
    start = method.init(base, KEY).model
    plain = Weights({n: v for n, v in start.params.items() if n != FUSION}, start.buffers)
    data = made.side.data.train(0, method.batching, KEY, full=task is BATCH_NORM)
    return made, base, start, plain, data, with_features(base, base.init(KEY.fold(1)), data)


@pytest.mark.parametrize("operator", ["single", "multi"])
@pytest.mark.parametrize("task", [DENSE, BATCH_NORM])
def test_a_lambda_that_stays_0_is_fedavg(operator, task):
    made, base, start, plain, data, given = prepared(operator, task)
    fused = replace(fused_task(base, operator), plan=None, frozen={FUSION: start.params[FUSION]})
    local = made.federation.method.local
    found = local.train(fused, renamed(plain), given, CONTEXT).weights
    expected = local.train(replace(base, plan=None), plain, data, CONTEXT).weights
    assert same(found, renamed(expected))


@pytest.mark.parametrize("operator", ["single", "multi"])
@pytest.mark.parametrize("task", [DENSE, {"dataset": "mnist5k", "model": "lenet"}])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_kernels_fuse_as_torch_does(operator, task, momentum):
    made, base, start, _, _, given = prepared(operator, task)
    fused, local = (
        fused_task(base, operator),
        replace(made.federation.method.local, momentum=momentum, lr=0.005),
    )
    begin = renamed(Weights({**start.params, FUSION: start.params[FUSION] + 0.3}, {}))
    assert local.fits(fused, ())
    found = local.train(fused, begin, given, CONTEXT, (Proximal(0.1),)).weights.params
    wanted = local.train(replace(fused, plan=None), begin, given, CONTEXT, (Proximal(0.1),)).weights.params
    assert not torch.equal(found[FUSION], begin.params[FUSION])
    for name, value in wanted.items():
        assert torch.allclose(found[name], value, atol=2e-5), name


@pytest.mark.parametrize("task", [DENSE, {"dataset": "mnist5k", "model": "lenet"}])
def test_kernels_round_fused_models_as_torch_does(task):
    """Nearly everywhere: what is drawn for a number depends on its place in the model, lambda's too."""
    made, base, start, _, _, given = prepared("multi", task)
    fused = fused_task(base, "multi")
    local = replace(made.federation.method.local, lr=0.005, momentum=0.5, format="bfloat16")
    begin = renamed(Weights({**start.params, FUSION: start.params[FUSION] + 0.3}, {}))
    found = local.train(fused, begin, given, CONTEXT).weights.params
    wanted = local.train(replace(fused, plan=None), begin, given, CONTEXT).weights.params
    for name, value in wanted.items():
        assert (found[name] == value).float().mean() > 0.9, name


@pytest.mark.parametrize("operator", ["single", "multi"])
def test_a_lambda_of_1_trains_no_extractor(operator):
    _, base, start, _, _, given = prepared(operator)
    fused = fused_task(base, operator)
    ones = {**start.params, FUSION: torch.ones_like(start.params[FUSION])}
    leaves = {
        name: value.clone().requires_grad_() for name, value in renamed(Weights(ones, {})).params.items()
    }
    x, y = given.all
    outputs = fused.forward(Weights(leaves, {}), x)[0]
    gradients = torch.autograd.grad(fused.objective(outputs, y), list(leaves.values()))
    moved = {name for name, gradient in zip(leaves, gradients, strict=True) if bool(gradient.any())}
    assert moved == {"net.3.weight", "net.3.bias", FUSION}


def test_single_is_multi_with_equal_lambdas():
    outputs = []
    for operator in ("single", "multi"):
        _, base, start, _, _, given = prepared(operator)
        params = {**start.params, FUSION: torch.full_like(start.params[FUSION], 0.3)}
        outputs.append(fused_task(base, operator).forward(renamed(Weights(params, {})), given.all.x)[0])
    assert torch.equal(*outputs)


def test_fusion_by_hand():
    """lambda g + (1 - lambda) l, and A [g, l]."""
    from shoal.parts.fusion import _Fusion

    g, own = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 6.0]])
    assert _Fusion(torch.tensor([0.25]))(g, own).tolist() == [[2.5, 5.0]]
    assert _Fusion(torch.tensor([0.25, 0.5]))(g, own).tolist() == [[2.5, 4.0]]
    matrix = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 1.0, 0.0]])
    assert _Fusion(matrix)(g, own).tolist() == [[7.0, 7.0]]
    assert _Fusion(initial_fusion("conv", 2))(g, own).tolist() == own.tolist()


def test_the_served_model_has_the_fusion_in_its_last_layer():
    _, base, start, _, data, _ = prepared("conv")
    matrix = torch.randn(12, 24, generator=KEY.torch())
    params = {**start.params, FUSION: matrix}
    plain = Weights(folded(params, "3.weight"), {})
    own = with_features(base, Weights({n: v for n, v in params.items() if n != FUSION}, {}), data)
    both = fused_task(base, "conv").forward(renamed(Weights(params, {})), own.all.x)[0]
    assert torch.allclose(base.forward(plain, data.all.x)[0], both, atol=1e-4)


def test_the_server_smooths_lambda():
    """With weight 0.9 on the old value, lambda moves a tenth as far."""
    lambdas = [
        played({"name": "fedfusion", "smoothing": share}, 1).state.model.params[FUSION]
        for share in (0.0, 0.9)
    ]
    assert torch.allclose(0.1 * lambdas[0], lambdas[1], atol=1e-7)
    assert bool(lambdas[0].any())


def test_mistakes_are_named():
    with pytest.raises(SpecError, match=r"smoothing must be a share in \[0, 1\), got 1"):
        FedFusion(smoothing=1.0)
