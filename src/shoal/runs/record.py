"""The record of a run: one line per round, and a summary."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shoal.loop import Round
from shoal.spec import Spec
from shoal.task_parts import part_name

FAIRNESS = ("mean_client_", "worst_client_", "client_", "finetuned_")  # prefixes of metrics over clients
Record = dict[str, Any]


def as_record(
    round: int, metrics: Mapping[str, Any], done: Round, seconds: float, names: Sequence[str] = ()
) -> Record:
    """The record of one round; `names` are the clients' names, if they have any."""
    return {
        "round": round,
        **done.metrics,
        **metrics,
        "bytes_up": done.bytes_up,
        "bytes_down": done.bytes_down,
        "seconds": seconds,
        "virtual_seconds": done.seconds,
        "cohort": list(done.cohort),
        **({"sites": [names[client] for client in done.cohort]} if names else {}),
        "rejected": [{"client": client, "reason": reason} for client, reason in done.rejected],
    }


def attackers_weight(weights: Mapping[Any, float] | None, attackers: Collection[int]) -> dict[str, float]:
    """The total weight of attackers and of honest clients in a round, as shares that sum to 1.

    Empty if the aggregation rule reports no weights.
    """
    if not weights:
        return {}
    given = {int(client): abs(float(weight)) for client, weight in weights.items()}
    total = sum(given.values())
    if not total:
        return {}
    lost = sum(weight for client, weight in given.items() if client in attackers)
    return {"attackers_weight": lost / total, "honest_weight": (total - lost) / total}


def attackers_step_share(shares: Mapping[Any, float] | None, attackers: Collection[int]) -> dict[str, float]:
    """The attackers' share of the server step, if the aggregation rule reports the clients' shares.

    It is negative if they held the model back.
    """
    if not shares:
        return {}
    theirs = (float(share) for client, share in shares.items() if int(client) in attackers)
    return {"attackers_step_share": sum(theirs)}


def _virtual(records: Sequence[Record]) -> float | None:
    """The total virtual time of all rounds; None without devices."""
    found = [record["virtual_seconds"] for record in records if record["virtual_seconds"] is not None]
    return sum(found) if found else None


def summarise(spec: Spec, records: Sequence[Record]) -> dict[str, Any]:
    """The summary of a whole run."""
    last = records[-1]
    accuracies = [r["accuracy"] for r in records if r.get("accuracy") is not None]
    kept = ("final_loss", "balanced_accuracy", "f1", "auc", "attack_success", "known", "newcomers")
    measures = {name: last[name] for name in kept if name in last}
    measures |= {name: value for name, value in last.items() if name.startswith(FAIRNESS)}
    if "mse" in last:
        errors = [r["mse"] for r in records if r["mse"] is not None]
        scores: dict[str, Any] = {"final_mse": last["mse"], "min_mse": min(errors, default=None)}
    else:
        mean = sum(accuracies) / len(accuracies) if accuracies else None
        scores = {
            "final_accuracy": last["accuracy"],
            "max_accuracy": max(accuracies, default=None),
            "mean_accuracy": mean,
        }
    return {
        "method": spec.method_name,
        "dataset": part_name(spec.task.dataset),
        "model": part_name(spec.task.model),
        "seed": spec.seed,
        "rounds": len(records),
        **scores,
        "final_loss": last["loss"],
        **measures,
        **{name: sum(r[name] for r in records) for name in ("bytes_up", "bytes_down", "seconds")},
        "virtual_seconds": _virtual(records),
        "rejected": sum(len(r["rejected"]) for r in records),
    }
