"""The state of DSVD-FL's rule: what it remembers about clients from round to round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

FADING = 0.8  # factor on the remembered updates with each new one
SHUT_OUT = 0.1  # of the largest weight: a client below it is shut out


class Evidence(NamedTuple):
    """The rule's memory, by client, for clients that took part."""

    against: Mapping[int, tuple[float, float]]  # evidence from likeness and all else, and from company
    updates: Mapping[int, Tensor]  # [HISTORY]: a sketch of its updates so far, recent ones weighing most
    out: Mapping[int, int]  # for clients that are shut out: for how many of their rounds

    def of(self, ids: Sequence[int]) -> Tensor:
        """[2, n] float64: the evidence against clients."""
        known = [self.against.get(client, (0.0, 0.0)) for client in ids]
        return torch.tensor(known, dtype=torch.float64).T.contiguous()

    def agreement(self, ids: Sequence[int], sketches: Tensor) -> Tensor:
        """[n] float64: the cosine of each update with the client's earlier ones; NaN if there are none."""
        known = torch.tensor([client in self.updates for client in ids])
        past, here = self._earlier(ids, sketches).double(), sketches.double()
        lengths = here.norm(dim=1) * past.norm(dim=1)
        return torch.where(known, (here * past).sum(1) / lengths.clamp(min=1e-30), torch.nan)

    def updated(self, ids: Sequence[int], evidence: Tensor, sketches: Tensor, own: Tensor) -> Evidence:
        """The memory with this round's evidence and updates; reversed updates do not enter the sketches."""
        directions = sketches / sketches.norm(dim=1, keepdim=True).clamp(min=1e-30)
        now, past = FADING * self._earlier(ids, sketches) + directions, dict(self.updates)
        for client, sketch, agrees in zip(ids, now, own.tolist(), strict=True):
            if not agrees < 0:
                past[client] = sketch.clone()  # a view would keep the whole cohort in memory
        told = dict(zip(ids, map(tuple, evidence.T.tolist()), strict=True))
        against = {**self.against, **told}
        return self._replace(against=against, updates=past)

    def _earlier(self, ids: Sequence[int], like: Tensor) -> Tensor:
        """[n, HISTORY]: the sketches of clients' earlier updates; zeros for those without any."""
        nothing = torch.zeros_like(like[0])
        return torch.stack([self.updates.get(client, nothing) for client in ids])

    def judged(self, ids: Sequence[int], weights: Tensor) -> Evidence:
        """The memory with the clients that are shut out: whose weight is below `SHUT_OUT` of the largest."""
        out = {client: rounds for client, rounds in self.out.items() if client not in ids}
        for client, low in zip(ids, (weights < SHUT_OUT * weights.max()).tolist(), strict=True):
            if low:
                out[client] = self.out.get(client, 0) + 1
        return self._replace(out=dict(sorted(out.items())))
