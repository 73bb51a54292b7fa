"""Which method for which clients: a small task for each way in which clients differ, and methods that fit.

    python -m examples.which runs/which          # three seeds; some minutes

Writes `which.json`, `which.md` and `which.png` into the directory. What is there already is not run again.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import shoal

LOCAL = {"lr": 0.05, "batch": 10, "epochs": 3}
DIGITS = {
    "rounds": 30,
    "task": {"dataset": "digits", "model": "mlp"},
    "selector": {"name": "uniform", "count": 10},
    "local": LOCAL,
    "evaluate": {"every": 0, "clients": 30, "metrics": ["accuracy"]},
    "engine": {"mode": "serial"},
}
OWN, ALL = "mean_client_accuracy", "final_accuracy"
ROBUST = ["krum", "multikrum", "median", "trimmed_mean", "geomedian", "normclip", "fedcpa", "dsvd", "fltrust"]
PERSONAL = ["fedper", "fedrep", "ditto", "apfl", "fedamp", "genefl", "local"]
LATE = {"round": 21, "clients": "15-29"}

# by kind: the measure, what differs from DIGITS, and the methods; a table changes more than the method
KINDS: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "labels: two digits each": (
        OWN,
        {"partition": {"kind": "shards", "clients": 30, "classes": 2}},
        ["fedavg", "fedprox", "scaffold", "fedntd", "fedqp", *PERSONAL],
    ),
    "sizes: from one sample to hundreds": (
        ALL,
        {"partition": {"kind": "quantity", "clients": 30, "beta": 0.3}},
        ["fedavg", {"name": "fedavg", "weights": "uniform"}, "fedprox", "scaffold", "qfedavg", "fedqp"],
    ),
    "devices: 600 virtual seconds": (
        ALL,
        {
            "rounds": 200,
            "partition": {"kind": "dirichlet", "clients": 30, "beta": 0.5},
            "devices": "tiers",
            "evaluate": {"every": 0, "clients": 5, "metrics": ["accuracy"], "stop_at_virtual_seconds": 600},
        },
        [
            "fedavg",
            {"method": "fedavg", "selector": {"name": "fastest", "count": 10}},
            {"method": "fedavg", "selector": {"name": "oort", "count": 10}},
            {"method": {"name": "situa_cq", "preset": "fast"}, "selector": "all"},
            "fedlp",
            "fedlps",
        ],
    ),
    "liars: three of ten send the opposite": (
        ALL,
        {
            "partition": {"kind": "iid", "clients": 30},
            "attack": {"name": "sign_flip", "fraction": 0.3},
        },
        ["fedavg", *ROBUST],
    ),
    "newcomers: half come for the last ten rounds": (
        OWN,
        {
            "partition": {"kind": "shards", "clients": 30, "classes": 4},
            "arrivals": {"name": "list", "join": [LATE]},
        },
        ["fedavg", "per_cluster", "fedlg", *PERSONAL],
    ),
    "one class each": (
        ALL,
        {"partition": {"kind": "one_class", "clients": 10}, "selector": "all"},
        [
            "fedavg",
            "fedprox",
            "scaffold",
            "fedamp",
            "fedfusion",
            "fedntd",
            "local",
            {
                "method": {"name": "fsi", "epochs": 100, "alpha": 0.01},
                "task": {"dataset": "digits", "model": "logistic_ova"},
            },
        ],
    ),
    "features: four scanners": (
        OWN,
        {
            "rounds": 20,
            "local": {"lr": 0.05, "batch": 20, "epochs": 1},
            "task": {"dataset": "examples.own_data:load", "model": "examples.own_data:net"},
            "partition": "natural",
            "selector": "all",
        },
        ["fedavg", "fedbn", "partialfed", "fedper", "ditto", "apfl", "fedamp", "local"],
    ),
}


def tables(base: dict[str, Any], entry: Any) -> tuple[str, dict[str, Any]]:
    """The label and the spec of an entry."""
    changes = entry if isinstance(entry, dict) and "method" in entry else {"method": entry}
    method, selector = changes["method"], changes.get("selector")
    name = method if isinstance(method, str) else method["name"]
    label = name
    if isinstance(method, dict) and "weights" in method:
        label = f"{name}, {method['weights']}"
    if isinstance(selector, dict):
        label = f"{name}, {selector['name']}"
    spec = {**DIGITS, **base, **changes}
    if name == "fsi":
        del spec["local"]
    return label, spec


def measured(out: Path, seeds: int) -> dict[str, dict[str, list[float]]]:
    """The accuracies (%) by kind and method, one for each seed."""
    path = out / "which.json"
    found: dict[str, dict[str, list[float]]] = json.loads(path.read_text()) if path.exists() else {}
    for seed in range(seeds):
        for kind, (measure, base, entries) in KINDS.items():
            for entry in entries:
                label, spec = tables(base, entry)
                values = found.setdefault(kind, {}).setdefault(label, [])
                if len(values) <= seed:
                    values.append(100 * getattr(shoal.run({**spec, "seed": seed}), measure))
                    path.write_text(json.dumps(found, indent=1))
    return found


def ordered(values: dict[str, list[float]]) -> list[tuple[str, float, float]]:
    """Methods with mean and standard deviation, the best first."""
    rows = [(label, statistics.mean(v), statistics.pstdev(v)) for label, v in values.items()]
    return sorted(rows, key=lambda row: -row[1])


def picture(found: dict[str, dict[str, list[float]]], path: Path) -> None:
    """A panel for each kind."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(4, 2, figsize=(11, 15), layout="constrained")
    for panel, (kind, values) in zip(axes.flat, found.items(), strict=False):
        rows = ordered(values)[::-1]
        colors = ["#888888" if label in ("fedavg", "local") else "#2a6f97" for label, _, _ in rows]
        panel.barh(
            [label for label, _, _ in rows],
            [m for _, m, _ in rows],
            xerr=[s for _, _, s in rows],
            color=colors,
        )
        panel.set_title(kind, loc="left", fontsize=11)
        panel.set_xlim(0, 100)
        panel.set_xlabel(
            "accuracy (%), own models" if KINDS[kind][0] == OWN else "accuracy (%), all test samples"
        )
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes.flat[len(found) :]:
        panel.axis("off")
    figure.savefig(path, dpi=110)


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/which")
    out.mkdir(parents=True, exist_ok=True)
    found = measured(out, seeds=3)
    lines = []
    for kind, values in found.items():
        lines += [f"| {kind} | |", "|---|---|"]
        lines += [f"| {label} | {mean:.1f} ± {spread:.1f} % |" for label, mean, spread in ordered(values)]
        lines.append("")
    (out / "which.md").write_text("\n".join(lines))
    picture(found, out / "which.png")


if __name__ == "__main__":
    main()
