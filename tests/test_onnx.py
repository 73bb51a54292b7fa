"""Models as ONNX; runs where `pip install 'shoal[onnx]'` was done."""

import numpy as np
import pytest
import torch
from toy import table

import shoal
from shoal.cli.export import export

pytest.importorskip("onnx", reason="needs pip install 'shoal[onnx]'")
pytest.importorskip("onnxscript", reason="needs pip install 'shoal[onnx]'")

DIGITS = {"task": {"dataset": "digits", "model": "lenet"}, "partition": {"kind": "iid", "clients": 4}}


@pytest.mark.filterwarnings("ignore")  # those of the exporter are not ours
@pytest.mark.parametrize(
    "tables",
    [
        table(rounds=1),
        {"rounds": 1, **DIGITS, "local": {"lr": 0.1}},
        {"rounds": 1, "task": {"dataset": "digits", "model": "resnet18"}, "partition": {"clients": 4}},
    ],
    ids=["toy", "lenet", "resnet18"],
)
def test_an_exported_model_predicts_as_the_run_does(tables, tmp_path):
    from onnx import checker, load
    from onnx.reference import ReferenceEvaluator

    result = shoal.run(tables, tmp_path / "run", report=False)
    export(tmp_path / "run", tmp_path / "model.onnx")
    checker.check_model(load(tmp_path / "model.onnx"), full_check=True)
    evaluator = ReferenceEvaluator(tmp_path / "model.onnx")
    for count in (1, 3, 7):  # the number of samples is free
        x = result.dataset.x_test[:count]
        with torch.no_grad():
            expected = result.model().eval()(x).numpy()
        (found,) = evaluator.run(None, {evaluator.input_names[0]: x.numpy()})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
