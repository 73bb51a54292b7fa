"""What users bring along is checked before anything runs."""

from dataclasses import replace

import pytest
import torch
from toy import blobs, net, table

import shoal
from shoal import SpecError, StageError


def unlike(**changes):
    def load():
        return replace(blobs(), **changes)

    return load


def untyped(*, n=5):
    return blobs()


def demanding(path):
    return blobs()


def broken():
    raise OSError("disk on fire")


def narrow(shape):
    return net(shape, 4)


CASES = {
    "doubles": (unlike(x_train=torch.zeros(320, 10).double()), "x_train of data set blobs must be a tensor"),
    "arrays": (unlike(y_test=[1, 2]), "y_test of data set blobs must be a tensor of torch.int64, got list"),
    "lengths": (unlike(y_train=torch.zeros(3).long()), "has 320 samples and 3 labels to train"),
    "nothing": (
        unlike(x_test=torch.zeros(0, 10), y_test=torch.zeros(0).long()),
        "has 0 samples and 0 labels",
    ),
    "labels": (unlike(classes=3), "labels of data set blobs must be 0 to 2, got 0 to 3"),
    "untyped": (untyped, "the option n of untyped needs a type annotation"),
    "demanding": (demanding, "must take nothing but keyword options"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_data_sets(name, monkeypatch):
    loader, message = CASES[name]
    monkeypatch.setattr("toy.blobs", loader)
    with pytest.raises(SpecError, match=message):
        shoal.run(table())


def test_bad_models(monkeypatch):
    monkeypatch.setattr("toy.net", narrow)
    with pytest.raises(SpecError, match="narrow must take shape, classes and keyword options"):
        shoal.run(table())
    monkeypatch.setattr("toy.net", lambda shape, classes: "a model")
    with pytest.raises(SpecError, match="returned a str, not a module"):
        shoal.run(table())


def test_errors_in_a_users_function_name_it(monkeypatch):
    monkeypatch.setattr("toy.blobs", broken)
    with pytest.raises(StageError, match=r"task.dataset: broken failed.*disk on fire"):
        shoal.run(table())


def test_batch_norm_needs_two_samples():
    task = {"dataset": "toy:blobs", "model": "toy:net", "norm": "batch"}
    with pytest.raises(SpecError, match="batch must be at least 2 for a model with BatchNorm, got 1"):
        shoal.run(table(task=task, local={"batch": 1}))


def test_a_run_that_failed_before_its_first_round_leaves_its_place_free(tmp_path):
    bad = table(attack={"name": "label_flip", "fraction": 1.0}, partition={"kind": "iid", "clients": 8})
    bad["task"] = {"dataset": "toy:line", "model": "linear"}
    with pytest.raises(SpecError, match="label_flip needs class labels"):
        shoal.run(bad, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_clients_that_exist_have_a_model():
    result = shoal.run(table(rounds=1))
    with pytest.raises(SpecError, match="there is no client 8; ids are 0 to 7"):
        result.model(client=8)
