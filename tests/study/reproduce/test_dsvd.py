"""The experiments of DSVD-FL, with runs that are made up."""

import itertools

import pytest

import shoal
from shoal.spec import to_table
from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.dsvd import (
    DSVD,
    FEDAVG,
    FINAL,
    FLIPPED,
    KEPT,
    LOSS,
    NONE,
    PAPERS,
    POISONED,
    QFEDAVG,
    QUOTIENT,
    SPEED,
    robustness,
)

PRINTED = "DSVD-FL, as printed"
ATTACKS = (NONE, FLIPPED, POISONED)
COLUMNS = [f"{split}, {attack}" for split in ("IID", "non-IID") for attack in ATTACKS]


class MadeUp:
    """Runs no job at all: each has the accuracies that a function gives to its spec, as tables."""

    def __init__(self, accuracies):
        self.accuracies, self.specs = accuracies, []

    def run(self, jobs):
        self.specs += [to_table(job.spec) for job in jobs]
        assert len({job.name for job in jobs}) == len(jobs)
        assert not any(set(job.name) & set(" ,[]/") for job in jobs)
        return {job.name: self.answer(to_table(job.spec)) for job in jobs}

    def answer(self, table):
        shares = self.accuracies(table)
        attacked = "attack" in table
        return {
            "average": sum(shares) / len(shares),
            "final": shares[-1],
            "maximum": max(shares),
            "spread": 0.01,
            "rounds_to_max": 3,
            "seconds_to_max": 6.0,
            "convergence_round": 2,
            "converged": shares[-1],
            "attackers_share": 0.1 if attacked else 0.0,
            "attack_success": None,
            "attackers_weight": 0.02 if attacked and table["method"]["name"] == "dsvd" else None,
            "detection": None,
            "seconds_a_round": 2.0,
            "accuracies": [100 * share for share in shares],
        }


def by_attack(table):
    """0.8 without an attack, 0.6 with flipped labels, 0.4 with poisoned models; each seed 0.1 more."""
    last = {None: 0.8, "label_flip": 0.6, "sign_flip": 0.4}[table.get("attack", {}).get("name")]
    return [0.1, 0.2, last + 0.1 * table["seed"]]


def numbers(name):
    return EXPERIMENTS[name].scales["quick"].file.paper_numbers()


def method(name, row, column):
    """The method of a run, with every default."""
    (job,) = EXPERIMENTS[name].scales["quick"].grid.jobs((row, column))[:1]
    return to_table(job.spec)["method"]


# -- the paper's numbers


def test_the_papers_numbers_are_where_they_belong():
    table2, table3 = numbers("dsvd-table2"), numbers("dsvd-table3")
    assert table2["IID"].find(DSVD, FINAL) == 0.72
    assert table2["IID"].find(DSVD, LOSS) == 0.87
    assert table2["IID"].find(DSVD, KEPT) == 0.93
    assert table2["non-IID"].find(QFEDAVG, SPEED) == 18
    assert table2["non-IID"].find("FedProx", QUOTIENT) == 0.95
    assert table2["IID"].find(PRINTED, FINAL) is None
    assert all(len(found.by_labels) == 5 * len(PAPERS) for found in table2.values())
    assert table3["final"].find(DSVD, "n = 100") == 85.23
    assert table3["seconds_a_round"].find("FedCPA", "n = 10") == 86.11
    assert table3["seconds_to_max"].find(FEDAVG, "n = 10") == 19.33
    assert table3["average"].find("Multi-Krum", "n = 10") is None
    assert all(len(found.by_labels) == 4 * len(PAPERS) for found in table3.values())


def test_what_the_notes_say_of_the_papers_numbers():
    table2, table3 = numbers("dsvd-table2"), numbers("dsvd-table3")
    sums = [found.find(row, FINAL) + found.find(row, LOSS) for found in table2.values() for row in PAPERS]
    assert sum(value > 1 for value in sums) == len(sums) == 10
    to_max, a_round = table3["seconds_to_max"].by_labels, table3["seconds_a_round"].by_labels
    assert sum(to_max[cell] <= a_round[cell] for cell in to_max) == 13
    notes = [EXPERIMENTS[name].scales["quick"].file.notes[0] for name in ("dsvd-table2", "dsvd-table3")]
    assert "in 10 of its 10" in notes[0]
    assert "In 13 of 20 cells" in notes[1]


