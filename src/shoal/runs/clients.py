"""The results of each client: its samples, its participation, and the quality of its model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from shoal.data import label_matrix
from shoal.loop import Progress
from shoal.runs.build import Setup
from shoal.runs.evaluation import OWN, shown_clients
from shoal.runs.record import Record


def client_summary(setup: Setup, progress: Progress, records: Sequence[Record]) -> dict[str, Any]:
    """The part of a run's summary on individual clients (above 1,000, only the evaluated sample)."""
    dataset, shards = setup.dataset, setup.shards
    clients = shown_clients(setup.spec, len(shards))
    classes = setup.federation.task.classes
    measure = "accuracy" if classes else "mse"
    last = _by_client(records[-1].get(f"{OWN}{measure}"))
    took_part = Counter(client for record in records for client in record["cohort"])
    refused = Counter(entry["client"] for record in records for entry in record["rejected"])
    weights: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        for client, weight in _by_client(record.get("weights")).items():
            weights[client].append(float(weight))
    # a server without data does not know its clients' labels
    labels = label_matrix(dataset, shards, clients).tolist() if classes and dataset is not None else []
    rows = []
    for place, client in enumerate(clients):
        rows.append(
            {
                "client": client,
                **({"name": shards.names[client]} if shards.names else {}),
                "samples": shards.count(client),
                **({"labels": labels[place]} if labels else {}),
                "rounds": took_part[client],
                measure: last.get(client),
                "weight": sum(weights[client]) / len(weights[client]) if weights[client] else None,
                "refused": refused[client],
            }
        )
    return {
        "personalised": setup.federation.method.model(progress.state) is None,
        **({"class_names": list(dataset.class_names)} if dataset and dataset.class_names else {}),
        "clients": rows,
    }


def _by_client(found: Any) -> dict[int, Any]:
    """Convert client ids to integers: in a record read from a file, they are strings."""
    return {int(client): value for client, value in (found or {}).items() if value is not None}
