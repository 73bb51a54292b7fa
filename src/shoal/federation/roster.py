"""The sites of a federation, as the server sees them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal.core.key import Key
from shoal.federation.letters import DESCRIBE, Answer, Letter, Post, SiteJob, read_answer, write_job

POLL = 0.2  # seconds between two polls for answers, which cost Flower some work; grows up to the next one
SLOW_POLL = 0.5
WAITING = "waiting for sites"
DESCRIPTION = 300.0  # seconds in which a site must describe itself: it may have to load and compile


@dataclass
class SiteState:
    """The state of one site: its connection, its activity, and its last error."""

    name: str
    id: int
    node: int | None = None  # its node id in Flower
    state: str = "not here"  # not here, joining, ready, refused
    doing: str = ""
    samples: int = 0
    replies: int = 0
    refused: int = 0
    reason: str = ""  # of its last refusal
    environment: str = ""
    profile: tuple[int, bytes, str] | None = None  # the round, the profile, and the reason if it is missing


@dataclass
class Roster:
    """The sites that have joined; asks new ones to describe themselves, and writes the status to a file."""

    post: Post
    run: str  # the name of the run
    invitation: bytes  # the packet with which a site is asked to describe itself
    sites: dict[int, SiteState]  # by client id
    nodes: Mapping[int, int] | None  # node -> client, from the list of keys; None: sites identify themselves
    file: Path | None = None  # the status file, which the screen reads
    status: dict[str, Any] = field(default_factory=dict)
    round: int = 0  # the next round
    profile_key: Callable[[int], Key] = lambda round: Key((0, 0))  # the key for the profiles of a round
    log: Callable[[str], None] = lambda line: None

    def refresh(self) -> tuple[int, ...]:
        """The clients that are ready, after new sites have described themselves."""
        connected = set(self.post.nodes())
        for site in self.sites.values():
            if site.node is not None and site.node not in connected and site.state != "not here":
                self.log(f"{site.name} has left")
                site.state, site.doing, site.node = "not here", "", None
        known = {site.node for site in self.sites.values()}
        new = [node for node in sorted(connected - known) if self.knows(node)]
        if new:
            self._describe(new)
        self.write()
        return tuple(sorted(site.id for site in self.sites.values() if site.state == "ready"))

    def knows(self, node: int) -> bool:
        """Whether a node may belong to a site."""
        return self.nodes is None or node in self.nodes

    def site_of(self, node: int, answer: Answer | None) -> SiteState | None:
        """The site of a node: by its key, or without keys by its own claim."""
        number = self.nodes[node] if self.nodes is not None else None if answer is None else answer.site
        if number not in self.sites:
            self.log(f"a node that says it is site {number} is not on the list; it is ignored")
            return None
        return self.sites[number]

    def wait(self, seconds: float, least: int, wanted: Sequence[int]) -> tuple[int, ...]:
        """The ready sites: wait for all wanted ones, but after `seconds` only for at least `least`."""
        began, phase = time.monotonic(), self.status.get("phase")
        while True:
            ready = self.refresh()
            refused = [site.id for site in self.sites.values() if site.state == "refused"]
            all_there = {*ready, *refused} >= set(wanted)
            if len(ready) >= least and (all_there or time.monotonic() - began > seconds):
                self.status["phase"] = phase
                return ready
            self.status["phase"] = WAITING
            time.sleep(SLOW_POLL)

    def _describe(self, nodes: Sequence[int]) -> None:
        key = self.profile_key(self.round).words
        job = write_job(SiteJob(DESCRIBE, self.run, self.round, key=key))
        for node in nodes:
            if self.nodes is not None:
                self.sites[self.nodes[node]].state = "joining"
        self.write()
        found = collect(self.post, [Letter(node, job, self.invitation) for node in nodes], DESCRIPTION)
        for node, (answer, profile, error) in zip(nodes, found, strict=True):
            site = self.site_of(node, answer)
            if site is not None:
                self._told(site, node, answer, error)
                declined = "" if answer is None else str(answer.told.get("declined", ""))
                site.profile = (self.round, profile, declined)

    def _told(self, site: SiteState, node: int, answer: Answer | None, error: str) -> None:
        """Process a site's description of itself."""
        reason = error
        if answer is not None:
            samples = answer.told.get("samples")
            if answer.site != site.id:
                reason = f"it says that it is site {answer.site}, but its key is that of {site.name}"
            elif answer.reason:
                reason = answer.reason
            elif not isinstance(samples, int) or isinstance(samples, bool) or samples < 0:
                reason = "it does not say how many samples it holds"
            else:
                site.samples, site.environment = samples, str(answer.told.get("environment", ""))
        site.node = node if answer is not None else None  # without an answer, it is asked again
        site.state = "refused" if reason else "ready"
        if reason:
            site.reason = reason
        self.log(f"{site.name} is refused: {reason}" if reason else f"{site.name} has joined")

    def write(self) -> None:
        """Write the status to the file."""
        if self.file is not None:
            shown = [{**asdict(site), "profile": None} for site in self.sites.values()]
            table = {**self.status, "sites": shown}
            temporary = self.file.with_suffix(".part")
            temporary.write_text(json.dumps(table), encoding="utf-8")
            temporary.replace(self.file)


Found = tuple[Answer | None, bytes, str]  # the answer, its packet, and the reason if it is missing


def collect(
    post: Post,
    letters: Sequence[Letter],
    seconds: float,
    enough: int | None = None,
    seen: Callable[[int, Found], None] = lambda position, found: None,
) -> list[Found]:
    """Send letters and collect the answers, in order, until time is up or enough sites have answered.

    Letters without an answer by then have an empty reason.
    """
    began, pause = time.monotonic(), POLL
    found: list[Found] = [(None, b"", "")] * len(letters)
    waiting: dict[str, int] = {}
    for position, number in enumerate(post.send(letters)):
        if number is None:
            found[position] = (None, b"", "the message could not be sent")
            seen(position, found[position])
        else:
            waiting[number] = position
    answered = 0
    while waiting and answered < (enough or len(letters)):
        for returned in post.receive(list(waiting)):
            position = waiting.pop(returned.number)
            found[position] = _opened(returned.answer, returned.packet, returned.error)
            answered += not found[position][2]
            seen(position, found[position])
            pause = POLL
        if time.monotonic() - began >= seconds:  # what has arrived by then counts
            break
        if waiting:
            time.sleep(pause)
            pause = min(1.2 * pause, SLOW_POLL)
    return found


def _opened(answer: bytes, packet: bytes, error: str) -> Found:
    if error:
        return None, b"", error
    try:
        return read_answer(answer), packet, ""
    except ValueError as reason:
        return None, b"", str(reason)
