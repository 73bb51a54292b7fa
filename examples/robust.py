"""DSVD-FL where it has nothing to do, and on convolutional networks.

    python -m examples.robust clean runs/robust        # beside uniform FedAvg, nobody attacks; half an hour
    python -m examples.robust networks runs/robust     # beside FedAvg over the honest clients; ten minutes

Accuracies are means of the last ten rounds. Each task is written to `clean.jsonl` or `networks.jsonl` when it
is done, and is not run again. The mlp under attack is `shoal arena`'s.
"""

import json
import multiprocessing
import statistics
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import shoal

SEEDS = range(542, 552)  # nothing was tuned on them
UNIFORM = {"name": "fedavg", "weights": "uniform"}
ORACLE_ATTACK = "garbage"  # an attack that is refused at the door: the honest clients are left to themselves
ATTACKS = ("sign_flip", "ipm", "gaussian")
COMMON = {
    "local": {"epochs": 1},
    "evaluate": {"every": 1, "clients": 0, "metrics": ["accuracy"]},
    "checkpoint": {"every": 0},
    "engine": {"workers": 1},
}


def batch_norm() -> nn.Module:
    """Two convolutions with BatchNorm, and a linear layer."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
    )


NETWORKS: dict[str, Any] = {"lenet": "lenet", "BatchNorm": batch_norm}


@cache
def fashion() -> shoal.Dataset:
    """The first 6,000 training samples of Fashion-MNIST, and its first 2,000 test samples."""
    whole = shoal.data.DATASETS["fashion_mnist"]()
    return replace(
        whole,
        x_train=whole.x_train[:6000],
        y_train=whole.y_train[:6000],
        x_test=whole.x_test[:2000],
        y_test=whole.y_test[:2000],
    )


def tasks(part: str) -> list[dict[str, Any]]:
    """What is to be run; each with its name and seed."""
    if part == "networks":
        return [
            {"name": f"{network}, {attack}", "network": network, "attack": attack, "seed": seed}
            for network in NETWORKS
            for attack in (ORACLE_ATTACK, *ATTACKS)
            for seed in SEEDS[:3]
        ]
    splits = {f"Dirichlet {beta}": {"kind": "dirichlet", "beta": beta} for beta in (0.1, 0.5)} | {
        "IID": {"kind": "iid"}
    }
    return [
        {"name": f"{split}, {clients} clients", "partition": {**fields, "clients": clients}, "seed": seed}
        for clients, seeds in ((20, SEEDS), (50, SEEDS[:3]), (100, SEEDS[:3]))
        for split, fields in splits.items()
        for seed in seeds
    ]


def run(task: dict[str, Any]) -> dict[str, Any]:
    """The task with its accuracies, and with the recall of each class where nobody attacks."""
    if "attack" in task:
        method = UNIFORM if task["attack"] == ORACLE_ATTACK else "dsvd"
        spec = {
            "rounds": 30,
            "task": {"dataset": fashion(), "model": NETWORKS[task["network"]]},
            "partition": {"kind": "dirichlet", "beta": 0.5, "clients": 20},
            "selector": "all",
            "method": method,
            "attack": {"name": task["attack"], "fraction": 0.3},
        }
        return {**task, "accuracy": last_rounds(play(spec, task["seed"]))}
    spec = {
        "rounds": 60,
        "task": {"dataset": "mnist5k", "model": "mlp"},
        "partition": task["partition"],
        "selector": {"name": "uniform", "count": 20},
    }
    answer = dict(task)
    for label, method in (("fedavg", UNIFORM), ("dsvd", "dsvd")):
        result = play({**spec, "method": method}, task["seed"])
        answer[label] = {"accuracy": last_rounds(result), "recalls": recalls(result)}
    return answer


def play(spec: dict[str, Any], seed: int) -> shoal.Result:
    """One run."""
    return shoal.run({**COMMON, **spec, "seed": seed}, report=False, progress=False)


def last_rounds(result: shoal.Result) -> float:
    """The mean accuracy of the last ten rounds."""
    return statistics.mean(record["accuracy"] for record in result.records[-10:])


def recalls(result: shoal.Result) -> list[float]:
    """The share of each class's test samples that the final model finds."""
    samples, model = result.dataset, result.model().eval()
    with torch.no_grad():
        found = model(samples.x_test).argmax(1) == samples.y_test
    return [float(found[samples.y_test == c].double().mean()) for c in range(samples.classes)]


def show(part: str, answers: list[dict[str, Any]]) -> None:
    """A line for each name: how far DSVD-FL is from its measure, in the mean and on the worst seed."""
    for name in dict.fromkeys(answer["name"] for answer in answers):
        same = [answer for answer in answers if answer["name"] == name]
        if part == "clean":
            behind = [100 * (a["fedavg"]["accuracy"] - a["dsvd"]["accuracy"]) for a in same]
            pairs = [p for a in same for p in zip(a["fedavg"]["recalls"], a["dsvd"]["recalls"], strict=True)]
            lost = sum(theirs >= 0.2 and ours < theirs / 2 for theirs, ours in pairs)
            mean, worst = statistics.mean(behind), max(behind)
            print(f"{name}: {mean:.2f} points behind, worst {worst:.2f}; {lost} classes lost")
        elif not name.endswith(ORACLE_ATTACK):
            oracle = {
                a["seed"]: a["accuracy"]
                for a in answers
                if a["network"] == same[0]["network"] and a["attack"] == ORACLE_ATTACK
            }
            shares = [100 * a["accuracy"] / oracle[a["seed"]] for a in same]
            print(f"{name}: {statistics.mean(shares):.1f} % of the oracle, worst {min(shares):.1f} %")


def main(part: str, directory: Path) -> None:
    """Run what is missing, on two processes, and show everything."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{part}.jsonl"
    answers = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(answer["name"], answer["seed"]) for answer in answers}
    missing = [task for task in tasks(part) if (task["name"], task["seed"]) not in done]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for answer in pool.imap_unordered(run, missing):
            answers.append(answer)
            with file.open("a") as lines:
                lines.write(json.dumps(answer) + "\n")
    show(part, sorted(answers, key=lambda answer: answer["seed"]))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("clean", "networks"):
        raise SystemExit("give clean or networks, and a directory")
    main(sys.argv[1], Path(sys.argv[2]))