# -- settings


def test_a_setting_is_the_papers_as_far_as_it_is_told():
    grid = EXPERIMENTS["dsvd-table2"].scales["paper"].grid
    table = to_table(grid.jobs((DSVD, f"non-IID, {FLIPPED}"))[2].spec)
    assert table["task"]["dataset"] == "emnist"
    assert table["task"]["split"] == "balanced"
    assert table["attack"]["fraction"] == 0.1
    assert table["attack"]["name"] == "label_flip"
    assert table["selector"] == {"name": "all"}
    assert table["seed"] == 2
    clean = to_table(grid.jobs((FEDAVG, f"IID, {NONE}"))[0].spec)
    assert clean["partition"]["kind"] == "iid"
    assert "attack" not in clean


def test_as_printed_is_as_printed():
    for found in (
        method("dsvd-table2", PRINTED, COLUMNS[0]),
        method("dsvd-ablation", "[0.8, 0.1, 0.1], as printed", COLUMNS[0]),
    ):
        assert (found["literal"], found["form"], found["temperature"]) == (True, "literal", 1.0)
        assert found["aggregate"] == "full"


@pytest.mark.parametrize(("row", "field"), [("Multi-Krum", "f"), ("Trimmed mean", "trim")])
def test_who_needs_the_number_of_attackers_knows_it(row, field):
    assert all(method("dsvd-table2", row, column)[field] == 0.1 for column in COLUMNS)


def test_the_alphas_are_those_of_the_label():
    for label, line in EXPERIMENTS["dsvd-ablation"].scales["paper"].grid.rows.items():
        alphas = [float(alpha) for alpha in label[1 : label.index("]")].split(", ")]
        assert [line.spec["method"][f"alpha{i}"] for i in (1, 2, 3)] == alphas


def test_what_is_measured_of_a_run(small):
    experiment = small("dsvd-figure1", {"rounds": 2})
    result = shoal.run(experiment.grid.jobs((DSVD, f"non-IID, {POISONED}"))[0].spec)
    answer = robustness(result)
    assert answer["accuracies"] == [100 * record["accuracy"] for record in result.records]
    assert answer["final"] == result.final_accuracy
    assert answer["seconds_a_round"] == pytest.approx(sum(r["seconds"] for r in result.records) / 2)
    assert answer["attackers_share"] == 0.1
    assert 0 <= answer["attackers_weight"] < 0.1


# -- tables


def test_table2_is_about_the_same_seed_without_an_attack(small):
    findings = small("dsvd-table2", {"rounds": 3}, seeds=2)(MadeUp(by_attack).run)
    iid, other, speed, finals, weights = findings.tables
    assert iid.title == "Under attack, IID"
    assert (
        iid.rows
        == other.rows
        == [*PAPERS, PRINTED, "Multi-Krum", "Trimmed mean", "Geometric median", "FLTrust"]
    )
    clean, attacked = (0.8, 0.9), (0.5, 0.6)  # by seed, the latter the mean over both attacks
    expected = {
        FINAL: attacked,
        LOSS: (clean[0] - attacked[0], clean[1] - attacked[1]),
        QUOTIENT: (0.9 * attacked[0], 0.9 * attacked[1]),
        KEPT: (attacked[0] / clean[0], attacked[1] / clean[1]),
    }
    for metric, (first, second) in expected.items():
        found = iid.find(DSVD, metric)
        assert found.ours == pytest.approx((first + second) / 2)
        assert found.std == pytest.approx(abs(first - second) / 2**0.5)
        assert found.paper == numbers("dsvd-table2")["IID"].find(DSVD, metric)
    assert speed.find(FEDAVG, "non-IID")[2:4] == (19, 2.0)
    assert finals.find(FEDAVG, f"IID, {POISONED}").ours == pytest.approx(45)
    assert finals.columns == COLUMNS
    assert weights.rows == [DSVD, PRINTED]
    assert weights.columns == [column for column in COLUMNS if NONE not in column]
    assert weights.find(DSVD, f"IID, {FLIPPED}").ours == 2


def test_table2_says_who_is_best(small):
    def accuracies(table):
        return [0.1, 0.9 if table["method"]["name"] == "fedcpa" else 0.5]

    findings = small("dsvd-table2", {"rounds": 2}, seeds=1)(MadeUp(accuracies).run)
    assert any("FedCPA (IID) and FedCPA (non-IID) have the highest" in note for note in findings.notes)


