"""`client_update`, written for one client, mapped over a block of clients by `torch.func.vmap`.

All clients of the block are padded to the same number of steps and the same batch: padding is masked, and
what a step would draw at random is drawn before, from each client's own key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.core.data import Data, Lanes
from shoal.core.engine import ClientSide
from shoal.core.tree import flatten, stack, unflatten
from shoal.core.types import Cohort, Context, Reply, Tree


def mapped_update(
    side: ClientSide,
    cohort: Cohort,
    memories: Sequence[Tree],
    message: Tree,
    context: Context,
    *,
    poisoned: bool,
) -> tuple[Tree, Reply]:
    """The memories and replies of the block, stacked. `message` has a client axis everywhere."""
    lanes, x, y = _lanes(side, cohort, context, poisoned)
    frame: list[Any] = []

    def one(memory: Tree, message: Tree, lane: dict[str, Any]) -> list[Tensor]:
        data = Lanes(x, y, **lane)
        given = side.method.client_update(side.task, memory, message, data, context)  # type: ignore[arg-type]
        frame[:], found = flatten(given)  # vmap returns tensors only
        return found

    kept, reply = unflatten(frame, torch.func.vmap(one)(stack(memories), message, lanes))
    return kept, reply


def _lanes(
    side: ClientSide, cohort: Cohort, context: Context, poisoned: bool
) -> tuple[dict[str, Any], Tensor, Tensor]:
    """Rows, masks, noise and weights of all clients, padded to one shape; and the arrays they point into."""
    batching, full = side.method.batching, bool(side.task.batch_norms)
    assert batching is not None
    keys = [context.key.fold("client", client) for client in cohort.ids]
    held = [
        side.holdings.train(client, batching, key.fold("batches"), full=full)
        for client, key in zip(cohort.ids, keys, strict=True)
    ]
    if poisoned:
        held = _joined([side.poisoned(data, (c,)) for c, data in zip(cohort.ids, held, strict=True)])
    steps = max(len(data.plan.step_ptr) - 1 for data in held)
    padded = [_padded(data, steps, batching.batch) for data in held]
    lanes = {
        "rows": torch.from_numpy(np.stack([rows for rows, _ in padded])),
        "mask": torch.from_numpy(np.stack([mask for _, mask in padded])),
        "noise": {
            name: torch.stack(
                [
                    _noise(side, name, key.fold("noise"), mask)
                    for key, (_, mask) in zip(keys, padded, strict=True)
                ]
            )
            for name in side.task.noise_shapes
        },
        "weight": torch.stack([data.weight for data in held]),
    }
    return lanes, held[0].x, held[0].y


def _joined(held: Sequence[Data]) -> list[Data]:
    """Samples that each client has in arrays of its own, in arrays that they share."""
    x, y = torch.cat([data.x for data in held]), torch.cat([data.y for data in held])
    starts = np.cumsum([0, *(len(data.x) for data in held)])
    return [
        replace(data, x=x, y=y, rows=data.rows + start) for data, start in zip(held, starts, strict=False)
    ]


def _padded(data: Data, steps: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """[steps, batch]: the rows of each step, and which of them are real."""
    rows, mask = np.zeros((steps, batch), np.int64), np.zeros((steps, batch), np.float32)
    order = data.rows[data.plan.order]
    for step, (first, last) in enumerate(pairwise(data.plan.step_ptr.tolist())):
        rows[step, : last - first] = order[first:last]
        mask[step, : last - first] = 1
    return rows, mask


def _noise(side: ClientSide, name: str, key: Any, mask: np.ndarray) -> Tensor:
    """[steps, batch, ...]: what the client alone would have drawn, and zeros in the padding."""
    drawn = torch.zeros(*mask.shape, *side.task.noise_shapes[name])
    for step, count in enumerate(mask.sum(1).astype(int).tolist()):
        if count:
            drawn[step, :count] = side.task.noise(key.fold(step), count)[name]
    return drawn
