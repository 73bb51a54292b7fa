"""The experiments of DSVD-FL, on a stage where runs are made up."""

import itertools

import pytest

import shoal
from shoal.spec import to_table
from shoal.study.arena import CLEAN
from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.dsvd import (
    ATTACKS,
    CONTENDERS,
    DSVD,
    FEDAVG,
    FLIPPED,
    FULL,
    NONE,
    PAPERS,
    POISONED,
    PRINTED,
    QFEDAVG,
    QUICK,
    SHOWN,
    bouts,
    course_of,
    skews,
)
from shoal.study.reproduce.dsvd_curves import FEW, ablation, figure1
from shoal.study.reproduce.dsvd_robustness import (
    FINAL,
    KEPT,
    LOSS,
    PAPER_TABLE2,
    QUOTIENT,
    SPEED,
    table2,
    theirs2,
)
from shoal.study.reproduce.dsvd_table3 import CLIENTS, PAPER_TABLE3, table3, theirs3

SMALL = QUICK._replace(rounds=3)


class Stage:
    """Plays no job at all: each has the accuracies that `tell` gives to its spec, as tables."""

    def __init__(self, tell):
        self.tell, self.specs = tell, []

    def play(self, jobs):
        self.specs += [to_table(job.spec) for job in jobs]
        assert len({job.name for job in jobs}) == len(jobs)
        return {job.name: self.answer(to_table(job.spec)) for job in jobs}

    def answer(self, table):
        shares = self.tell(table)
        hit = "attack" in table
        return {
            "average": sum(shares) / len(shares),
            "final": shares[-1],
            "maximum": max(shares),
            "spread": 0.01,
            "rounds_to_max": 3,
            "seconds_to_max": 6.0,
            "convergence_round": 2,
            "converged": shares[-1],
            "attackers_share": 0.1 if hit else 0.0,
            "attack_success": None,
            "attackers_weight": 0.02 if hit and table["method"]["name"] == "dsvd" else None,
            "detection": None,
            "seconds_a_round": 2.0,
            "accuracies": [100 * share for share in shares],
        }


def by_attack(table):
    """0.8 without an attack, 0.6 with flipped labels, 0.4 with poisoned models; each seed 0.1 more."""
    last = {None: 0.8, "label_flip": 0.6, "sign_flip": 0.4}[table.get("attack", {}).get("name")]
    return [0.1, 0.2, last + 0.1 * table["seed"]]


# -- the paper's numbers


def test_the_papers_numbers_are_where_they_belong():
    assert theirs2("IID", FINAL, DSVD) == 0.72
    assert theirs2("IID", LOSS, DSVD) == 0.87
    assert theirs2("IID", KEPT, DSVD) == 0.93
    assert theirs2("non-IID", SPEED, QFEDAVG) == 18
    assert theirs2("non-IID", QUOTIENT, "FedProx") == 0.95
    assert theirs2("IID", FINAL, PRINTED) is None
    assert all(len(numbers) == len(PAPERS) for numbers in PAPER_TABLE2.values())
    assert theirs3("Final accuracy (%)", DSVD, 100) == 85.23
    assert theirs3("Seconds a round", "FedCPA", 10) == 86.11
    assert theirs3("Seconds to the largest accuracy", FEDAVG, 10) == 19.33
    assert theirs3("Average accuracy (%)", "Multi-Krum", 10) is None
    for metric in PAPER_TABLE3.values():
        assert [len(row) for row in metric.paper] == [len(CLIENTS)] * len(PAPERS)


# -- settings


def test_a_setting_is_the_papers_as_far_as_it_is_told():
    table = to_table(FULL.spec(CONTENDERS[DSVD], ATTACKS[FLIPPED], 3))
    assert table["task"]["dataset"] == "emnist"
    assert table["task"]["split"] == "balanced"
    assert table["attack"]["fraction"] == 0.1
    assert table["attack"]["name"] == "label_flip"
    assert table["selector"] == {"name": "all"}
    assert table["seed"] == 3
    alike = to_table(FULL._replace(beta=None).spec("fedavg", CLEAN, 0))
    assert alike["partition"]["kind"] == "iid"
    assert "attack" not in alike


