from pathlib import Path

import pytest

from shoal.bench import methods, modes
from shoal.cli.bench import bench
from shoal.core.errors import SpecError


def test_every_method_that_trains_is_timed_beside_fedavg():
    names = methods.training_methods()
    assert names[0] == "fedavg"
    assert {"scaffold", "dsvd", "fedgen"} <= set(names)
    assert not {"fsi", "pso"} & set(names)
    seen = []
    (row,) = methods.measure(["linear"], ["scaffold"], turns=1, watcher=lambda *what: seen.append(what))
    assert seen == [("linear", "scaffold")]
    assert row["seconds_per_round"] > 0
    assert row["ratio_to_fedavg"] > 0
    assert (row["model"], row["method"], row["mode"]) == ("linear", "scaffold", "block")


def test_methods_that_do_not_take_ten_clients_are_left_out():
    rows = methods.measure(["linear"], ["situa_cq", "bulyan", "median"], turns=1)
    assert [row["method"] for row in rows] == ["median"]


def test_every_mode_is_timed_and_a_model_that_digits_do_not_fit_is_left_out(monkeypatch):
    monkeypatch.setattr(modes, "MOST", 3)
    (row,) = modes.measure(["linear", "vgg16"], ["fedavg"])
    assert row["chosen"] == "block"
    assert {"auto", "serial", "block", "workers", "plain", "behind_best"} <= row.keys()


def test_rounds_that_are_too_long_are_left_out(monkeypatch):
    monkeypatch.setattr(modes, "LONGEST", 0.0)
    assert list(modes.measure(["linear"], ["fedavg"])) == []


def test_the_tables_stand_alone():
    for names, picture in ((["methods", "mlp"], None), (["modes"], Path("ratios.png"))):
        with pytest.raises(SpecError, match=r"takes no other names and no --picture"):
            bench(names, picture=picture)


@pytest.mark.parametrize("json", [False, True])
def test_who_interrupts_a_table_gets_what_was_measured_until_then(monkeypatch, capsys, json):
    def interrupted(watcher):
        yield {"model": "mlp", "method": "fedavg", "mode": "block", "seconds_per_round": 0.005}
        raise KeyboardInterrupt

    monkeypatch.setattr(methods, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench(["methods"], json=json)
    assert ('"seconds_per_round":0.005' if json else "0.0050") in capsys.readouterr().out.replace(" ", "")
