"""The virtual clock of a round: when each client would have replied, and which replies are too late."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shoal.core.devices import Spent
from shoal.core.engine import Delivery
from shoal.core.types import Cohort


class ClientTurn(NamedTuple):
    """One client's part in a round, in seconds since the round began."""

    client: int
    chain: int | None  # the chain that it is a member of
    start: float
    spent: Spent
    reason: str  # why its work was wasted; empty if it was not

    @property
    def end(self) -> float:
        """When its reply has arrived."""
        return self.start + self.spent.total


class Deadline(NamedTuple):
    """Which replies count."""

    seconds: float = math.inf  # since the round began; later replies do not count
    over_select: float = 1.0  # this many times the clients needed are asked, and the first replies count

    def needed(self, cohort: int) -> int:
        """How many of a cohort's replies count."""
        return math.ceil(cohort / self.over_select - 1e-9)

    def missed(self, seconds: float) -> str:
        """Why a reply that takes `seconds` does not count."""
        return f"it is late: {seconds:.3g} s, the deadline is {self.seconds:g} s"


def surplus(needed: int) -> str:
    """Why a reply that is not among the first `needed` does not count."""
    return f"it came after the first {needed} replies"


NO_DEADLINE = Deadline()


class RoundClock:
    """The clock of one round. Without simulated devices it stands still.

    Clients of a leg work in parallel, and the next leg begins when all have replied. Members of a chain,
    which the setting `chain` identifies, wait only for the member before them.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._begin = 0.0  # of this leg
        self._end = 0.0  # of everything that the server waits for
        self._chains: dict[int, float] = {}  # when each chain is free
        self._chain_of: dict[int, int] = {}
        self.turns: list[ClientTurn] = []

    @property
    def seconds(self) -> float | None:
        """The virtual time of the round so far; None if devices are not simulated."""
        return max(self._end, *self._chains.values(), 0.0) if self.turns else None

    @property
    def wasted(self) -> list[ClientTurn]:
        """The turns of clients that were too late."""
        return [turn for turn in self.turns if turn.reason]

    def next_leg(self, cohort: Cohort) -> None:
        """Begin a leg."""
        chains = cohort.settings.get("chain")
        self._chain_of = {} if chains is None else dict(zip(cohort.ids, chains, strict=True))
        if chains is None:
            self._begin = self._end

    def repeat(self, legs: int) -> None:
        """Add `legs` more legs that take as long as this one."""
        self._end += legs * (self._end - self._begin)

    def timed(self, deliveries: Iterator[Delivery], cohort: int) -> Iterator[Delivery]:
        """The deliveries of a leg; for those that are too late, their reason says so."""
        if self._deadline.over_select > 1:
            waiting = [single for delivery in deliveries for single in delivery.singles()]
            yield from self._first(waiting, self._deadline.needed(cohort))
            return
        for delivery in deliveries:
            if all(self._in_time(*pair) for pair in zip(delivery.clients, delivery.spent, strict=False)):
                self._take(delivery)
                yield delivery
            else:
                for single in delivery.singles():
                    yield self._judged(single)

    def _first(self, waiting: Sequence[Delivery], needed: int) -> Iterator[Delivery]:
        """All deliveries of clients that work in parallel; only the first `needed` replies are in time."""
        ends = [self._start(d.clients[0]) + d.spent[0].total if d.spent else 0.0 for d in waiting]
        replies = [i for i, d in enumerate(waiting) if not d.reason]
        first = set(sorted(replies, key=lambda i: (ends[i], waiting[i].clients[0]))[:needed])
        for i, single in enumerate(waiting):
            late = "" if i in first or not single.spent else surplus(needed)
            yield self._judged(single, single.reason or late)

    def _judged(self, single: Delivery, late: str = "") -> Delivery:
        """One client's delivery, with the reason if it is too late."""
        if not single.spent:
            return single
        client, spent = single.clients[0], single.spent[0]
        end = self._start(client) + spent.total
        if not late and not math.isfinite(end):
            late = "it would never reply: a rate of its device is 0"
        elif not late and end > self._deadline.seconds:
            late = self._deadline.missed(end)
        self._take(single, late)
        return single._replace(reason=single.reason or late)

    def _in_time(self, client: int, spent: Spent) -> bool:
        end = self._start(client) + spent.total
        return math.isfinite(end) and end <= self._deadline.seconds

    def _start(self, client: int) -> float:
        chain = self._chain_of.get(client)
        return self._begin if chain is None else self._chains.get(chain, self._begin)

    def _take(self, delivery: Delivery, late: str = "") -> None:
        for client, spent in zip(delivery.clients, delivery.spent, strict=False):
            turn = ClientTurn(client, self._chain_of.get(client), self._start(client), spent, late)
            self.turns.append(turn)
            end = turn.end
            if (
                late
            ):  # the server waits for a late reply until the deadline, or not at all if there is no deadline
                end = self._deadline.seconds if math.isfinite(self._deadline.seconds) else turn.start
            if turn.chain is None:
                self._end = max(self._end, end)
            else:
                self._chains[turn.chain] = max(turn.start, end)

    def recorded(self) -> dict[str, Any]:
        """The record of the clients' time."""
        if not self.turns:
            return {}
        wasted = self.wasted
        found: dict[str, Any] = {"timeline": [_line(turn) for turn in self.turns]}
        if wasted:
            found["wasted_seconds"] = sum(t.spent.total for t in wasted if math.isfinite(t.spent.total))
        return found


def _line(turn: ClientTurn) -> dict[str, Any]:
    chain = {} if turn.chain is None else {"chain": turn.chain}
    late = {"late": True} if turn.reason else {}
    return {"client": turn.client, **chain, "start": turn.start, **turn.spent._asdict(), **late}
