"""GENE-FL: the upload of each method, counted from the shapes of ResNet-18. Nothing is trained.

The paper's numbers assume 4 bytes per parameter: MiB for one client in one round, and for Comm ten clients
and 100 rounds, in units of 1,024 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal.models.resnet import resnet18_imagenet
from shoal.study.reproduce.experiment import ComparisonTable, Experiment, Findings, PaperNumber, RunJobs

SUMMARY = "Tables I to IV: the upload of each method, counted without training"
REFERENCE = "Guo, Lv, Wang, Geng, GENE-FL: Gene-Driven Parameter-Efficient Dynamic Federated Learning"

MIB, UPLOADS = 2**20 / 4, 100 * 10 / 1024  # parameters in a MiB; uploads of a run, in units of 1,024
STAGES = (1, 2, 3, 4)  # of residual blocks

# MiB per client and GB per run, as printed in the paper
PAPER: Mapping[str, tuple[float | None, float | None]] = {
    "FedAvg, 10 classes": (42.66, 41.66),
    "FedAvg, 100 classes": (None, 41.83),
    "FedBN": (42.60, 41.60),
    "FedFina": (31.50, 30.76),
    "ParFed": (11.95, 11.67),
    "FedLG": (18.28, 17.85),
    "GENE-FL, without the 5 largest layers": (9.04, 8.78),
    "GENE-FL, without the 4 largest layers": (None, 10.73),
    "GENE-FL, without the 3 largest layers": (None, 15.73),
}


def sizes_of(classes: int) -> dict[str, int]:
    """The number of parameters of each layer of ResNet-18, by name."""
    module = resnet18_imagenet((3, 32, 32), classes)
    return {name: value.numel() for name, value in module.named_parameters()}


def uploaded() -> dict[str, int]:
    """The parameters that each method uploads."""
    sizes = sizes_of(10)
    total, ascending = sum(sizes.values()), sorted(sizes.values())
    last = sum(size for name, size in sizes.items() if name.startswith("layer4.") and ".conv" in name)
    largest = sizes["layer4.1.conv1.weight"]
    # BatchNorm's scale, shift, mean and variance in layers named "bn", which those for downsampling are not
    norms = sum(4 * size for name, size in sizes.items() if ".bn" in f".{name}" and name.endswith("weight"))
    return {
        "FedAvg, 10 classes": total,
        "FedAvg, 100 classes": sum(sizes_of(100).values()),
        "FedBN": total - norms,
        "FedFina": last,
        "ParFed": sum(sizes[f"layer{stage}.1.conv1.weight"] for stage in STAGES),
        "FedLG": 2 * largest + sizes["layer2.0.conv1.weight"],
        **{
            f"GENE-FL, without the {left} largest layers": sum(ascending[:-left])
            for left in (5, 4, 3)  # the literal score ranks small layers first
        },
    }


def traffic(run_jobs: RunJobs) -> Findings:
    """The table of uploads."""
    cells = []
    for row, count in uploaded().items():
        paper = PAPER[row]
        cells += [
            PaperNumber(row, "parameters", None, count),
            PaperNumber(row, "MiB per client and round", paper[0], count / MIB),
            PaperNumber(row, "GB for 100 rounds, 10 clients", paper[1], count / MIB * UPLOADS),
        ]
    notes = [
        """The paper's tables do not follow its formula, R x B x |W| x 2: every number is the upload alone, in
        GiB, for 100 rounds with ten clients. They fit ResNet-18 with the 7x7 stem made for large images.""",
        """FedBN: the paper's number is reached if BatchNorm layers are recognised by the letters "bn" in
        their names, which misses those of the downsampling shortcuts. Shoal's `fedbn` finds them by type.""",
        """The paper's numbers for GENE-FL differ from column to column, from 8.78 to 15.73 GB; shown here are
        the nearest ones for its printed score, which ranks small layers first. 9.04 MB is the paper's figure
        for the message to a newcomer.""",
    ]
    table = ComparisonTable("Upload", cells, "method", 3)
    return Findings([table], notes=[" ".join(note.split()) for note in notes])


EXPERIMENT = Experiment(SUMMARY, REFERENCE, {"quick": traffic, "machine": traffic, "paper": traffic})
