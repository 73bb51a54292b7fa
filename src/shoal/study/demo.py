"""Five systems compared with FedAvg, each on the heterogeneity that it was designed for, on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from shoal.config import Table
from shoal.overrides import with_method, with_settings
from shoal.report.demo_page import DemoScene, demo_page, demo_picture
from shoal.report.runs import RunView, read_run
from shoal.report.series import Against
from shoal.runs.directory import REPORT
from shoal.runs.files import write_atomic
from shoal.runs.result import Result
from shoal.spec import from_table
from shoal.study.compare import file_name, split
from shoal.study.jobs import Job, kept_answers, run_with_progress

SEEDS = (0, 1, 2)
BATCHES = {"lr": 0.05, "batch": 10, "epochs": 3}


class Contest(NamedTuple):
    """One scene: a federation, and the methods that are compared in it."""

    unlike: str  # the way in which clients differ
    title: str
    story: str
    methods: tuple[str, ...]  # FedAvg first
    table: Table
    metric: str = "accuracy"
    against: Against = "rounds"
    columns: tuple[str, ...] = ("final_accuracy", "mean_client_accuracy", "bytes_up")


CONTESTS = (
    Contest(
        "Data",
        "Clients hold different digits",
        "100 clients, most of which hold three digits or fewer. FedQP sends each client a different mutation "
        "of the model, corrected so that none points against the last server step.",
        ("fedavg", "fedqp"),
        {
            "rounds": 40,
            "task": {"dataset": "mnist5k", "model": "mlp"},
            "partition": {"kind": "dirichlet", "clients": 100, "beta": 0.1},
            "selector": {"count": 10},
            "local": BATCHES,
        },
    ),
    Contest(
        "Trust in gradients",
        "Clients reveal nothing but losses",
        "Ten clients hold one digit each. FSI sends candidate models and gets back their losses: no client "
        "reveals a gradient or a model. FedAvg gets whole models from all clients.",
        ("fedavg", "fsi"),
        {
            "rounds": 15,
            "task": {"dataset": "digits", "model": "logistic_ova"},
            "partition": {"kind": "one_class", "clients": 10},
            "selector": "all",
        },
    ),
    Contest(
        "Bandwidth, and arrival",
        "Clients cannot send much",
        "50 clients with four digits each. GENE-FL uploads only the layers on which a cluster agrees, which "
        "also give newcomers a start; each client keeps the other layers to itself.",
        ("fedavg", "genefl"),
        {
            "rounds": 15,
            "task": {"dataset": "mnist5k", "model": "mlp"},
            "partition": {"kind": "shards", "clients": 50, "classes": 4},
            "selector": {"count": 10},
            "local": BATCHES,
        },
        "mean_client_accuracy",
        "bytes",
    ),
    Contest(
        "Honesty",
        "Six of twenty clients attack",
        "Attackers scale their updates by ten. DSVD-FL weights each update by how well its singular vectors "
        "agree with those of the others, and the attackers get hardly any weight.",
        ("fedavg", "dsvd"),
        {
            "rounds": 15,
            "task": {"dataset": "mnist5k", "model": "mlp"},
            "partition": {"kind": "dirichlet", "clients": 20, "beta": 0.5},
            "selector": "all",
            "attack": {"name": "scale", "factor": 10.0, "fraction": 0.3},
            "local": BATCHES,
        },
        columns=("final_accuracy", "max_accuracy", "mean_client_accuracy"),
    ),
    Contest(
        "Devices",
        "Some clients are slow, some are fast",
        "Devices of several tiers, whose speed changes from round to round. SITUA-CQ passes a model from "
        "client to client within clusters with balanced labels, at a precision that suits their speed. Times "
        "are those of the simulated devices.",
        ("fedavg", "situa_cq:preset=fast"),
        {
            "rounds": 60,
            "task": {"dataset": "mnist5k", "model": "mlp"},
            "partition": {"kind": "dirichlet", "clients": 100, "beta": 0.3},
            "selector": {"count": 20},
            "devices": {"name": "tiers", "redraw": True},
            "local": {"lr": 0.05, "momentum": 0.5, "batch": 10, "epochs": 1},
        },
        against="virtual_seconds",
        columns=("final_accuracy", "bytes_up", "virtual_seconds"),
    ),
)


def nothing(result: Result) -> Mapping[str, Any]:
    """The measure of the jobs: empty, since the page is made from their run directories."""
    return {}


def jobs(rounds: int = 0) -> dict[str, tuple[Contest, str, Job]]:
    """All runs by name; `rounds` shortens them."""
    found = {}
    for contest in CONTESTS:
        for label in contest.methods:
            name, fields = split(label, "method")
            table = with_settings(with_method(contest.table, name), fields)
            table |= {"evaluate": {"every": 5, "metrics": ["accuracy"]}, "checkpoint": {"every": 0}}
            table |= {"rounds": rounds} if rounds else {}
            for seed in SEEDS:
                key = f"{file_name(contest.unlike)}-{file_name(label)}-seed{seed}".lower()
                found[key] = contest, label, Job(key, from_table({**table, "seed": seed}), nothing)
    return found


def run_demo(out: Path, rounds: int = 0) -> list[DemoScene]:
    """Run the missing jobs, and write the page."""
    planned = jobs(rounds)
    every = [job for _, _, job in planned.values()]
    kept = kept_answers(every, out)
    missing = [job for job in every if job.name not in kept]
    if missing:
        told = f"{len(every)} runs" + (f", {len(kept)} kept" if kept else "")
        run_with_progress(told, missing, out)
    scenes = _scenes(planned, out)
    write_atomic(out / REPORT, demo_page(scenes).encode())
    return scenes


def picture(scenes: Sequence[DemoScene]) -> Figure:
    """The five systems in one picture."""
    return demo_picture(scenes)


def _scenes(planned: Mapping[str, tuple[Contest, str, Job]], out: Path) -> list[DemoScene]:
    scenes = []
    for contest in CONTESTS:
        views: list[RunView] = [
            read_run(out / name, label) for name, (mine, label, _) in planned.items() if mine is contest
        ]
        system = contest.methods[-1].split(":")[0]
        scenes.append(
            DemoScene(
                contest.unlike,
                contest.title,
                contest.story,
                system,
                [view._replace(label=view.label.split(":")[0]) for view in views],
                contest.metric,
                contest.against,
                contest.columns,
            )
        )
    return scenes
