"""One run on Flower and one on Ray, as `shoal run --engine` starts them."""

import pytest
from federation.environment import processes_of, ran, there
from federation.test_sites import table

import shoal
from shoal.spec import dump_spec, from_table


@pytest.fixture
def spec(tmp_path):
    """Two clients with memories, and no exchange but the updates."""
    small = table("scaffold", evaluate={"every": 0, "clients": 0})
    chosen = from_table({**small, "partition": {"clients": 2, "beta": 1.0}})
    path = tmp_path / "spec.toml"
    path.write_text(dump_spec(chosen))
    return chosen, path


@there
@pytest.mark.parametrize("engine", [pytest.param("flower", marks=pytest.mark.federation), "ray"])
def test_the_same_bits_as_on_one_machine(engine, spec, tmp_path):
    chosen, path = spec
    local = shoal.run(chosen)
    options = ["--set", "engine.workers=2"] if engine == "ray" else []
    found = ran(tmp_path, path, "--engine", engine, "--out", tmp_path / "out", *options)
    assert found["weights_sha256"] == local.weights_sha256
    assert (found["bytes_up"], found["bytes_down"]) == (local.bytes_up, local.bytes_down)
    assert found["final_accuracy"] == local.final_accuracy
    assert found["rejected"] == 0
    assert processes_of(tmp_path) == []
