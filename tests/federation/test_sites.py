"""Sites in memory: the same bits as on one machine, and what happens if a site cannot do its part."""

import json

import pytest
from federation.sites_in_memory import federated

import shoal
from shoal.spec import from_table

METHODS = {
    "fedavg": {},
    "scaffold": {},
    "fedqp": {},
    "fsi": {"epochs": 20},
    "genefl": {"clusters": 2},
    "dsvd": {},
    "situa_cq": {},
}


def table(name="fedavg", **more):
    task = {"dataset": "digits", "model": "logistic_ova" if name == "fsi" else "mlp", "hidden": 16}
    if name == "fsi":
        del task["hidden"]
    local = {} if name == "fsi" else {"local": {"batch": 50, "epochs": 1}}
    return {
        "rounds": 2,
        "task": task,
        "partition": {"kind": "dirichlet", "clients": 3, "beta": 1.0},
        "method": {"name": name, **METHODS.get(name, {})},
        "evaluate": {"every": 0},
        **local,
        **more,
    }


def summary(folder):
    return json.loads((folder / "run" / "summary.json").read_text())


@pytest.mark.parametrize("name", METHODS)
def test_sites_give_the_bits_and_bytes_of_one_machine(name, tmp_path):
    spec = from_table(table(name))
    local = shoal.run(spec)
    federated(spec, tmp_path, ["spec"] * 3)
    found = summary(tmp_path)
    assert found["weights_sha256"] == local.weights_sha256
    assert (found["bytes_up"], found["bytes_down"]) == (local.bytes_up, local.bytes_down)
    assert found["final_accuracy"] == local.final_accuracy
    assert found["rejected"] == 0