def test_as_printed_is_as_printed():
    method = to_table(QUICK.spec(CONTENDERS[PRINTED], CLEAN, 0))["method"]
    assert (method["literal"], method["form"], method["temperature"]) == (True, "literal", 1.0)
    assert method["aggregate"] == "full"


@pytest.mark.parametrize(("label", "field"), [("Multi-Krum", "f"), ("Trimmed mean", "trim")])
def test_who_needs_the_number_of_attackers_knows_it(label, field):
    for attack in ATTACKS.values():
        assert to_table(QUICK.spec(CONTENDERS[label], attack, 0))["method"][field] == 0.1


def test_every_run_is_another():
    wanted = bouts(CONTENDERS, ATTACKS, [at._replace(clients=n) for at in skews(QUICK) for n in CLIENTS])
    names = {bout.job(seed).name for bout in wanted for seed in range(2)}
    assert len(names) == 2 * len(wanted) == 2 * len(CONTENDERS) * 3 * 2 * len(CLIENTS)
    assert not any(set(name) & set(" ,[]/") for name in names)


def test_what_is_known_of_a_run():
    (bout,) = bouts([DSVD], [POISONED], [QUICK._replace(rounds=2)])
    result = shoal.run(bout.job(0).spec)
    course = course_of(result)
    assert course["accuracies"] == [100 * record["accuracy"] for record in result.records]
    assert course["final"] == result.final_accuracy
    assert course["seconds_a_round"] == pytest.approx(sum(r["seconds"] for r in result.records) / 2)
    assert course["attackers_share"] == 0.1
    assert 0 <= course["attackers_weight"] < 0.1


# -- tables


def test_table2_is_about_the_same_seed_without_an_attack():
    outcome = table2(Stage(by_attack).play, setting=SMALL, labels=tuple(CONTENDERS), seeds=2)
    iid, other, speed, finals, weights = outcome.tables
    assert iid.title == "Under attack, IID"
    assert iid.rows == other.rows == list(CONTENDERS)
    clean, hit = (0.8, 0.9), (0.5, 0.6)  # by seed, the latter the mean over both attacks
    expected = {
        FINAL: hit,
        LOSS: (clean[0] - hit[0], clean[1] - hit[1]),
        QUOTIENT: (0.9 * hit[0], 0.9 * hit[1]),
        KEPT: (hit[0] / clean[0], hit[1] / clean[1]),
    }
    for metric, (first, second) in expected.items():
        found = iid.find(DSVD, metric)
        assert found.ours == pytest.approx((first + second) / 2)
        assert found.std == pytest.approx(abs(first - second) / 2**0.5)
        assert found.paper == theirs2("IID", metric, DSVD)
    assert speed.find(FEDAVG, "non-IID")[2:4] == (19, 2.0)
    assert finals.find(FEDAVG, "IID, model poisoning").ours == pytest.approx(45)
    assert finals.columns[3:] == [f"non-IID, {attack}" for attack in ATTACKS]
    assert weights.rows == [DSVD, PRINTED]
    assert weights.columns == [f"{skew}, {a}" for skew in ("IID", "non-IID") for a in (FLIPPED, POISONED)]
    assert weights.find(DSVD, f"IID, {FLIPPED}").ours == 2
    assert "in 10 of its 10 columns" in outcome.notes[0]


def test_table2_says_who_is_best():
    def tell(table):
        return [0.1, 0.9 if table["method"]["name"] == "fedcpa" else 0.5]

    outcome = table2(Stage(tell).play, setting=SMALL, labels=SHOWN, seeds=1)
    assert any("is that of FedCPA (IID) and FedCPA (non-IID)." in note for note in outcome.notes)


