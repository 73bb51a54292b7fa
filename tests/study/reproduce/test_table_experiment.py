"""Experiments from data files: the runs, the paper's numbers and the tables."""

import tomllib

import pytest
from toy import table as toy

import shoal
from shoal.core.errors import SpecError
from shoal.study.reproduce import FUNCTIONS, TABLES
from shoal.study.reproduce.datafile import Value, load
from shoal.study.reproduce.grid import merged
from shoal.study.reproduce.table_experiment import experiment, summary_and_curve

SHARED = """
reference = "Somebody, A Paper"
corner = "method"

[spec]
rounds = 4

[rows]
"FedAvg".spec.method.name = "fedavg"
"FedProx, mu = 1".spec.method = { name = "fedprox", mu = 1.0 }

[scales.quick]
values.tail = 2
"""
TABLE = """
extends = ["shared.toml"]
summary = "Table 9"
notes = ["The paper says little. {over_seeds}"]

[facts]
Rounds = "{rounds}"

[columns]
"K = 2".spec.selector.count = 2
"K = 3" = { spec.selector.count = 3, like = "K = 2" }

[numbers.accuracy]
order = ["FedAvg", "FedProx, mu = 1"]
"K = 2" = [50.0, 60]

[[tables]]
title = "Last {tail} of {rounds} rounds"
numbers = "accuracy"
values = [{ field = "accuracies", over_rounds = "mean" }]

[[tables]]
title = "Ahead"
numbers = "accuracy"
minus = "FedAvg"
values = [{ field = "accuracies", over_rounds = "last" }]

[[tables]]
title = "Cost"
decimals = 3
values = [
    { field = "bytes_up", unit = "GiB", label = "GiB" },
    { field = "final_accuracy", unit = "%", label = "%" },
]

[scales.quick]
seeds = 3
seeds_of = { "FedProx, mu = 1" = 2, "FedAvg, K = 3" = 1 }

[scales.paper]
seeds = 1
columns = ["K = 3"]
other_setting = true
"""


@pytest.fixture
def described(tmp_path):
    """The experiment of a data file, which may be changed first."""

    def described(old="", new=""):
        assert old in TABLE
        (tmp_path / "shared.toml").write_text(SHARED)
        (tmp_path / "table9.toml").write_text(TABLE.replace(old, new) if old else TABLE)
        return experiment(tmp_path / "table9.toml")

    return described


def answers(jobs):
    """Accuracies 10, 20, 30 and 40 %, and a point more for each seed; FedProx has 5 more."""

    def one(job):
        base = 5.0 * (job.spec.method_name == "fedprox") + job.spec.seed
        return {
            "rounds": [1, 2, 3, 4],
            "accuracies": [base + 10 * i for i in range(1, 5)],
            "bytes_up": 2**29,
            "final_accuracy": None if job.spec.selector.count == 3 else 0.25,
        }

    return {job.name: one(job) for job in jobs}


def test_the_runs_are_rows_by_columns_by_seeds(described):
    found = described()
    assert (found.summary, found.paper, list(found.scales)) == (
        "Table 9",
        "Somebody, A Paper",
        ["quick", "paper"],
    )
    grid = found.scales["quick"].grid
    jobs = [job for cell in grid.cells for job in grid.jobs(cell)]
    assert [job.name for job in jobs] == [
        *("FedAvg-K=2-seed0", "FedAvg-K=2-seed1", "FedAvg-K=2-seed2"),
        *("FedProx-mu=1-K=2-seed0", "FedProx-mu=1-K=2-seed1"),
        *("FedAvg-K=3-seed0", "FedProx-mu=1-K=3-seed0", "FedProx-mu=1-K=3-seed1"),
    ]
    spec = jobs[4].spec
    assert (spec.rounds, spec.seed, spec.selector.count, spec.method_name) == (4, 1, 2, "fedprox")
    assert jobs[4].measure is summary_and_curve


def test_columns_can_be_chosen(described):
    chosen = described().scales["quick"].of_columns("= 3")
    assert list(chosen.grid.columns) == ["K = 3"]
    assert chosen(answers).tables[0].columns == ["K = 3"]
    with pytest.raises(SpecError, match="no column has 'K=3' in its name; there are: K = 2; K = 3"):
        described().scales["quick"].of_columns("K=3")


