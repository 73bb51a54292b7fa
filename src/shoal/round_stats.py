"""The counts of a round: bytes, refused replies, and the metrics that clients report."""

from __future__ import annotations

from typing import Any

from shoal.core.engine import Delivery
from shoal.core.gate import Gate, unknown
from shoal.core.types import Cohort, Reply
from shoal.round_clock import RoundClock


class Tally:
    """The counts of one round."""

    def __init__(self, clock: RoundClock) -> None:
        self.clock = clock
        self.down = self.up = 0
        self.replies = 0  # accepted in this leg
        self.rejected: list[tuple[int, str]] = []
        self.metrics: dict[str, Any] = {}  # reported by the method
        self._before = (0, 0)  # bytes counted before this leg
        self._accepted: list[int] = []
        self._sums: dict[str, tuple[float, float]] = {}  # of the metrics that clients report
        self._leg_sums: dict[str, tuple[float, float]] = {}

    def next_leg(self, cohort: Cohort) -> None:
        """Start counting a new leg."""
        self.clock.next_leg(cohort)
        self._before = (self.down, self.up)
        self.replies = 0
        self._accepted = []
        self._sums, self._leg_sums = dict(self.sums()), {}

    def repeat(self, legs: int) -> None:
        """Count the traffic of this leg `legs` more times."""
        self.clock.repeat(legs)
        down, up = self._before
        self.down, self.up = self.down + legs * (self.down - down), self.up + legs * (self.up - up)

    def take(self, delivery: Delivery, gate: Gate) -> list[Delivery]:
        """Count a delivery; returns the parts of it that pass the gate."""
        self._count(delivery)
        if gate.block(delivery):
            return [self._accept(delivery)]
        usable = []
        for single in delivery.singles():
            reason = gate.known(single.clients[0], single.version)
            reason = reason or single.reason or ("no reply" if single.reply is None else "")
            if not reason:
                assert single.reply is not None
                reply, reason = gate.opened(single.clients[0], single.sent, single.reply, single.checked)
                single = single._replace(reply=reply)
            if reason:
                self.rejected.append((single.clients[0], reason))
            else:
                usable.append(self._accept(single))
        return usable

    def take_profile(self, delivery: Delivery, gate: Gate) -> list[Delivery]:
        """Count a delivery of profiles; returns those that pass the gate."""
        self._count(delivery)
        usable = []
        for single in delivery.singles():
            reason = gate.known(single.clients[0], single.version) or single.reason
            if not reason:
                payload = getattr(single.reply, "payload", None)
                told = isinstance(payload, dict) and payload.keys() == {"method", "selector"}
                reason = unknown(payload) if told else "its profile is missing or malformed"
            if reason:
                self.rejected.append((single.clients[0], reason))
            else:
                usable.append(single)
        return usable

    def too_few(self, needed: int) -> bool:
        """Whether this leg has too few replies to count; if so, they are all refused."""
        if not self.replies or self.replies >= needed:
            return False
        reason = f"too few replies: {self.replies}, but min_replies is {needed}"
        self.rejected += [(client, reason) for client in self._accepted]
        self.replies, self._accepted, self._leg_sums = 0, [], {}
        return True

    def sums(self) -> dict[str, tuple[float, float]]:
        """For each metric that clients report: the weighted sum so far, and the sum of the weights."""
        sums = dict(self._sums)
        for name, (total, weights) in self._leg_sums.items():
            before = sums.get(name, (0.0, 0.0))
            sums[name] = (before[0] + total, before[1] + weights)
        return sums

    def recorded(self) -> dict[str, Any]:
        """The metrics to record: means of those that clients report, as `clients.NAME`, and the method's."""
        means = {
            f"clients.{name}": total / weights for name, (total, weights) in self.sums().items() if weights
        }
        return means | self.metrics | self.clock.recorded()

    def _count(self, delivery: Delivery) -> None:
        self.down += delivery.bytes_down
        self.up += delivery.bytes_up

    def _accept(self, delivery: Delivery) -> Delivery:
        assert delivery.reply is not None
        self.replies += len(delivery.clients)
        self._accepted += delivery.clients
        self._report(delivery.reply)
        return delivery

    def _report(self, reply: Reply) -> None:
        """Add a client's metrics, weighted by its samples; values that are not finite are left out."""
        weights = [1.0] if reply.weight is None else _numbers(reply.weight)
        for name, values in reply.metrics.items():
            total, summed = self._leg_sums.get(name, (0.0, 0.0))
            for weight, value in zip(weights, _numbers(values), strict=True):
                if value - value == 0:
                    total += weight * value
                    summed += weight
            self._leg_sums[name] = (total, summed)


def _numbers(value: Any) -> list[float]:
    return value.reshape(-1).tolist() if hasattr(value, "reshape") else [value]
