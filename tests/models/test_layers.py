import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.models import MODELS
from shoal.models.layers import (
    Dropout,
    batch_norms,
    chain,
    channels_last,
    dropouts,
    last_linear,
    noise_shapes,
    norm2d,
    own_dropout,
)

KEY = Key.from_seed(1)


def dropped(layer, x, noise):
    return functional_call(layer, {"noise": noise}, (x,))


def test_dropout_by_hand():
    x = torch.tensor([[1.0, 2.0, -3.0, 4.0]])
    noise = torch.tensor([[0.0, 0.25, 0.2499, 0.99]])  # dropped where below p
    expected = torch.tensor([[0.0, 2.0, 0.0, 4.0]]) / 0.75
    torch.testing.assert_close(dropped(Dropout(0.25), x, noise), expected, rtol=0, atol=1e-7)


def test_dropout_keeps_the_expectation():
    noise = KEY.uniform((200_000,))
    for p in (0.0, 0.25, 0.5, 0.9):
        out = dropped(Dropout(p), torch.ones(200_000), noise)
        spread = (p / (1 - p) / 200_000) ** 0.5
        assert abs(out.mean().item() - 1) <= 4 * spread + 1e-6


def test_dropout_in_eval_mode_is_the_identity():
    x = KEY.uniform((2, 3))
    assert Dropout(0.5).eval()(x) is x


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dropout_keeps_the_dtype(dtype):
    assert dropped(Dropout(0.5), torch.ones(4, dtype=dtype), KEY.uniform((4,))).dtype == dtype


def test_dropout_gradient_is_the_mask():
    noise = KEY.uniform((5,))
    slope = grad(lambda x: dropped(Dropout(0.5), x, noise).sum())(torch.ones(5))
    assert torch.equal(slope, (noise >= 0.5) * 2.0)


def test_dropout_without_its_noise_says_so():
    with pytest.raises(RuntimeError, match=r"needs noise of shape \(2, 3\), got \(0,\); .*noise_shapes"):
        Dropout(0.5)(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match=r"needs noise of shape \(2, 3\), got \(2, 1\)"):
        dropped(Dropout(0.5), torch.ones(2, 3), torch.ones(2, 1))
    assert Dropout(0.5)(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("p", [-0.1, 1.0, 2.0])
def test_dropout_refuses_other_probabilities(p):
    with pytest.raises(SpecError, match=rf"p in \[0, 1\), got {p}"):
        Dropout(p)


def test_noise_is_no_part_of_the_state():
    module = chain(fc1=nn.Linear(2, 2), drop=Dropout(0.5))
    assert list(module.state_dict()) == ["fc1.weight", "fc1.bias"]
    assert [name for name, _ in module.named_buffers()] == ["drop.noise"]


def test_noise_shapes_of_the_catalogue():
    cnn_pfl, cnn6 = MODELS["cnn_pfl"]((3, 32, 32), 10), MODELS["cnn6"]((3, 32, 32), 10)
    assert list(dropouts(cnn_pfl)) == ["drop1", "drop2"]
    assert noise_shapes(cnn_pfl, (3, 32, 32)) == {"drop1.noise": (64, 14, 14), "drop2.noise": (128,)}
    assert noise_shapes(cnn6, (3, 32, 32)) == {
        "drop1.noise": (32, 16, 16),
        "drop2.noise": (64, 8, 8),
        "drop3.noise": (128, 4, 4),
    }
    assert noise_shapes(MODELS["linear"]((13,), 0), (13,)) == {}
    assert noise_shapes(Dropout(0.5), (4,)) == {"noise": (4,)}


def test_noise_shapes_leaves_the_module_as_it_was():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), Dropout(0.5)).double()
    module[1].eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    assert noise_shapes(module, (3,)) == {"2.noise": (4,)}
    assert [part.training for part in module.modules()] == [True, True, False, True]
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert not module[2]._forward_hooks


