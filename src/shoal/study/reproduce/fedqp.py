"""Weng et al., FedQP: what its experiments share. Contenders, settings, runs, and how accuracy is taken.

The paper gives neither rounds nor p, alpha, acc and bound. Rounds are those of its code base, 2,000; the
others our defaults. CIFAR-100 is taken with its 20 coarse classes, as in that code base. The paper's FedAvg
weighs by samples there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shoal.runs.runner import Result
from shoal.spec import Spec, from_table
from shoal.study.jobs import Job
from shoal.study.reproduce.experiment import Play

PAPER = (
    "Weng, Xia, Li, Hu, Chen, FedQP: Towards Accurate Federated Learning using Quadratic Programming "
    "Guided Mutation"
)
FEDAVG, UNIFORM, FEDMUT, FEDQP = "FedAvg", "FedAvg, uniform", "FedMut", "FedQP"
CONTENDERS: Mapping[str, Mapping[str, Any]] = {
    FEDAVG: {"name": "fedavg", "weights": "samples"},
    UNIFORM: {"name": "fedavg", "weights": "uniform"},
    "FedProx": {"name": "fedprox"},
    "CluSamp": {"name": "clusamp"},
    "FedNTD": {"name": "fedntd"},
    "FedGen": {"name": "fedgen", "g_a": 0.2, "g_b": 0.2, "decay": 1.0, "draws": 32},
    FEDMUT: {"name": "fedmut"},
    FEDQP: {"name": "fedqp"},
    "FedQP, p = auto": {"name": "fedqp", "p": "auto"},
}
PAPERS = (FEDAVG, "CluSamp", "FedNTD", "FedGen", FEDMUT, FEDQP)  # in the order of the paper's tables
SLOW = ("FedNTD", "FedGen")  # the compiled kernels do not know their terms
FAST = tuple(label for label in CONTENDERS if label not in SLOW)


class Training(NamedTuple):
    """What a client does in a round."""

    lr: float = 0.01
    momentum: float = 0.5
    batch: int = 50
    epochs: int = 5


class Setting(NamedTuple):
    """A federation of 100 clients, and how long it learns."""

    dataset: str
    model: str
    beta: float | None  # of the Dirichlet distribution of classes; None: all clients alike
    rounds: int
    cohort: int = 10
    local: Training = Training()
    every: int = 1  # rounds from one evaluation to the next
    tail: int = 10  # the last rounds, over which accuracy is taken
    safe: int = 0  # rounds from one checkpoint to the next

    @property
    def skew(self) -> str:
        """How unlike the clients are."""
        return "IID" if self.beta is None else f"beta = {self.beta:g}"

    @property
    def title(self) -> str:
        """What is learned, and where."""
        return f"{self.dataset}, {self.model}, {self.skew}"

    def spec(self, method: Mapping[str, Any], seed: int) -> Spec:
        """The run of a method."""
        options = {"labels": "coarse"} if self.dataset == "cifar100" else {}
        kind = {"kind": "iid"} if self.beta is None else {"kind": "dirichlet", "beta": self.beta}
        return from_table(
            {
                "seed": seed,
                "rounds": self.rounds,
                "task": {"dataset": self.dataset, "model": self.model, **options},
                "partition": {**kind, "clients": 100},
                "selector": {"count": self.cohort},
                "method": dict(method),
                "local": self.local._asdict(),
                "evaluate": {"every": self.every, "clients": 0, "metrics": ["accuracy"]},
                "checkpoint": {"every": self.safe},
            }
        )


QUICK = Setting("mnist5k", "mlp", 0.1, 60, local=Training(0.05, 0.0, 10, 3))
MACHINE = Setting("cifar10", "lenet", 0.1, 50, every=2, safe=10)
FULL = Setting("cifar10", "resnet18", 0.5, 2_000, every=10, tail=100, safe=20)
SKEWS = (0.1, 0.5, 1.0, None)


class Entry(NamedTuple):
    """A method in a setting, with so many seeds."""

    label: str
    method: Mapping[str, Any]
    setting: Setting
    seeds: int

    def job(self, seed: int, measure: Callable[[Result], Any]) -> Job:
        """One of its runs."""
        at = self.setting
        where = f"{at.dataset}-{at.model}-{at.skew}-K={at.cohort}".replace(" ", "")
        return Job(
            f"{where}-{self.label.replace(', ', '-').replace(' ', '')}-seed{seed}",
            at.spec(self.method, seed),
            measure,
        )


class Course(NamedTuple):
    """How the accuracy (%) of a run went, where it was measured."""

    rounds: Sequence[int]
    accuracies: Sequence[float]
    momentum: float | None = None  # FedQP's effective one, mean over the last rounds


Courses = Mapping[tuple[str, Setting], Sequence[Course]]  # by label and setting, one a seed


def course_of(result: Result) -> dict[str, Any]:
    """See `Course`."""
    judged = [record for record in result.records if record.get("accuracy") is not None]
    momenta = [record["effective_momentum"] for record in judged if "effective_momentum" in record]
    return Course(
        [record["round"] for record in judged],
        [100 * record["accuracy"] for record in judged],
        statistics.fmean(momenta[-10:]) if momenta else None,
    )._asdict()


def entries(
    labels: Iterable[str], settings: Iterable[Setting], seeds: int, slow_seeds: int | None = None
) -> list[Entry]:
    """Contenders in settings; the slow ones may have fewer seeds."""
    some = {label: slow_seeds if label in SLOW and slow_seeds is not None else seeds for label in labels}
    return [Entry(label, CONTENDERS[label], at, count) for at in settings for label, count in some.items()]


def courses(play: Play, wanted: Sequence[Entry]) -> Courses:
    """The courses of all entries."""
    found = answered(play, wanted, course_of)
    return {key: [Course(**answer) for answer in answers] for key, answers in found.items()}


def answered(
    play: Play, wanted: Sequence[Entry], measure: Callable[[Result], Any]
) -> dict[tuple[str, Setting], list[Any]]:
    """What is to be known of all runs of all entries."""
    jobs = {
        (entry.label, entry.setting): [entry.job(seed, measure) for seed in range(entry.seeds)]
        for entry in wanted
    }
    answers = play([job for some in jobs.values() for job in some])
    return {key: [answers[job.name] for job in some] for key, some in jobs.items()}


def last(course: Course, at: Setting) -> list[float]:
    """The accuracies measured in the last rounds."""
    return [
        value
        for number, value in zip(course.rounds, course.accuracies, strict=True)
        if number > at.rounds - at.tail
    ]


def level(course: Course, at: Setting) -> float:
    """The mean accuracy of the last rounds."""
    return statistics.fmean(last(course, at))


def swing(course: Course, at: Setting) -> float | None:
    """The standard deviation of the accuracy over the last rounds."""
    values = last(course, at)
    return statistics.stdev(values) if len(values) > 1 else None


def seeds_told(wanted: Sequence[Entry]) -> str:
    """Over how many seeds numbers are."""
    most = max(entry.seeds for entry in wanted)
    fewer = {entry.label: entry.seeds for entry in wanted if entry.seeds < most}
    rest = "".join(f", {count} of {label}" for label, count in fewer.items())
    return f"Mean and standard deviation over {most} seeds{rest}." if most > 1 else "One seed."


def facts(*settings: Setting) -> dict[str, str]:
    """For the head of the page; settings train alike, but maybe not as long."""
    lr, momentum, batch, epochs = settings[0].local
    same = len({at.rounds for at in settings}) == 1
    rounds = [f"{at.rounds:,}" if same else f"{at.rounds:,} ({at.dataset})" for at in settings]
    return {
        "Clients": "100",
        "Rounds": ", ".join(dict.fromkeys(rounds)),
        "A client": f"{epochs} epochs, batches of {batch}, lr {lr:g}, momentum {momentum:g}",
    }
