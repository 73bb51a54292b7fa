"""DSVD-FL: what its experiments share. Contenders, attacks, settings, runs, and what is known of them.

The paper has MNIST, FashionMNIST, EMNIST, a CNN, and 10 % malicious clients who flip labels or poison models.
It gives neither rounds, local training and the split between clients nor which labels and how poisoned.
Here class y becomes C - 1 - y, a poisoned update is -5 times the honest one, and non-IID is Dirichlet with
beta = 0.5.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.report.canvas import WIDTH
from shoal.report.charts import line_chart
from shoal.report.series import Axis, seeds_curve
from shoal.runs.runner import Result
from shoal.spec import Spec, from_table
from shoal.study.arena import CLEAN, attacked, defended, measure
from shoal.study.compare import file_name
from shoal.study.jobs import Job
from shoal.study.reproduce.experiment import Picture, Play, Table, cell

PAPER = "Dynamic SVD-Enhanced Approach for Federated Learning (DSVD-FL), submitted to ICLR 2025 and withdrawn"
FEDAVG, QFEDAVG, DSVD, PRINTED = "FedAvg", "qFedAvg", "DSVD-FL", "DSVD-FL, as printed"
LITERAL = "dsvd:literal=true,form=literal,temperature=1.0,aggregate=full"  # the paper's equations
CONTENDERS: Mapping[str, str] = {  # as the arena names defences
    FEDAVG: "fedavg",
    "FedProx": "fedprox",
    "FedCPA": "fedcpa",
    QFEDAVG: "qfedavg",
    DSVD: "dsvd",
    PRINTED: LITERAL,
    "Multi-Krum": "multikrum",
    "Trimmed mean": "trimmed_mean",
    "Geometric median": "geomedian",
    "FLTrust": "fltrust",
}
PAPERS = (FEDAVG, "FedProx", "FedCPA", QFEDAVG, DSVD)
SHOWN = (*PAPERS, PRINTED)

NONE, FLIPPED, POISONED = "no attack", "label flipping", "model poisoning"
ATTACKS: Mapping[str, str] = {NONE: CLEAN, FLIPPED: "label_flip", POISONED: "sign_flip:factor=5.0"}
SHARE = 0.1  # of the clients attack
OURS = f"{DSVD} is ours, with weights that adapt; {PRINTED} keeps to the paper's equations, layer by layer."

ACCURACY = Axis("Test accuracy (%)", end=100)


class Setting(NamedTuple):
    """A federation in which all clients take part in every round, and how they train."""

    dataset: str
    model: str
    rounds: int
    beta: float | None = 0.5  # of the Dirichlet distribution of classes; None: all clients alike
    clients: int = 20
    lr: float = 0.05
    batch: int = 10
    epochs: int = 3
    safe: int = 0  # rounds from one checkpoint to the next

    @property
    def skew(self) -> str:
        """How unlike the clients are, in the paper's words."""
        return "IID" if self.beta is None else "non-IID"

    @property
    def task(self) -> dict[str, Any]:
        """What is learned."""
        options = {"split": "balanced"} if self.dataset == "emnist" else {}
        return {"dataset": self.dataset, "model": self.model, **options}

    def spec(self, method: str, attack: str, seed: int) -> Spec:
        """The run of a method under an attack, both as the arena names them."""
        kind = {"kind": "iid"} if self.beta is None else {"kind": "dirichlet", "beta": self.beta}
        table = {
            "seed": seed,
            "rounds": self.rounds,
            "task": self.task,
            "partition": {**kind, "clients": self.clients},
            "selector": "all",
            "local": {"lr": self.lr, "batch": self.batch, "epochs": self.epochs},
            "evaluate": {"clients": 0, "metrics": ["accuracy"]},
            "checkpoint": {"every": self.safe},
        }
        return from_table(attacked(defended(table, method, SHARE), attack, {"fraction": SHARE}))


QUICK = Setting("mnist5k", "mlp", 15)
MACHINE = Setting("fashion_mnist", "lenet", 10, lr=0.1, batch=50, epochs=1, safe=5)
FULL = Setting("emnist", "cnn", 50, lr=0.1, batch=50, epochs=1, safe=10)