def test_noise_shapes_on_the_meta_device():
    with torch.device("meta"):
        module = MODELS["cnn6"]((1, 8, 8), 10)
    assert noise_shapes(module, (1, 8, 8))["drop3.noise"] == (128, 1, 1)


def test_a_dropout_used_twice_or_without_a_batch_axis_is_refused():
    shared = Dropout(0.5)
    with pytest.raises(SpecError, match="'0' is used twice"):
        noise_shapes(nn.Sequential(shared, nn.ReLU(), shared), (4,))
    with pytest.raises(SpecError, match=r"'1' gets \(4, 2\) for 2 samples"):
        noise_shapes(nn.Sequential(_Transpose(), Dropout(0.5)), (4,))


class _Transpose(nn.Module):
    def forward(self, x):
        return x.T


def test_clients_with_noise_of_their_own_at_once():
    shape, clients, rows = (1, 8, 8), 3, 2
    with KEY.seeded():
        module = MODELS["cnn6"](shape, 5).train()
    params = {key: p.detach() for key, p in module.named_parameters()}
    x = KEY.fold("x").uniform((rows, *shape))  # the same samples: only the noise tells clients apart
    noise = {
        name: KEY.fold(name).uniform((clients, rows, *size))
        for name, size in noise_shapes(module, shape).items()
    }

    def loss(params, noise):
        return functional_call(module, (params, noise), (x,)).logsumexp(1).sum()

    together = vmap(grad(loss), in_dims=(None, 0))(params, noise)
    for client in range(clients):
        alone = grad(loss)(params, {name: value[client] for name, value in noise.items()})
        for key in params:
            torch.testing.assert_close(together[key][client], alone[key], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together["conv1.weight"][0], together["conv1.weight"][1])
    assert module.drop1.noise.numel() == 0  # what was passed in does not stay


class _Users(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.ModuleDict({"drop": nn.Dropout(0.2)}))
        self.last = nn.Dropout(0.1).eval()


def test_own_dropout_replaces_torchs():
    module = _Users()
    assert own_dropout(module) is module
    found = {name: layer.p for name, layer in dropouts(module).items()}
    assert found == {"body.1": 0.3, "body.2.drop": 0.2, "last": 0.1}
    assert not any(isinstance(part, nn.Dropout) for part in module.modules())
    assert not module.last.training
    assert list(module.state_dict()) == ["body.0.weight", "body.0.bias"]
    mine = module.last
    assert own_dropout(module).last is mine
    assert isinstance(own_dropout(nn.Dropout(0.4)), Dropout)


def test_own_dropout_gives_each_name_its_own_noise():
    shared = nn.Dropout(0.5)
    module = own_dropout(nn.Sequential(shared, nn.ReLU(), shared))
    assert noise_shapes(module, (4,)) == {"0.noise": (4,), "2.noise": (4,)}


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout1d(),
        nn.Dropout2d(),
        nn.Dropout3d(),
        nn.AlphaDropout(),
        nn.FeatureAlphaDropout(),
        nn.RReLU(),
        nn.FractionalMaxPool2d(2, output_size=2),
        nn.LSTM(2, 2, num_layers=2, dropout=0.1),
        nn.MultiheadAttention(2, 1, dropout=0.1),
        type("Special", (nn.Dropout,), {})(),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_own_dropout_refuses_other_random_layers(layer):
    module = nn.Sequential(nn.Dropout(0.5), nn.Sequential(layer))
    with pytest.raises(SpecError, match=f"1.0 is a {type(layer).__name__}, which draws"):
        own_dropout(module)
    assert type(module[0]) is nn.Dropout  # refused before anything was changed


def test_own_dropout_accepts_layers_that_do_not_drop():
    own_dropout(nn.ModuleList([nn.LSTM(2, 2), nn.MultiheadAttention(2, 1), nn.ReLU()]))