def test_table3_has_the_clients_and_the_units(small):
    runs = MadeUp(by_attack)
    findings = small("dsvd-table3", {"rounds": 3}, seeds=1)(runs.run)
    assert any("FedAvg (n = 10), FedAvg (n = 20)" in note for note in findings.notes)  # the first of equals
    assert len(findings.tables) == 7
    found = {table.title: table.find(DSVD, "n = 100") for table in findings.tables}
    assert found["Final accuracy (%)"] == (DSVD, "n = 100", 85.23, pytest.approx(80), None)
    assert found["Seconds a round"][2:4] == (29.35, 2.0)
    assert found["Seconds to the largest accuracy"].ours == 6
    assert [spec["partition"]["clients"] for spec in runs.specs] == [
        n for n in (10, 20, 50, 100) for _ in PAPERS
    ]
    assert not any("attack" in spec for spec in runs.specs)
    assert findings.notes[0] == "The paper uses fashion_mnist with a CNN; here it is mnist5k with mlp."


# -- curves


def test_figure1_draws_every_attack(small):
    findings = small("dsvd-figure1", {"rounds": 3}, seeds=2)(MadeUp(by_attack).run)
    attacked = [column for column in COLUMNS if NONE not in column]
    assert [picture.title for picture in findings.pictures] == attacked
    assert [picture.name for picture in findings.pictures] == [f"figure1-{i}" for i in range(1, 5)]
    lines = findings.pictures[1].figure.axes[0].get_lines()
    assert list(lines[0].get_xdata()) == [1, 2, 3]
    assert list(lines[0].get_ydata()) == pytest.approx([10, 20, 45])
    assert findings.tables[0].rows == [*PAPERS, PRINTED]
    assert any("0 of 4 (IID, label flipping)" in note for note in findings.notes)  # all are alike


def test_ablation_goes_through_the_alphas(small):
    def accuracies(table):
        """As printed, directions are best and decide early."""
        method = table["method"]
        good = 0.1 * method["alpha1"] if method["literal"] else 0.0
        return [0.3, 0.5 + good, 0.7 + good] if method["alpha3"] < 1 else [0.3, 0.9, 0.1]

    runs = MadeUp(accuracies)
    findings = small("dsvd-ablation", {"rounds": 3})(runs.run)
    printed, adaptive, weight, _, first = findings.tables
    assert printed.title == "Test accuracy (%) after the last round, as printed"
    assert printed.find("[0.8, 0.1, 0.1]", f"IID, {NONE}").ours == pytest.approx(78)
    assert adaptive.find("[0.8, 0.1, 0.1]", f"IID, {NONE}").ours == pytest.approx(70)
    assert printed.columns == COLUMNS
    assert len(weight.columns) == 4
    assert first.find("[0.5, 0.2, 0.3]", "round 2")[2:4] == (87.69, pytest.approx(55))
    assert first.find("[0.8, 0.1, 0.1]", "round 1").paper == 0
    assert first.find("[0.8, 100, 10000]", "round 1").paper is None
    assert "[0.8, 0.1, 0.1] by 7.0 (IID, no attack)" in findings.notes[1]
    assert "1.00 (non-IID, model poisoning, 4 runs)" in findings.notes[2]  # the extreme choice left out
    assert len({tuple(spec["method"][f"alpha{i}"] for i in (1, 2, 3)) for spec in runs.specs}) == 5
    assert [picture.name for picture in findings.pictures] == [f"figure2-{i}" for i in range(1, 7)]


# -- all of them


NAMES = [name for name in EXPERIMENTS if name.startswith("dsvd-") and name != "dsvd-theorem1"]


@pytest.mark.parametrize(("name", "scale"), [*itertools.product(NAMES, ("quick", "machine", "paper"))])
def test_every_scale_is_made_of_sound_runs(name, scale):
    runs = MadeUp(lambda table: [0.5] * table["rounds"])
    findings = EXPERIMENTS[name].scales[scale](runs.run)
    assert findings.tables
    assert findings.notes
    assert findings.facts["Rounds"] == str(runs.specs[0]["rounds"])


def test_all_are_in_the_catalogue():
    assert NAMES == ["dsvd-table2", "dsvd-table3", "dsvd-figure1", "dsvd-ablation"]
