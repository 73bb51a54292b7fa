import pytest
import torch
from audit.upload import examined, spec_of

from shoal.audit.matching import simulated, variation
from shoal.audit.observation import Observation, Window, window
from shoal.audit.wiretap import first_round
from shoal.core.key import Key
from shoal.core.types import Weights
from shoal.solver.torch_sgd import Rule

DIGITS = {"dataset": "mnist5k", "task": {"crop": True}}  # 20 x 20


@pytest.mark.parametrize("upload", ["fedavg", "genefl:gamma=5,lambda1=0.0,lambda2=0.0"])
def test_the_attacker_repeats_the_clients_steps(upload):
    local = {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.01}
    spec = spec_of(upload, images=1, samples=3, steps=4, local=local)
    setup, (victim,) = first_round(spec)
    seen, (x, y) = victim.uploads[0], victim.data.all
    start = Weights({n: v.double() for n, v in seen.start.params.items()}, {})
    task, rule = setup.side.task, Rule(0.3, 0.9, 0.01)
    evidence = Observation(task, start, seen.update, {}, rule, 4, tuple(x.shape), 0.0, 1.0)
    ours = simulated(evidence, x.double(), lambda outputs: task.objective(outputs, y))
    assert ours.keys() == seen.update.keys()
    for name, value in seen.update.items():
        assert torch.allclose(ours[name], value, rtol=1e-3, atol=1e-5 * float(value.abs().max())), name


def test_idlg_reconstructs_digits_from_whole_gradients():
    found = examined(images=1, effort={"restarts": 1}, **DIGITS)
    assert found["attack"] == "idlg"
    assert found["knows"]["psnr"] >= 45
    assert found["lacks"] is None  # nothing is lacking


def test_a_partial_upload_protects_only_through_what_the_attacker_does_not_know():
    found = examined("genefl:gamma=6", images=1, effort={"restarts": 1}, **DIGITS)
    assert len(found["travelled"]) == 6
    assert found["knows"]["psnr"] >= 40
    assert found["lacks"]["psnr"] <= 10


def test_dlg_finds_the_label_with_the_image():
    found = examined(images=1, effort={"attack": "dlg", "restarts": 1})
    assert found["knows"]["labels"] == 1.0
    assert found["knows"]["psnr"] >= 45


def test_a_model_with_corners_is_attacked_in_two_ways():
    given = {"model": "audit.upload:corners", "images": 1}
    assert (
        examined(effort={"restarts": 1, "attack": "cosine", "iterations": 150}, **given)["knows"]["psnr"] > 15
    )
    found = examined(effort={"restarts": 1}, **given)
    assert found["attack"] == "either"
    assert found["knows"]["psnr"] >= 45


def test_the_same_seed_gives_the_same_images():
    few = {"restarts": 2, "iterations": 5}
    once, again = (examined(images=1, effort=few)["knows"]["images"] for _ in range(2))
    assert once == again


def test_a_truncated_matrix_is_exact_where_it_can_be_seen():
    whole = torch.from_numpy(Key.from_seed(3).numpy().normal(size=(6, 8)))
    u, s, v = torch.linalg.svd(whole, full_matrices=False)
    cut = (u[:, :2] * s[:2]) @ v[:2]
    assert torch.allclose(window(cut)(whole), cut)
    assert not torch.allclose(window(whole)(whole - cut), torch.zeros(6, 8).double())


def test_zeros_of_a_lossy_upload_say_nothing():
    shown = window(torch.tensor([0.0, 2.0]))
    assert shown(torch.tensor([7.0, 5.0])).tolist() == [0.0, 5.0]
    sparse = torch.zeros(4, 4)
    sparse[1, 2] = 3.0
    assert window(sparse)(torch.ones(4, 4)).sum() == 1.0  # a mask, though its rank is low
    assert Window()(torch.tensor([7.0])).tolist() == [7.0]


def test_factors_hide_little():
    found = examined("fedsvd", images=1, effort={"restarts": 1})
    assert found["knows"]["psnr"] > 25


def test_variation_by_hand():
    image = torch.tensor([[[[0.0, 1.0], [1.0, 1.0]]]])
    assert float(variation(image)) == 1.0  # half of the neighbours differ by 1, in both directions
    assert float(variation(torch.ones(2, 3))) == 0.0  # no image
