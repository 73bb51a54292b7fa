"""Chains: a model that goes from client to client, each of which trains it further."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from shoal.core.tree import elementwise, subtract
from shoal.core.types import Cohort, Reply, Weights


class ClientChain(NamedTuple):
    """The model of a chain after the members that have replied so far."""

    first: int  # the first member whose reply was accepted
    begin: Weights  # the model that this member was sent
    model: Weights  # after the last accepted member
    update: Weights  # model - begin
    weight: Tensor  # [] float64: the samples of all accepted members

    @property
    def samples(self) -> float:
        """The samples of all accepted members."""
        return float(self.weight)


class ChainAcc(NamedTuple):
    """The accumulator of a leg."""

    chains: Mapping[int, ClientChain]
    members: Mapping[int, int]  # client -> chain
    trained: tuple[int, ...]  # the clients of this leg whose replies were accepted


def chains_of(cohort: Cohort) -> dict[int, int]:
    """The chain of each member of a leg; without a plan, every client is a chain of its own."""
    return dict(zip(cohort.ids, cohort.settings.get("chain", range(len(cohort.ids))), strict=True))


def after_member(acc: ChainAcc, client: int, sent: Weights, reply: Reply) -> ChainAcc:
    """The accumulator with one more accepted reply; `sent` is the model that the client was sent."""
    number, update = acc.members[client], reply.payload.update
    model: Weights = elementwise(lambda value, change: value + change, sent, update)
    assert reply.weight is not None
    before = acc.chains.get(number)
    if before is None:
        chain = ClientChain(client, sent, model, update, reply.weight)
    else:
        weight = before.weight + reply.weight
        chain = ClientChain(before.first, before.begin, model, subtract(model, before.begin), weight)
    return ChainAcc({**acc.chains, number: chain}, acc.members, (*acc.trained, client))
