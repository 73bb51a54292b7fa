"""The picture of a partition: who holds what."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shoal.catalogues import CATALOGUES
from shoal.config import write
from shoal.core.errors import SpecError
from shoal.spec import Spec

PICTURES = (".png", ".svg", ".pdf")  # what can be drawn
MOST_DRAWN = 1000  # clients; more would be thinner than a pixel


def _described(chosen: Spec) -> str:
    fields = write(chosen.partition, CATALOGUES)
    kind = fields.pop("kind")
    told = ", ".join(f"{name} = {value}" for name, value in fields.items() if name != "clients")
    return f"{kind} ({told})" if told else kind


def draw_partition(counts: np.ndarray, clients: int, chosen: Spec, path: Path) -> None:
    """A heat map of clients by classes; `counts` holds the first of the clients."""
    from shoal.report.charts import partition_picture  # matplotlib is slow to import

    title = f"{chosen.task.dataset}, {_described(chosen)}"
    if len(counts) < clients:
        title += f" (the first {len(counts):,} of {clients:,} clients)"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partition_picture(counts, [], title).savefig(path)
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}; choose another --out") from None
