"""Every defence against every attack."""

import json
import sys

import pytest
import tomli_w
from rich.console import Console
from toy import table

import shoal
from shoal import cli, terminal
from shoal.attacks import ATTACKS
from shoal.core.errors import SpecError
from shoal.methods import METHODS
from shoal.report.arena import heats
from shoal.report.heatmap_cells import HeatMap, HeatMapCell, colours
from shoal.spec import to_table
from shoal.study import arena
from shoal.study.arena import CLEAN, DEFENCES, ORACLE, QUICK, cells, names, plan

TOY = table(rounds=2, selector="all", evaluate={"every": 1}, attack={"fraction": 0.25})
DEFENDED, ATTACKED = ["fedavg", "trimmed_mean"], ["backdoor", "ipm:epsilon=2.0"]


def command(folder, *more):
    """What the command prints, in this process; the spec is the toy's."""
    (folder / "toy.toml").write_text(tomli_w.dumps(TOY))
    arguments = ["--spec", folder / "toy.toml", "--out", folder / "out", *more]
    given = ("--defences", ",".join(DEFENDED), "--attacks", ",".join(ATTACKED), *arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["shoal", "arena", *map(str, given)])
        patch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code


@pytest.fixture(scope="module")
def fought(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena")
    assert command(folder, "--json", "--picture", folder / "arena.png") == 0
    return folder


def test_the_picture_is_drawn(fought):
    assert (fought / "arena.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_no_kind_is_refused_before_anything_runs(tmp_path, capsys):
    assert command(tmp_path, "--picture", "arena.doc") == 2
    assert "--picture arena.doc must end in one of .png, .svg, .pdf" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_file_has_all_pairs(fought):
    result = json.loads((fought / "out" / "arena.json").read_text())
    assert result["seeds"] == [0]
    assert result["attackers_share"] == 0.25
    pairs = [(cell["defence"], cell["attack"]) for cell in result["cells"]]
    assert pairs == [(d, a) for d in DEFENDED for a in (CLEAN, *ATTACKED)]
    clean, door, ipm = result["cells"][:3]
    assert clean["accuracy"] == clean["clean_accuracy"] == door["clean_accuracy"] == ipm["clean_accuracy"]
    assert ipm["tolerance"] == pytest.approx(ipm["accuracy"] / clean["accuracy"])
    assert ipm["degradation"] == pytest.approx(clean["accuracy"] - ipm["accuracy"])
    assert ipm["robustness_quotient"] == pytest.approx(0.75 * ipm["accuracy"])
    assert (clean["tolerance"], clean["attack_success"], ipm["attack_success"]) == (None, None, None)
    assert 0 <= door["attack_success"] <= 1
    assert ipm["std"] == 0
    assert {"attackers_weight", "detection", "average", "maximum", "spread", "converged"} <= ipm.keys()


def test_a_cell_is_a_plain_run(fought):
    attack = {"name": "ipm", "epsilon": 2.0, "fraction": 0.25}
    result = shoal.run({**TOY, "attack": attack, "seed": 0})
    found = json.loads((fought / "out" / "arena.json").read_text())["cells"][2]
    assert found["accuracy"] == pytest.approx(result.mean_accuracy)  # of all two rounds
    assert found["average"] == pytest.approx(result.mean_accuracy)
    spec = shoal.load_spec(fought / "out" / "runs" / "fedavg-ipm-epsilon=2.0-seed0" / "spec.toml")
    assert to_table(spec)["attack"] == {**attack, "first": 1, "knows": "colluders"}


def test_the_same_command_goes_on_where_it_was(fought, capsys):
    before = json.loads((fought / "out" / "arena.json").read_text())["cells"]
    runs = fought / "out" / "runs"
    for path in (runs / "fedavg-backdoor-seed0").iterdir():
        if path.is_file():
            path.unlink()
    (runs / "fedavg-backdoor-seed0" / "checkpoint").rename(fought / "gone")
    (runs / "fedavg-backdoor-seed0").rmdir()
    (runs / "trimmed_mean-clean-seed0" / "answer.json").unlink()
    old = {path: path.stat().st_mtime_ns for path in runs.glob("*/answer.json")}
    assert len(old) == 4
    assert command(fought, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [drop(cell) for cell in printed["cells"]] == [drop(cell) for cell in before]
    assert all(path.stat().st_mtime_ns == when for path, when in old.items())
    assert len(list(runs.glob("*/answer.json"))) == 6


def drop(cell):
    """Without times, which no two runs share."""
    return {name: value for name, value in cell.items() if name != "seconds_to_max"}


def test_what_a_person_sees(fought, capsys):
    assert command(fought) == 0
    out = capsys.readouterr().out
    assert "Arena on toy:blobs, 25 % attackers" in out
    assert "Accuracy (%)" in out
    assert "Success of targeted attacks (%)" in out
    assert "trimmed_mean" in out
    assert "report.html" in out
    page = (fought / "out" / "report.html").read_text()
    for text in (
        "Tolerance (%)",
        "mean under attack",
        "Detection",
        "dirichlet (clients = 8",
        "background: #",
    ):
        assert text in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_another_spec_is_refused(fought, capsys):
    assert command(fought, "--set", "local.lr=0.2") == 2
    assert "holds a run of another spec" in capsys.readouterr().err


def test_a_folder_of_other_things_is_refused(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    assert command(tmp_path) == 2
    assert "holds something else than an arena" in capsys.readouterr().err


def test_defences_are_told_the_truth():
    matches = plan(["krum", "krum:f=1", "trimmed_mean", "fedavg"], ["ipm"], QUICK, [], [0])
    fields = {match.defence: to_table(match.job.spec)["method"] for match in matches}
    assert fields["krum"]["f"] == 0.3
    assert fields["krum:f=1"]["f"] == 1
    assert fields["trimmed_mean"]["trim"] == 0.3
    assert all("attack" not in to_table(match.job.spec) for match in matches if match.attack == CLEAN)
    listed = plan(["krum"], ["ipm"], {"attack": {"attackers": [3, 5]}}, [], [0])[1].job.spec
    assert to_table(listed)["method"]["f"] == 2
    assert listed.attack.attackers == (3, 5)
    usual = plan(["krum"], ["ipm"], {}, [], [0])[1].job.spec
    assert to_table(usual)["method"]["f"] == 0.1
    fewer = plan(["krum"], ["ipm"], QUICK, ["attack.fraction=0.1", "attack.first=3"], [0])[1].job.spec
    assert (fewer.attack.fraction, fewer.attack.first) == (0.1, 3)


def told(attack, *settings):
    """The f of Krum, and the attack, in the quick arena."""
    spec = plan(["krum"], [attack], QUICK, settings, [0])[1].job.spec
    return to_table(spec)["method"]["f"], spec.attack


def test_an_attack_may_have_attackers_of_its_own():
    share, attack = told("ipm:fraction=0.1")
    assert (share, attack.fraction) == (0.1, 0.1)
    share, attack = told("ipm:attackers=[1,2,7]")
    assert (share, attack.attackers, attack.fraction) == (3 / 20, (1, 2, 7), None)
    share, attack = told("ipm", "attack.attackers=[4]")
    assert (share, attack.attackers) == (1 / 20, (4,))


def test_a_share_is_told_as_attackers_are_counted():
    assert told("ipm", "attack.fraction=0.28")[0] == 6 / 20


def test_more_attackers_than_a_rule_can_bear_are_refused_before_the_first_match():
    with pytest.raises(SpecError, match=r"krum with f = 0\.45 expects 9 attackers among 20 clients a round"):
        plan(["fedavg", "krum"], ["ipm"], QUICK, ["attack.fraction=0.45"], [0])


def test_the_quick_arena():
    assert {name.partition(":")[0] for name in DEFENCES} <= {*METHODS, ORACLE}
    attacks = [name for name in ATTACKS if name != "garbage"]
    matches = plan(DEFENCES, attacks, QUICK, [], [0, 1])
    assert len(matches) == len(DEFENCES) * (1 + len(attacks)) * 2
    oracle, others = ({m.job.name for m in matches if (m.defence == ORACLE) == yes} for yes in (True, False))
    assert len(others) == len(matches) * (len(DEFENCES) - 1) // len(DEFENCES)
    assert oracle - others == {f"fedavg-weights=uniform-garbage-seed{seed}" for seed in (0, 1)}
    spec = to_table(matches[-1].job.spec)
    assert (spec["rounds"], spec["partition"]["clients"], spec["partition"]["beta"]) == (60, 20, 0.5)
    assert spec["local"]["epochs"] == 1
    assert (spec["task"]["dataset"], spec["task"]["model"]) == ("mnist5k", "mlp")
    assert spec["attack"]["fraction"] == 0.3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((["fedavg", "fedavg"], ["ipm"]), "every defence must be named once, got fedavg,fedavg"),
        ((["fedavg"], []), "every attack must be named once, got none"),
        ((["fedavgg"], ["ipm"]), "unknown method fedavgg; did you mean fedavg"),
        ((["fedavg"], ["imp"]), "unknown attack imp; did you mean ipm"),
        ((["fedavg"], ["ipm:eps=1"]), "unknown key attack.eps"),
    ],
)
def test_bad_names(given, message):
    with pytest.raises(SpecError, match=message):
        plan(*given, QUICK, [], [0])


def test_a_regression_has_no_accuracy():
    line = {"task": {"dataset": "toy:line", "model": "linear"}, "partition": {"kind": "iid", "clients": 8}}
    with pytest.raises(SpecError, match="the arena compares accuracies"):
        arena.measure(shoal.run(table(rounds=1, **line)))


def test_lists_of_names():
    assert names("krum:f=2,m=3, fedavg,ipm:epsilon=100") == ["krum:f=2,m=3", "fedavg", "ipm:epsilon=100"]
    assert names("ipm:attackers=[1,2],epsilon=3, alie") == ["ipm:attackers=[1,2],epsilon=3", "alie"]
    assert names("") == []


def answer(final, **more):
    nothing = ("attack_success", "attackers_weight", "attackers_step_share", "detection")
    fields = dict.fromkeys((*arena.MEASURES, *nothing))
    read = {"15": final, "30": final, "60": None}
    return {**fields, "settled": final, "read_at": read, "attackers_share": 0.5, **more}


def test_an_oracle_meets_nobody():
    matches = plan([ORACLE, "krum"], ["ipm:fraction=0.1", "alie"], QUICK, [], [0])
    made = {(match.defence, match.attack): to_table(match.job.spec) for match in matches}
    assert "attack" not in made[ORACLE, CLEAN]
    for attack, share in (("ipm:fraction=0.1", 0.1), ("alie", 0.3)):
        table = made[ORACLE, attack]
        assert (table["attack"]["name"], table["attack"]["fraction"]) == ("garbage", share)
        assert (table["method"]["name"], table["method"]["weights"]) == ("fedavg", "uniform")


def test_the_oracle_is_the_mean_over_honest_clients():
    attack, method = {"name": "garbage", "attackers": [1, 4]}, {"name": "fedavg", "weights": "uniform"}
    result = shoal.run({**TOY, "attack": attack, "rounds": 1, "method": method})
    assert {entry["client"] for entry in result.records[0]["rejected"]} == {1, 4}


def test_a_defence_is_judged_against_the_oracle_of_its_seed():
    matches = plan([ORACLE, "fedavg", "krum"], ["ipm"], QUICK, [], [0, 1])
    answers = {
        "fedavg-weights=uniform-clean-seed0": answer(0.9),
        "fedavg-weights=uniform-clean-seed1": answer(0.8),
        "fedavg-weights=uniform-garbage-seed0": answer(0.8),
        "fedavg-weights=uniform-garbage-seed1": answer(0.5),
        "fedavg-clean-seed0": answer(0.9),
        "fedavg-clean-seed1": answer(0.8),
        "fedavg-ipm-seed0": answer(0.4),
        "fedavg-ipm-seed1": answer(0.5),
        "krum-clean-seed0": answer(0.17),
        "krum-clean-seed1": answer(0.17),
        "krum-ipm-seed0": answer(0.2),
        "krum-ipm-seed1": answer(0.2),
    }
    found = {(cell["defence"], cell["attack"]): cell for cell in cells(matches, answers)}
    assert found["fedavg", "ipm"]["of_oracle"] == pytest.approx((0.5 + 1.0) / 2)
    assert found["fedavg", "ipm"]["worst_of_oracle"] == pytest.approx(0.5)
    assert found["fedavg", "ipm"]["worst"] == 0.4
    assert found["fedavg", "ipm"]["interval"] == pytest.approx(12.706 * 0.05, rel=1e-3)
    assert found["fedavg", "ipm"]["read_at"]["30"] == pytest.approx(0.45)
    assert found["fedavg", "ipm"]["read_at"]["60"] is None
    assert [found[name, "ipm"]["poor"] for name in (ORACLE, "fedavg", "krum")] == [False, False, True]
    shown = heats(list(found.values()))[0].rows
    assert all(shade.depth is None for shade in shown["krum"])
    assert all(shade.depth is not None for shade in shown["fedavg"])


def test_an_accuracy_is_the_mean_of_ten_rounds():
    records = [{"accuracy": i / 100} for i in range(1, 31)]
    assert arena.mean_of_last_rounds(records, 30) == pytest.approx(0.255)
    assert arena.mean_of_last_rounds(records, 15) == pytest.approx(0.105)
    assert arena.mean_of_last_rounds(records, 5) == pytest.approx(0.03)
    assert arena.mean_of_last_rounds(records, 60) is None


def test_means_over_seeds():
    matches = plan(["fedavg"], ["ipm"], QUICK, [], [0, 1])
    answers = {
        "fedavg-clean-seed0": answer(0.9),
        "fedavg-clean-seed1": answer(0.7),
        "fedavg-ipm-seed0": answer(0.5, detection=1.0, attackers_weight=0.1),
        "fedavg-ipm-seed1": answer(0.3, detection=0.5, attackers_weight=0.2),
    }
    clean, attacked = cells(matches, answers)
    assert clean["accuracy"] == pytest.approx(0.8)
    assert attacked["accuracy"] == pytest.approx(0.4)
    assert attacked["std"] == pytest.approx(0.1 * 2**0.5)
    assert attacked["tolerance"] == pytest.approx(0.5)
    assert attacked["robustness_quotient"] == pytest.approx(0.2)
    assert (attacked["detection"], attacked["attackers_weight"]) == (0.75, pytest.approx(0.15))


def test_heat_maps():
    """Deep is good: the highest accuracy, and the least success."""
    grid = [
        {"defence": d, "attack": a, "accuracy": acc, "attack_success": won, "degradation": lost, "std": 0.0}
        | {"tolerance": None, "attackers_weight": None, "detection": None, "attackers_step_share": None}
        | {"of_oracle": None, "worst_of_oracle": None, "poor": False}
        for d, a, acc, won, lost in (
            ("one", CLEAN, 0.9, None, None),
            ("one", "ipm", 0.5, None, 0.4),
            ("one", "alie", 0.6, None, 0.3),
            ("one", "backdoor", 0.9, 0.25, 0.0),
        )
    ]
    accuracy, success = heats(grid)
    assert list(accuracy.columns) == [CLEAN, "ipm", "alie", "backdoor", "mean under attack"]
    assert [shade.text for shade in accuracy.rows["one"]] == ["90.0", "50.0", "60.0", "90.0", "55.0"]
    depths = [shade.depth for shade in accuracy.rows["one"]]
    assert depths == pytest.approx([1, 0, 0.25, 1, 0.125])
    assert success.rows["one"] == [HeatMapCell("25.0", 0.75)]


def test_a_small_difference_has_a_small_difference_in_colour():
    nothing = dict.fromkeys(("attack_success", "degradation", "tolerance", "detection", "of_oracle"))
    nothing |= dict.fromkeys(("worst_of_oracle", "attackers_step_share")) | {"poor": False, "std": 0.0}
    grid = [
        {"defence": "one", "attack": attack, "accuracy": accuracy, "attackers_weight": weight, **nothing}
        for attack, accuracy, weight in ((CLEAN, 0.9, 0.0), ("ipm", 0.89, 0.001))
    ]
    accuracy, weight = heats(grid)
    assert [shade.depth for shade in accuracy.rows["one"]] == pytest.approx([1, 0.9])
    assert [shade.depth for shade in weight.rows["one"]] == pytest.approx([1, 0.99])


def test_colours():
    assert colours(0) == ("#f0f9d7", "#1b1f24")
    assert colours(1) == colours(2) == ("#081d58", "#ffffff")
    assert colours(1 / 3)[0] == "#7fcdbb"


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_wide_heat_map_goes_on_below(width, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "stdout", lambda: Console(width=width, highlight=False))
    columns = [f"attack_{i}" for i in range(10)]
    terminal.show_heat(
        HeatMap("Title", "", columns, {"fedavg": [HeatMapCell(f"{i}.5", i / 9) for i in range(10)]}), "D"
    )
    out = capsys.readouterr().out
    assert all(f"{i}.5" in out for i in range(10))
    assert out.count("fedavg") == {30: 5, 60: 2, 200: 1}[width]
    assert all(len(line) <= width for line in out.splitlines())