def test_batch_norms_are_told_by_type():
    module = nn.ModuleDict(
        {
            "bn_in_name_only": nn.Linear(2, 2),
            "batch": nn.BatchNorm1d(2),
            "untracked": nn.BatchNorm2d(2, track_running_stats=False),
            "group": nn.GroupNorm(1, 2),
            "layer": nn.LayerNorm(2),
            "instance": nn.InstanceNorm2d(2),
            "tracked": nn.InstanceNorm2d(2, track_running_stats=True),
            "short": nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)),
        }
    )
    assert batch_norms(module) == ("batch", "untracked", "tracked", "short.1")
    with torch.device("meta"):
        assert "layer2.0.downsample.1" in batch_norms(MODELS["resnet18"]((3, 32, 32), 10))
        assert batch_norms(MODELS["resnet18"]((3, 32, 32), 10, norm="group")) == ()


def test_group_norm_has_no_more_groups_than_channels():
    assert norm2d("group", 8).num_groups == 8
    assert norm2d("group", 64).num_groups == 32


def test_batch_norm_of_several_clients_at_once():
    shape, clients, rows = (1, 8, 8), 2, 4
    with KEY.seeded():
        module = MODELS["resnet18"](shape, 3).train()
    params = {key: p.detach() for key, p in module.named_parameters()}
    x = KEY.fold("bn").uniform((clients, rows, *shape)) * torch.tensor([1.0, 5.0]).view(2, 1, 1, 1, 1)
    buffers = {key: b.expand(clients, *b.shape) for key, b in module.named_buffers()}

    def step(params, buffers, x):
        mine = {key: b.clone() for key, b in buffers.items()}  # BatchNorm writes into what it is given
        out = functional_call(module, (params, mine), (x,))
        return out, mine

    out, after = vmap(step, in_dims=(None, 0, 0))(params, buffers, x)
    for client in range(clients):
        alone, own = step(params, {key: b[client] for key, b in buffers.items()}, x[client])
        torch.testing.assert_close(out[client], alone, rtol=1e-3, atol=1e-3)
        for key in own:
            torch.testing.assert_close(after[key][client], own[key], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(after["bn1.running_mean"][0], after["bn1.running_mean"][1])
    assert after["bn1.num_batches_tracked"].tolist() == [1, 1]
    assert module.bn1.num_batches_tracked.item() == 0  # the module itself saw nothing


class Twice(nn.Module):
    """Ends in something that is no layer's output."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return 2 * self.fc(x)


def test_the_last_linear_layer():
    assert last_linear(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)) == "2."
    assert last_linear(nn.Sequential(nn.Sequential(nn.Linear(4, 5)), nn.Identity()), (4,)) == "0.0."
    assert last_linear(nn.Linear(4, 3), (4,)) == ""
    assert last_linear(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (4,)) is None
    assert last_linear(Twice(), (4,)) is None


@pytest.mark.parametrize("name", MODELS)
def test_every_model_ends_in_fc(name):
    with KEY.seeded():
        module = MODELS[name]((3, 32, 32), 10).train()
    assert last_linear(module, (3, 32, 32)) == "fc."
    assert module.training
    assert not any(part._forward_hooks for part in module.modules())


def test_channels_go_last_where_a_layer_has_activations_enough():
    """A fiftieth of its weights at least."""
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),  # 8 x 8 positions, 216 weights
        nn.Conv2d(8, 16, 3, stride=8),  # one position: 16 numbers, and 1,152 weights: 0.014
        nn.Conv2d(16, 16, 1),  # 16 numbers, 256 weights
        nn.Flatten(),
        nn.Linear(16, 2),
    ]
    assert channels_last(nn.Sequential(*layers), (3, 8, 8)) == {"0", "2"}
    assert channels_last(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), (3, 8, 8)) == set()


def test_activations_of_a_layer_that_is_used_twice_add_up():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 3, padding=1)  # 576 weights, 8 numbers each time

        def forward(self, x):
            return self.conv(self.conv(x))

    assert channels_last(Twice(), (8, 1, 1)) == {"conv"}  # 16 of 576; 8 would be 0.014 of it