def test_table3_has_the_clients_and_the_units():
    stage = Stage(by_attack)
    outcome = table3(stage.play, setting=SMALL, labels=SHOWN, seeds=1)
    assert any("FedAvg (n = 10), FedAvg (n = 20)" in note for note in outcome.notes)  # the first of equals
    assert [table.title for table in outcome.tables] == list(PAPER_TABLE3)
    found = {table.title: table.find(DSVD, "n = 100") for table in outcome.tables}
    assert found["Final accuracy (%)"] == (DSVD, "n = 100", 85.23, pytest.approx(80), None)
    assert found["Seconds a round"][2:4] == (29.35, 2.0)
    assert found["Seconds to the largest accuracy"].ours == 6
    assert [spec["partition"]["clients"] for spec in stage.specs] == [n for n in CLIENTS for _ in SHOWN]
    assert not any("attack" in spec for spec in stage.specs)
    assert "In 13 of 20 cells" in outcome.notes[0]  # counted in the paper by hand
    assert outcome.notes[-1] == "The paper has fashion_mnist with a CNN, here it is mnist5k with mlp."


# -- curves


def test_figure1_draws_every_scene():
    outcome = figure1(Stage(by_attack).play, setting=SMALL, labels=SHOWN, seeds=2)
    titles = [f"{skew}, {attack}" for skew in ("IID", "non-IID") for attack in (FLIPPED, POISONED)]
    assert [picture.title for picture in outcome.pictures] == titles
    assert [picture.name for picture in outcome.pictures] == [f"figure1-{i}" for i in range(1, 5)]
    lines = outcome.pictures[1].figure.axes[0].get_lines()
    assert list(lines[0].get_xdata()) == [1, 2, 3]
    assert list(lines[0].get_ydata()) == pytest.approx([10, 20, 45])
    assert outcome.tables[0].rows == list(SHOWN)
    assert "0 of 4 (IID, label flipping)" in outcome.notes[0]  # all are alike


def test_ablation_goes_through_the_alphas():
    def tell(table):
        """As printed, directions are best and decide early."""
        method = table["method"]
        good = 0.1 * method["alpha1"] if method["literal"] else 0.0
        return [0.3, 0.5 + good, 0.7 + good] if method["alpha3"] < 1 else [0.3, 0.9, 0.1]

    stage = Stage(tell)
    outcome = ablation(stage.play, setting=SMALL, grid=FEW, seeds=1)
    printed, adaptive, weight, _, first = outcome.tables
    assert printed.find("[0.8, 0.1, 0.1]", f"IID, {NONE}").ours == pytest.approx(78)
    assert adaptive.find("[0.8, 0.1, 0.1]", f"IID, {NONE}").ours == pytest.approx(70)
    assert printed.columns == [f"{skew}, {attack}" for skew in ("IID", "non-IID") for attack in ATTACKS]
    assert len(weight.columns) == 4
    assert first.find("[0.5, 0.2, 0.3]", "round 2")[2:4] == (87.69, pytest.approx(55))
    assert first.find("[0.8, 0.1, 0.1]", "round 1").paper == 0
    assert first.find("[0.8, 100, 10000]", "round 1").paper is None
    assert "[0.8, 0.1, 0.1] by 7.0 (IID, no attack)" in outcome.notes[0]
    assert "1.00 (non-IID, model poisoning, 4 runs)" in outcome.notes[1]  # the extreme choice left out
    tried = {tuple(spec["method"][f"alpha{i}"] for i in (1, 2, 3)) for spec in stage.specs}
    assert tried == set(FEW)
    assert [picture.name for picture in outcome.pictures] == [f"figure2-{i}" for i in range(1, 7)]


# -- all of them


NAMES = [name for name in EXPERIMENTS if name.startswith("dsvd-")]


@pytest.mark.parametrize(("name", "scale"), [*itertools.product(NAMES, ("quick", "machine", "paper"))])
def test_every_scale_is_made_of_sound_runs(name, scale):
    stage = Stage(lambda table: [0.5] * table["rounds"])
    outcome = EXPERIMENTS[name].scales[scale](stage.play)
    assert outcome.tables
    assert outcome.notes
    assert outcome.facts["Rounds"] == str(stage.specs[0]["rounds"])


def test_all_are_in_the_catalogue():
    assert NAMES == ["dsvd-table2", "dsvd-table3", "dsvd-figure1", "dsvd-ablation"]
