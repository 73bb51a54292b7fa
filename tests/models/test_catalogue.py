import inspect
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.models import MODELS
from shoal.models.layers import batch_norms

MNIST, CIFAR, DIGITS, BOSTON = (1, 28, 28), (3, 32, 32), (1, 8, 8), (13,)
KEY = Key.from_seed(0)

COUNTS = [
    ("linear", BOSTON, 0, {}, 14),
    ("linear", MNIST, 10, {}, 7_850),
    ("logistic_ova", MNIST, 10, {}, 7_850),
    ("mlp", MNIST, 10, {}, 199_210),
    ("mlp", BOSTON, 0, {"hidden": 8}, 13 * 8 + 8 + 8 * 8 + 8 + 8 + 1),
    ("lenet", CIFAR, 10, {}, 62_006),
    ("cnn", MNIST, 10, {}, 1_663_370),
    ("cnn_pfl", CIFAR, 10, {}, 1_626_442),
    ("cnn6", CIFAR, 10, {}, 1_341_226),
    ("sigmoid_cnn", MNIST, 10, {}, 300 + 3_600 + 3_600 + 3 * 12 + 12 * 7 * 7 * 10 + 10),
    ("resnet18", CIFAR, 10, {}, 11_173_962),
    ("resnet18", CIFAR, 10, {"norm": "group"}, 11_173_962),
    ("resnet18", CIFAR, 10, {"norm": "none"}, 11_173_962 - 2 * 4_800),
    ("resnet18_imagenet", CIFAR, 10, {}, 11_181_642),
    ("resnet18_imagenet", (3, 224, 224), 100, {}, 11_227_812),
    ("vgg16", CIFAR, 10, {}, 14_728_266),
    ("vgg16", (3, 64, 48), 10, {"norm": "group"}, 14_728_266),
    ("vgg16", CIFAR, 10, {"norm": "none"}, 14_728_266 - 2 * 4_224),
]

SHAPES = [
    ("linear", [BOSTON, MNIST, (4, 3)]),
    ("logistic_ova", [BOSTON, DIGITS]),
    ("mlp", [BOSTON, MNIST]),
    ("lenet", [MNIST, CIFAR, (1, 16, 17), (3, 31, 40)]),
    ("cnn", [MNIST, CIFAR, DIGITS, (2, 4, 7)]),
    ("cnn_pfl", [MNIST, (1, 6, 7)]),
    ("cnn6", [MNIST, (1, 8, 17)]),
    ("sigmoid_cnn", [MNIST, CIFAR, DIGITS, (1, 5, 7)]),
    ("resnet18", [DIGITS, (3, 1, 5)]),
    ("resnet18_imagenet", [CIFAR, DIGITS]),
    ("vgg16", [CIFAR, (1, 33, 64)]),
]


def build(name, shape, classes, **options):
    with KEY.fold(name).seeded():
        return MODELS[name](shape, classes, **options)


def on_meta(name, shape, classes, **options):
    with torch.device("meta"):
        return MODELS[name](shape, classes, **options)


def batch(shape, rows=3):
    return KEY.fold("batch").uniform((rows, *shape))


@pytest.mark.parametrize(("name", "shape", "classes", "options", "count"), COUNTS)
def test_parameter_counts(name, shape, classes, options, count):
    module = on_meta(name, shape, classes, **options)
    assert sum(p.numel() for p in module.parameters()) == count


def test_every_model_is_covered():
    assert set(MODELS) == {row[0] for row in COUNTS} == {row[0] for row in SHAPES}


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SHAPES for shape in shapes])
def test_output_shapes(name, shape):
    assert on_meta(name, shape, 7).eval()(torch.empty(3, *shape, device="meta")).shape == (3, 7)
    if name != "logistic_ova":
        assert on_meta(name, shape, 0).eval()(torch.empty(3, *shape, device="meta")).shape == (3, 1)


@pytest.mark.parametrize(("name", "shape"), [(name, shapes[0]) for name, shapes in SHAPES])
def test_eval_is_deterministic_and_leaves_the_global_generator_alone(name, shape):
    module = build(name, shape, 5).eval()
    before = torch.random.get_rng_state()
    first, second = module(batch(shape)), module(batch(shape))
    assert first.isfinite().all()
    assert torch.equal(first, second)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", ["linear", "lenet", "cnn_pfl"])
def test_the_key_decides_the_initial_values(name):
    same = zip(build(name, CIFAR, 10).parameters(), build(name, CIFAR, 10).parameters())
    assert all(torch.equal(a, b) for a, b in same)


@pytest.mark.parametrize("name", MODELS)
def test_builders_can_be_listed_and_configured(name):
    builder = MODELS[name]
    assert builder.__name__ == name
    assert builder.__doc__
    assert "\n" not in builder.__doc__
    parameters = inspect.signature(builder).parameters
    assert list(parameters)[:2] == ["shape", "classes"]
    hints = get_type_hints(builder)
    for option in list(parameters)[2:]:
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
        default, hint = parameters[option].default, hints[option]
        assert default in get_args(hint) if get_origin(hint) is Literal else isinstance(default, hint)


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layer_is_fc(name):
    module = on_meta(name, CIFAR, 10)
    last = [part for part, layer in module.named_modules() if isinstance(layer, nn.Linear)][-1]
    assert last == "fc"


def test_xavier_bounds_of_cnn_pfl():
    module = build("cnn_pfl", CIFAR, 10)
    for layer in (module.conv1, module.conv2, module.fc1, module.fc):
        inner, outer = nn.init._calculate_fan_in_and_fan_out(layer.weight)
        bound = (6 / (inner + outer)) ** 0.5
        assert 0.95 * bound < layer.weight.abs().max() <= bound


