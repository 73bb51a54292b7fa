import pytest

from shoal.study.reproduce import EXPERIMENTS
from shoal.study.reproduce.genefl_traffic import traffic, uploaded

# parameters, MiB of a client, GB of a run
COUNTED = {
    "FedAvg, 10 classes": (11_181_642, 42.655, 41.65),
    "FedAvg, 100 classes": (11_227_812, 42.831, 41.83),
    "FedBN": (11_166_026, 42.595, 41.60),
    "FedFina": (8_257_536, 31.50, 30.76),
    "ParFed": (3_133_440, 11.953, 11.67),
    "FedLG": (4_792_320, 18.281, 17.85),
}


@pytest.mark.parametrize("row", COUNTED)
def test_traffic_is_exact(row):
    (table,) = traffic(lambda jobs: {}).tables
    count, mib, gigabytes = (table.find(row, column).ours for column in table.columns)
    wanted = COUNTED[row]
    assert count == wanted[0] == uploaded()[row]
    assert mib == pytest.approx(wanted[1], abs=6e-4)
    assert gigabytes == pytest.approx(wanted[2], abs=6e-3)


def test_traffic_agrees_with_the_paper_but_for_the_gene():
    (table,) = traffic(lambda jobs: {}).tables
    for cell in table.cells:
        if cell.paper is not None and not cell.row.startswith("GENE-FL"):
            assert cell.ours == pytest.approx(cell.paper, abs=0.0101)


CURVE = {
    "mean_client_accuracy": 0.5,
    "finetuned_mean_client_accuracy": 0.6,
    "bytes_up": 2**30,
    "start_mib": 1.5,
}
IMAGES = {"images": [[[0.0, 0.5, 0.5, 1.0]]], "psnrs": [40.0]}
AUDIT = {
    **{"knows": 40.0, "lacks": 5.0, "labels": 1.0, "shape": [1, 2, 2]},
    "found": {"originals": [[[0.0] * 4]], "knows": IMAGES, "lacks": IMAGES, "signature": None},
}


def pretended(jobs):
    """Answers of the right form, without a run."""
    answers = {}
    for job in jobs:
        rounds = list(range(1, job.spec.rounds + 1))
        curve = {"rounds": rounds, "accuracies": [50.0] * len(rounds), "uploaded": rounds}
        start = {"epochs": [0, 1, 5, 10], "accuracies": [0.1, 0.2, 0.3, 0.4], "bytes": 2**20}
        names = ["random", "gene"] if job.spec.method_name == "genefl" else ["random", "fresh head"]
        answers[job.name] = {**CURVE, **AUDIT, **curve, **dict.fromkeys(names, start)}
    return answers


NAMES = [name for name in EXPERIMENTS if name.startswith("genefl-")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["quick", "machine"])
def test_every_experiment_makes_its_tables(name, scale):
    found = EXPERIMENTS[name].scales[scale](pretended)
    assert found.tables
    assert all(table.cells for table in found.tables)
    assert all("{" not in note for note in found.notes)
    assert bool(found.pictures) == ("figure" in name or name == "genefl-newcomers")


def test_starts_stand_in_one_table():
    accuracy, cost = EXPERIMENTS["genefl-newcomers"].scales["quick"](pretended).tables
    assert accuracy.rows == ["random", "gene", "fresh head"]
    assert accuracy.columns == ["0 epochs", "1 epoch", "5 epochs", "10 epochs"]
    assert accuracy.find("gene", "5 epochs").ours == pytest.approx(30)
    assert cost.find("gene", "MiB").ours == 1
