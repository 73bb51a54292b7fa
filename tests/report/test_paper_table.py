"""Tables for a paper, with differences worked by hand."""

import csv
import io

import pytest

from shoal import SpecError
from shoal.report.paper_table import difference_text, paired, paper_table


@pytest.fixture
def runs(make_run):
    found = []
    for label, values in (("a_1", (0.5, 0.6, 0.7)), ("b", (0.52, 0.61, 0.75))):
        for seed, value in enumerate(values):
            spec = {"seed": seed, "method": {"name": label}}
            found.append(
                make_run(label, seed=seed, spec=spec, summary={"final_accuracy": value, "bytes_up": 10})
            )
    return found


def test_differences_are_paired_by_seed(runs):
    """0.02, 0.01 and 0.05: mean 0.0267, deviation 0.0208; Student's t of two degrees is 4.303 at 97.5 %."""
    (label, found) = next(iter(paired(runs, "final_accuracy").items()))
    assert label == "b"
    assert found.mean == pytest.approx(0.08 / 3)
    assert found.half == pytest.approx(4.302653 * 0.0208167 / 3**0.5, rel=1e-5)
    assert difference_text("final_accuracy", found) == "+2.67 [-2.50, 7.84]"


def test_two_seeds_have_a_difference_without_an_interval(runs):
    found = paired([run for run in runs if run.spec["seed"] < 2], "final_accuracy")["b"]
    assert found.half is None
    assert difference_text("final_accuracy", found) == "+1.50"


def test_forms(runs):
    assert "| a_1 | 3 | 60.00 ± 10.00 | 10 B | – |" in paper_table(runs, "markdown")
    latex = paper_table(runs, "latex")
    assert r"a\_1 & 3 & 60.00 $\pm$ 10.00 & 10 B & -- \\" in latex
    rows = list(csv.DictReader(io.StringIO(paper_table(runs, "csv"))))
    assert float(rows[1]["final_accuracy_difference"]) == pytest.approx(0.08 / 3)
    assert float(rows[1]["difference_low"]) == pytest.approx(-0.025047, abs=1e-5)
    with pytest.raises(SpecError, match="--format must be one of csv, latex, markdown; got 'word'"):
        paper_table(runs, "word")
