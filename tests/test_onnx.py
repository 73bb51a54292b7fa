"""Models as ONNX; runs where `pip install 'shoal[onnx]' onnxruntime` was done."""

import numpy as np
import pytest
import torch
from toy import table

import shoal
from shoal.cli.export import export

pytest.importorskip("onnx", reason="needs pip install 'shoal[onnx]'")
pytest.importorskip("onnxscript", reason="needs pip install 'shoal[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs pip install onnxruntime")

QUICK = {"rounds": 1, "partition": {"clients": 40}, "selector": {"count": 1}, "evaluate": {"clients": 1}}


@pytest.mark.filterwarnings("ignore")  # those of the exporter are not ours
@pytest.mark.parametrize(
    "tables",
    [
        table(rounds=1),
        {**QUICK, "task": {"dataset": "mnist5k", "model": "lenet"}},
        {**QUICK, "task": {"dataset": "digits", "model": "resnet18"}},
    ],
    ids=["toy", "lenet", "resnet18"],
)
def test_an_exported_model_predicts_as_the_run_does(tables, tmp_path):
    from onnx import checker, load

    result = shoal.run(tables, tmp_path / "run", report=False)
    export(tmp_path / "run", tmp_path / "out" / "model.onnx")
    (file,) = (tmp_path / "out").iterdir()  # one file holds everything
    checker.check_model(load(file), full_check=True)
    session = onnxruntime.InferenceSession(file)
    for count in (1, 3, 7):  # the number of samples is free
        x = result.dataset.x_test[:count]
        with torch.no_grad():
            expected = result.model().eval()(x).numpy()
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
