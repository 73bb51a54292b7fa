import tomllib

import pytest
from toy import table

import shoal
from shoal import Spec, SpecError, dump_spec, load_spec
from shoal.methods.fedavg import FedAvg
from shoal.methods.fedprox import FedProx
from shoal.overrides import with_method, with_settings
from shoal.solver.sgd import Sgd
from shoal.spec import from_table, to_table
from shoal.terms.proximal import Proximal

SLOTS = {"aggregator": {"name": "mean"}, "server": {"name": "sgd", "lr": 1.0, "momentum": 0.0}}


def test_an_empty_spec_has_the_defaults():
    spec = from_table({})
    assert spec == Spec()
    tables = to_table(spec)
    assert tables["method"] == {
        "name": "fedavg",
        "weights": "samples",
        "terms": [],
        **SLOTS,
    }
    assert tables["partition"] == {"kind": "dirichlet", "clients": 100, "beta": 0.1, "min_size": 10}
    assert tables["task"] == {
        "dataset": "mnist5k",
        "model": "mlp",
        "crop": False,
        "hidden": 200,
        "frozen": [],
    }


def test_a_spec_survives_toml(tmp_path):
    spec = from_table(table({"name": "fedprox", "mu": 0.3}, attack={"name": "sign_flip"}))
    path = tmp_path / "spec.toml"
    path.write_text(dump_spec(spec))
    assert load_spec(path) == spec
    assert tomllib.loads(path.read_text())["method"] == {
        "name": "fedprox",
        "mu": 0.3,
        "weights": "samples",
        **SLOTS,
    }


def test_local_goes_to_the_method():
    spec = from_table({"method": {"name": "fedprox"}, "local": {"lr": 0.5}})
    assert spec.method == FedProx(local=Sgd(lr=0.5))
    assert to_table(spec)["local"]["lr"] == 0.5
    assert "local" not in to_table(spec)["method"]


def test_slots_can_be_filled_in_a_spec():
    spec = from_table({"method": {"name": "fedavg", "terms": [{"name": "proximal", "mu": 0.1}]}})
    assert spec.method == FedAvg(terms=(Proximal(0.1),))
    assert spec.method == FedProx(mu=0.1).method()


