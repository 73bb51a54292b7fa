"""Exchanges with the sites of a federation."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

from shoal.core.client import read_reply
from shoal.core.codec import Codec, Packet
from shoal.core.engine import Delivery, Work
from shoal.core.key import Key
from shoal.core.outbox import Outbox
from shoal.core.types import Cohort, Tree, Version
from shoal.federation.letters import Answer, Letter, SiteJob, write_job
from shoal.federation.roster import Found, Roster, collect
from shoal.round_clock import NO_DEADLINE, Deadline, surplus


class SiteExchange:
    """Sends each member of a cohort its packet, and waits for the replies."""

    def __init__(self, codec: Codec, roster: Roster, deadline: Deadline = NO_DEADLINE) -> None:
        self._codec, self._roster, self._deadline = codec, roster, deadline
        self._round, self._began = -1, 0.0
        self._saved: Mapping[int, Version] = {}  # the memories in the last checkpoint

    def exchange(self, work: Work, cohort: Cohort, message: Tree, key: Key) -> Iterator[Delivery]:
        """See `Engine`."""
        if work.round != self._round and work.verb == "update":
            self._round, self._began, self._saved = work.round, time.monotonic(), work.accepted
        outbox = Outbox(self._codec, cohort, message, key)
        known = self._profiles(work, cohort)
        there = [
            i for i, client in enumerate(cohort.ids) if i not in known and self._node(client) is not None
        ]
        for i in there:
            self._roster.sites[cohort.ids[i]].doing = f"{work.verb}, round {work.round + 1}"
        self._roster.write()
        letters = [self._letter(work, cohort, outbox, key, i) for i in there]
        is_update = work.verb == "update"
        enough = self._deadline.needed(len(cohort.ids)) if is_update else len(cohort.ids)
        left = self._deadline.seconds - (time.monotonic() - self._began) if is_update else math.inf

        def seen(position: int, found: Found) -> None:
            self._note(cohort.ids[there[position]], found)

        found = known | dict(zip(there, collect(self._roster.post, letters, left, enough, seen), strict=True))
        answered = sum(answer is not None for answer, _, _ in found.values())
        late = (
            surplus(enough) if answered >= enough else self._deadline.missed(time.monotonic() - self._began)
        )
        for position, client in enumerate(cohort.ids):
            _, sent, down = outbox[position]
            delivery = self._delivery(work, client, sent, found.get(position), late)
            yield delivery._replace(bytes_down=down if position in found else 0)

    def _profiles(self, work: Work, cohort: Cohort) -> dict[int, Found]:
        """The profiles that sites sent together with their descriptions."""
        found: dict[int, Found] = {}
        for position, client in enumerate(cohort.ids) if work.verb == "profile" else ():
            kept = self._roster.sites[client].profile
            if kept is not None and kept[0] == work.round:
                found[position] = (Answer(client, work.round, work.leg, kept[2]), kept[1], "")
        return found

    def close(self) -> None:
        """Nothing to release."""

    def _node(self, client: int) -> int | None:
        site = self._roster.sites[client]
        return site.node if site.state == "ready" else None

    def _letter(self, work: Work, cohort: Cohort, outbox: Outbox, key: Key, position: int) -> Letter:
        client = cohort.ids[position]
        own = key.fold("client", client).words
        job = SiteJob(
            work.verb,
            self._roster.run,
            work.round,
            work.leg,
            cohort.setting(position),
            own,
            work.accepted.get(client),
            self._saved.get(client),
        )
        node = self._node(client)
        assert node is not None
        return Letter(node, write_job(job), bytes(outbox[position][0]))

    def _note(self, client: int, found: Found) -> None:
        site, (answer, _, error) = self._roster.sites[client], found
        site.doing = ""
        reason = error or ("" if answer is None else answer.reason)
        if reason:
            site.refused, site.reason = site.refused + 1, reason
            self._roster.log(f"{site.name}: {reason}")
        else:
            site.replies += 1
        self._roster.write()

    def _delivery(self, work: Work, client: int, sent: Tree, found: Found | None, late: str) -> Delivery:
        site = self._roster.sites[client]
        empty = Delivery((client,), work.version, sent, None, "", 0, 0)
        if found is None:
            return empty._replace(reason="it is not connected")
        answer, data, error = found
        if answer is None and not error:  # still at work
            site.doing = ""
            site.refused, site.reason = site.refused + 1, late
            return empty._replace(reason=late)
        if answer is None or answer.reason:
            return empty._replace(reason=error if answer is None else answer.reason)
        return self._read(work, client, empty, answer, data)

    def _read(self, work: Work, client: int, empty: Delivery, answer: Answer, data: bytes) -> Delivery:
        """The delivery of a reply; the gate checks it later."""
        if answer.site != client:
            return empty._replace(reason=f"it answers as site {answer.site}")
        try:
            packet = Packet.from_bytes(data)
        except Exception as error:  # the bytes come from outside and may be anything
            return empty._replace(reason=f"it cannot be read: {type(error).__name__}: {error}")
        reply, reason = read_reply(self._codec, work.verb, packet)
        version = (answer.round, answer.leg)
        return empty._replace(version=version, reply=reply, reason=reason, bytes_up=len(data))