class Bout(NamedTuple):
    """A method under an attack, in a setting."""

    label: str
    method: str  # as the arena names it
    attack: str  # one of `ATTACKS`
    at: Setting
    rule: str = ""  # told apart from the label, where labels of several rules are alike

    @property
    def scene(self) -> str:
        """Where methods can be compared."""
        return f"{self.at.skew}, {self.attack}"

    def job(self, seed: int) -> Job:
        """One of its runs."""
        name = file_name(f"{self.scene}, n={self.at.clients}, {self.label}, {self.rule}, seed{seed}")
        return Job(name, self.at.spec(self.method, ATTACKS[self.attack], seed), course_of)


Course = Mapping[str, Any]  # see `course_of`
Found = Mapping[Bout, Sequence[Course]]  # one a seed


def course_of(result: Result) -> dict[str, Any]:
    """The arena's measures, in shares and seconds, and the accuracy (%) after each round."""
    seconds = [record["seconds"] for record in result.records]
    return {
        **measure(result),
        "seconds_a_round": sum(seconds) / len(seconds),
        "accuracies": [100 * record["accuracy"] for record in result.records],
    }


def bouts(labels: Iterable[str], attacks: Iterable[str], settings: Iterable[Setting]) -> list[Bout]:
    """Contenders under attacks in settings."""
    scenes = [(attack, at) for at in settings for attack in attacks]
    return [Bout(label, CONTENDERS[label], *scene) for scene in scenes for label in labels]


def played(play: Play, wanted: Sequence[Bout], seeds: int) -> Found:
    """The courses of all bouts."""
    jobs = {bout: [bout.job(seed) for seed in range(seeds)] for bout in wanted}
    answers = play([job for some in jobs.values() for job in some])
    return {bout: [answers[job.name] for job in some] for bout, some in jobs.items()}


def skews(at: Setting) -> tuple[Setting, Setting]:
    """The setting with clients that are alike, and with its own."""
    return (at._replace(beta=None), at)


def percents(courses: Sequence[Course], name: str) -> list[float | None]:
    """A share of each run, in percent."""
    return [None if course[name] is None else 100 * course[name] for course in courses]


def by_scene(title: str, found: Found, name: str, remark: str, corner: str = "method") -> Table:
    """A share of all runs that have it, in percent."""
    cells = [
        cell(bout.label, bout.scene, None, percents(courses, name))
        for bout, courses in found.items()
        if courses[0][name] is not None
    ]
    return Table(title, cells, corner, 1, remark)


def scenes(found: Found) -> list[str]:
    """In the order in which they were played."""
    return list(dict.fromkeys(bout.scene for bout in found))


def drawn(found: Found, name: str, told: str) -> list[Picture]:
    """For each scene the learning curves of all that can be compared there."""
    pictures = []
    for place, scene in enumerate(scenes(found), start=1):
        values = {
            bout.label: np.array([course["accuracies"] for course in courses])
            for bout, courses in found.items()
            if bout.scene == scene
        }
        curves = [
            seeds_curve(label, slot, 1.0 + np.arange(some.shape[1]), some)
            for slot, (label, some) in enumerate(values.items())
        ]
        figure = line_chart(curves, ACCURACY, "rounds", WIDTH)
        assert figure is not None
        pictures.append(Picture(f"{name}-{place}", scene, figure, told))
    return pictures


def mean(courses: Sequence[Course], name: str) -> float:
    """Over seeds."""
    return statistics.fmean(course[name] for course in courses)


def seeds_told(seeds: int) -> str:
    """Over how many seeds numbers are."""
    return f"Mean and standard deviation over {seeds} seeds." if seeds > 1 else "One seed."


def weights_told(seeds: int) -> str:
    """What to compare the weight of attackers with."""
    return f"Mean over rounds; where all clients count alike it is {100 * SHARE:.0f}. {seeds_told(seeds)}"


def facts(at: Setting) -> dict[str, str]:
    """For the head of the page."""
    return {
        "Data set": f"{at.dataset}, {at.model}",
        "Clients": f"{at.clients}, all in every round",
        "Attackers": f"{100 * SHARE:.0f} %",
        "Non-IID": f"Dirichlet, beta = {at.beta:g}",
        "Rounds": f"{at.rounds:,}",
        "A client": f"{at.epochs} epochs, batches of {at.batch}, lr {at.lr:g}",
    }


def other_data(at: Setting, papers: str) -> list[str]:
    """A note where the data set is not the paper's."""
    if at.dataset == papers:
        return []
    return [f"The paper has {papers} with a CNN, here it is {at.dataset} with {at.model}."]