def test_resnet_names_follow_torchvision():
    blocks = [f"layer{stage}.{place}" for stage in (1, 2, 3, 4) for place in (0, 1)]
    inside = ["conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias"]
    short = ["downsample.0.weight", "downsample.1.weight", "downsample.1.bias"]
    expected = ["conv1.weight", "bn1.weight", "bn1.bias"]
    for block in blocks:
        extra = short if block in ("layer2.0", "layer3.0", "layer4.0") else []
        expected += [f"{block}.{name}" for name in inside + extra]
    expected += ["fc.weight", "fc.bias"]
    for name in ("resnet18", "resnet18_imagenet"):
        assert [key for key, _ in on_meta(name, CIFAR, 10).named_parameters()] == expected


def test_resnet_sizes_behind_the_papers_traffic():
    sizes = {key: p.numel() for key, p in on_meta("resnet18_imagenet", CIFAR, 10).named_parameters()}
    last = sum(size for key, size in sizes.items() if key.startswith("layer4") and ".conv" in key)
    assert last == 8_257_536
    assert sum(sizes[f"layer{stage}.1.conv1.weight"] for stage in (1, 2, 3, 4)) == 3_133_440


@pytest.mark.parametrize("name", ["resnet18", "resnet18_imagenet", "vgg16"])
def test_norm_options_change_the_norms_only(name):
    modules = {norm: on_meta(name, CIFAR, 10, norm=norm) for norm in ("batch", "group", "none")}
    convs = {
        norm: {key: layer.weight.shape for key, layer in m.named_modules() if isinstance(layer, nn.Conv2d)}
        for norm, m in modules.items()
    }
    assert len(convs["batch"]) == (13 if name == "vgg16" else 20)
    assert convs["batch"] == convs["group"] == convs["none"]
    norms = batch_norms(modules["batch"])
    assert len(norms) == len(convs["batch"])
    assert batch_norms(modules["group"]) == batch_norms(modules["none"]) == ()
    assert {type(modules["batch"].get_submodule(key)) for key in norms} == {nn.BatchNorm2d}
    assert {modules["group"].get_submodule(key).num_groups for key in norms} == {32}
    assert {type(modules["none"].get_submodule(key)) for key in norms} == {nn.Identity}


@pytest.mark.parametrize("norm", ["group", "none"])
def test_gradients_of_a_deep_model_are_finite_without_batch_norm(norm):
    module = build("resnet18", DIGITS, 10, norm=norm)
    module(batch(DIGITS, 2)).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape"), [("linear", BOSTON), ("mlp", BOSTON), ("lenet", (1, 16, 16)), ("cnn", DIGITS)]
)
def test_gradients_of_several_clients_at_once(name, shape):
    module = build(name, shape, 4)
    x = KEY.fold("clients").uniform((2, 3, *shape))
    params = {key: torch.stack([p.detach(), 0.5 * p.detach()]) for key, p in module.named_parameters()}

    def loss(weights, x):
        return functional_call(module, weights, (x,)).logsumexp(1).sum()

    together = vmap(grad(loss))(params, x)
    for client in range(2):
        alone = grad(loss)({key: p[client] for key, p in params.items()}, x[client])
        for key in alone:
            torch.testing.assert_close(together[key][client], alone[key])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("lenet", BOSTON, r"lenet needs images of at least 16 x 16, got \(13,\); use linear or mlp"),
        ("lenet", (1, 15, 30), r"at least 16 x 16, got \(1, 15, 30\); use cnn or resnet18"),
        ("lenet", (28, 28), r"got \(28, 28\); reshape to \(1, 28, 28\), or use linear or mlp"),
        ("cnn", (1, 3, 3), r"cnn needs images of at least 4 x 4, got \(1, 3, 3\); use linear or mlp"),
        ("cnn_pfl", (1, 5, 9), "at least 6 x 6"),
        ("cnn6", (1, 7, 7), "at least 8 x 8"),
        ("resnet18", BOSTON, r"resnet18 needs images \(channels, height, width\), got \(13,\); use linear"),
        ("resnet18_imagenet", (3, 4, 4, 4), r"needs images .* got \(3, 4, 4, 4\)"),
        ("vgg16", MNIST, r"vgg16 needs images of at least 32 x 32, got \(1, 28, 28\); use cnn or resnet18"),
        ("linear", (), r"at least one feature, got \(\)"),
        ("mlp", (3, 0), r"at least one feature, got \(3, 0\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name, shape, message):
    with pytest.raises(SpecError, match=message):
        MODELS[name](shape, 10)


@pytest.mark.parametrize(("name", "shape"), [("lenet", (1, 16, 16)), ("cnn", (1, 4, 4)), ("cnn6", (1, 8, 8))])
def test_the_stated_least_image_does_fit(name, shape):
    assert build(name, shape, 10).eval()(batch(shape)).shape == (3, 10)


def test_other_bad_values_are_refused():
    with pytest.raises(SpecError, match="got -1; use 0 for a regression"):
        MODELS["linear"](BOSTON, -1)
    with pytest.raises(SpecError, match="use linear or mlp"):
        MODELS["logistic_ova"](BOSTON, 0)
    with pytest.raises(SpecError, match="hidden >= 1, got 0"):
        MODELS["mlp"](BOSTON, 2, hidden=0)
    with pytest.raises(SpecError, match="norm must be one of batch, group, none, got 'layer'"):
        MODELS["vgg16"](CIFAR, 10, norm="layer")
