"""A short description of a run: the line under the title of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.report.runs import RunView, brief, method_of, number, table_of


def facts(run: RunView) -> dict[str, str]:
    """Name -> value; a value is empty if it is unknown."""
    task = table_of(run.spec, "task")
    return {
        "Method": method_of(run),
        "Data set": str(task.get("dataset") or run.summary.get("dataset") or ""),
        "Model": str(task.get("model") or run.summary.get("model") or ""),
        "Clients": _clients(run),
        "Partition": partition_text(table_of(run.spec, "partition")),
        "Rounds": str(planned(run) or len(run.rounds)),
        "Seed": str(run.spec.get("seed", "")),
    }


def shared_facts(runs: Sequence[RunView]) -> dict[str, str]:
    """The facts that are the same for all runs, and the list of seeds."""
    told = [facts(run) for run in runs]
    shared = {name: value for name, value in told[0].items() if all(other[name] == value for other in told)}
    seeds = {run.spec["seed"] for run in runs if isinstance(run.spec.get("seed"), int)}
    shared.pop("Seed", None)
    return shared | {"Seeds" if len(seeds) > 1 else "Seed": ", ".join(map(str, sorted(seeds)))}


def planned(run: RunView) -> int | None:
    """The planned number of rounds."""
    rounds = number(run.spec.get("rounds"))
    return None if rounds is None else int(rounds)


def population(run: RunView) -> int | None:
    """The number of clients; None if it is unknown."""
    clients = number(table_of(run.spec, "partition").get("clients"))
    return len(run.summary.get("clients", ())) or None if clients is None else int(clients)


def progress(run: RunView) -> str:
    """How far an unfinished run has come."""
    done, goal = (int(run.rounds[-1]["round"]) if run.rounds else 0), planned(run)
    return f"unfinished: {done} of {goal} rounds" if goal else f"unfinished: {done} rounds"


def _clients(run: RunView) -> str:
    clients = population(run)
    sizes = [len(row["cohort"]) for row in run.rounds if row.get("cohort")]
    told = "" if clients is None else f"{clients:,}"
    if not sizes or max(sizes) == clients:
        return told
    a_round = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return f"{told}, {a_round} per round" if told else f"{a_round} per round"


def partition_text(partition: Mapping[str, Any]) -> str:
    """The `[partition]` table of a spec as text, such as `dirichlet (beta = 0.1)`, without its clients."""
    kind = str(partition.get("kind", ""))
    details = [f"{k} = {brief(v)}" for k, v in partition.items() if k not in ("kind", "clients")]
    return f"{kind} ({', '.join(details)})" if details and kind else kind


def sample_text(run: RunView) -> str:
    """A sentence on which clients were evaluated; empty if all were, or if it is unknown."""
    clients, sample = population(run), number(table_of(run.spec, "evaluate").get("clients"))
    if clients is None or sample is None or sample >= clients:
        return ""
    return f"Measured on {int(sample):,} of {clients:,} clients."