def test_ours_stand_beside_the_papers(described):
    findings = described().scales["quick"](answers)
    accuracy, ahead, cost = findings.tables
    assert accuracy.title == "Last 2 of 4 rounds"
    assert accuracy.corner == "method"
    assert accuracy.find("FedAvg", "K = 2") == ("FedAvg", "K = 2", 50.0, 36.0, 1.0)
    assert accuracy.find("FedProx, mu = 1", "K = 2")[2:4] == (60, 40.5)
    assert accuracy.find("FedAvg", "K = 3")[2:] == (None, 35.0, None)
    # by seed, as far as both have it; the paper has no K = 3, and K = 2 is the nearest
    assert ahead.rows == ["FedProx, mu = 1"]
    assert [cell[1:] for cell in ahead.cells] == [("K = 2", 10.0, 5.0, 0.0), ("K = 3", 10.0, 5.0, None)]
    assert cost.columns == ["K = 2, GiB", "K = 2, %", "K = 3, GiB"]  # cells without a number are left out
    assert cost.find("FedAvg", "K = 2, GiB").ours == 0.5
    assert cost.find("FedAvg", "K = 2, %").ours == 25
    assert findings.facts == {"Rounds": "4"}
    assert findings.notes[0].startswith(
        "The paper says little. Mean and standard deviation over 3 seeds, 2 of Fed"
    )


def test_in_another_setting_only_differences_are_compared(described):
    changed = "other_setting = true\nspec.rounds = 4\nvalues.tail = 1"
    accuracy, ahead, _ = described("other_setting = true", changed).scales["paper"](answers).tables
    assert accuracy.columns == ["K = 3"]
    assert not accuracy.compares
    assert ahead.cells[0].paper == 10


def test_over_rounds():
    answer = {"rounds": [2, 4, 6], "accuracies": [10.0, 50.0, 60.0], "none": None}
    assert Value("accuracies", over_rounds="mean").of(answer, range(3, 7)) == 55
    assert Value("accuracies", over_rounds="deviation").of(answer, range(3, 7)) == pytest.approx(50**0.5)
    assert Value("accuracies", over_rounds="deviation").of(answer, range(6, 7)) is None
    assert Value("none", unit="%").of(answer, range(3, 7)) is None


def test_what_is_measured_if_nothing_else_is_asked_for():
    result = shoal.run(toy(rounds=2, evaluate={"every": 2}))
    found = summary_and_curve(result)
    assert found["bytes_up"] == result.bytes_up
    assert (found["rounds"], found["accuracies"]) == ([2], [100 * result.final_accuracy])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('columns = ["K = 3"]', 'columns = ["K = 4"]', "unknown column 'K = 4'; did you mean K = 3?"),
        ("[50.0, 60]", "[50.0, 60, 70]", "numbers.accuracy.K = 2 has 3 numbers, but order names only 2"),
        ("decimals = 3", "decimal = 3", "unknown key table9.tables.*decimal; did you mean .*decimals"),
        ("seeds = 1", "seed = 1", "unknown key scales.paper.seed; did you mean scales.paper.seeds"),
    ],
)
def test_mistakes_in_a_file_are_named(described, old, new, message):
    with pytest.raises(SpecError, match=message):
        described(old, new).scales["quick"](answers)


def test_the_last_table_counts():
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"d": 4}) == {"a": {"b": 1, "c": 3}, "d": 4}


def test_every_file_is_used():
    """By an experiment of its name, or by those that extend it."""
    extended = {name for path in TABLES.glob("*.toml") for name in _extends(path)}
    assert {path.name for path in TABLES.glob("*.toml")} == {f"{name}.toml" for name in FUNCTIONS} | extended


def _extends(path):
    return tomllib.loads(path.read_text()).get("extends", [])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_papers_numbers_have_rows_and_columns(name):
    """A misspelt label would leave the paper's number out."""
    file = load(TABLES / f"{name}.toml")
    shown = {line for kind in (file.rows, file.columns) for line in kind}
    numbers = file.paper_numbers()
    for table in file.tables:
        labels = numbers[table.numbers].by_labels if table.numbers else ()
        names = shown | {value.paper or value.label for value in table.values}
        assert {row if row in names else column for row, column in labels} <= names