def test_objects_are_taken_as_they_are():
    spec = from_table({"method": FedProx(mu=0.2), "rounds": 3})
    assert spec.method == FedProx(mu=0.2)
    with pytest.raises(SpecError, match="set its field local"):
        from_table({"method": FedProx(), "local": {"lr": 0.1}})


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"method": {"name": "fedavgg"}}, r"unknown method fedavgg; did you mean fedavg\?"),
        ({"method": {"name": "fedprox", "muu": 1}}, r"unknown key method.muu; did you mean method.mu\?"),
        ({"method": {"name": "fedavg", "local": {"lr": 1}}}, "unknown key method.local"),
        ({"method": 3}, "method needs a name"),
        ({"methd": {}}, r"unknown key methd; did you mean method\?"),
        ({"task": {"dataset": "mnist6k"}}, r"unknown data set mnist6k; did you mean mnist5k\?"),
        ({"task": {"model": "mpl"}}, r"unknown model mpl; did you mean mlp\?"),
        ({"task": {"hiden": 3}}, r"unknown key task.hiden; did you mean task.hidden\?"),
        ({"task": {"model": "lenet", "hidden": 3}}, "unknown key task.hidden"),
        ({"task": {"hidden": "x"}}, "task.hidden must be a whole number, got 'x'"),
        ({"task": 3}, "task must be a table, got 3"),
        ({"partition": {"kind": "dirichlet", "beta": 0}}, r"\[partition\] beta must be > 0, got 0"),
        ({"partition": {"kind": "dirichlett"}}, r"unknown partition dirichlett; did you mean dirichlet\?"),
        ({"attack": {"fraction": 0.3}}, "attack needs a name"),
        ({"local": {"lr": "fast"}}, "local.lr must be a number, got 'fast'"),
        ({"local": {"lr": -1}}, r"\[local\] lr must be > 0, got -1"),
        ({"local": 3}, "local must be a table, got 3"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"rounds": 1.5}, "rounds must be a whole number, got 1.5"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
        ({"evaluate": {"every": -1}}, r"\[evaluate\] every must be at least 0, got -1"),
        ({"evaluate": {"metrics": ["acuracy"]}}, r"evaluate.metrics\[0\] must be one of accuracy"),
        ({"checkpoint": {"every": -1}}, r"\[checkpoint\] every must be at least 0"),
        ({"engine": {"name": "cloud"}}, "engine.name must be one of local, ray, flower; got 'cloud'"),
        ({"selector": {"name": "uniform", "fraction": 3}}, "for a fixed cohort use count = 3"),
        ({"codec": "float17"}, r"unknown codec float17; did you mean float16\?"),
        ({"attack": {"name": "sign_flip", "fraction": 2}}, r"\[attack\] fraction must be in \[0, 1\]"),
    ],
)
def test_bad_specs_are_refused(tables, message):
    with pytest.raises(SpecError, match=message):
        from_table(tables)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition": {"kind": "iid", "clients": 500}}, r"\[partition\] .*500"),
        ({"partition": {"kind": "natural"}}, r"\[partition\] .*heart_disease"),
        ({"selector": {"name": "uniform", "count": 9}}, "count = 9 is more than the population of 8"),
        ({"engine": {"device": "cuda:7"}}, r"engine.device = .cuda:7. cannot be used: .*; use"),
        ({"engine": {"device": "abacus"}}, "engine.device = 'abacus' cannot be used"),
        (
            {"task": {"dataset": "toy:table", "model": "mlp"}},
            "returned a dict; it must return a shoal.Dataset",
        ),
        ({"task": {"dataset": "toy:blobs", "model": "lenet"}}, "lenet needs images"),
    ],
)
def test_specs_that_do_not_fit_the_data(changes, message):
    with pytest.raises(SpecError, match=message):
        shoal.run(table(**changes))


def test_settings_change_single_fields():
    tables = with_settings(
        {"local": {"lr": 1}}, ["local.lr=0.1", "method.name=fedprox", "a.b = [1, 2]", "c=x y"]
    )
    assert tables == {"local": {"lr": 0.1}, "method": {"name": "fedprox"}, "a": {"b": [1, 2]}, "c": "x y"}
    original = {"local": {"lr": 1}}
    with_settings(original, ["local.lr=2"])
    assert original == {"local": {"lr": 1}}
    for bad in ("local.lr", "=3", "local..lr=1"):
        with pytest.raises(SpecError, match=r"must look like path\.to\.field=value"):
            with_settings({}, [bad])
    with pytest.raises(SpecError, match="seed is a value, not a table"):
        with_settings({"seed": 1}, ["seed.x=1"])


def test_a_parts_fields_can_be_set_without_its_name():
    assert from_table({"partition": {"beta": 0.7}}).partition.beta == 0.7
    assert from_table({"selector": {"count": 3}}).selector.count == 3
    assert from_table(with_settings({"method": "fedprox"}, ["method.mu=3"])).method.mu == 3


def test_a_part_of_another_kind_keeps_the_fields_it_knows():
    tables = {"partition": {"kind": "dirichlet", "clients": 7, "beta": 0.3}}
    changed = with_settings(tables, ["partition.kind=iid"])
    assert changed == {"partition": {"kind": "iid", "clients": 7}}
    assert with_settings(changed, ["partition.kind=iid", "partition.clients=9"])["partition"]["clients"] == 9
    with pytest.raises(SpecError, match="unknown partition iidd"):
        with_settings(tables, ["partition.kind=iidd"])


def test_another_method_keeps_only_its_own_fields():
    tables = {"method": {"name": "fedprox", "mu": 0.5}}
    assert with_method(tables, "fedprox")["method"] == {"name": "fedprox", "mu": 0.5}
    assert with_method(tables, "fedavg")["method"] == {"name": "fedavg"}


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(SpecError, match="does not exist"):
        load_spec(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("rounds = = 3")
    with pytest.raises(SpecError, match="is not valid TOML"):
        load_spec(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(bad)
