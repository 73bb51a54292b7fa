"""The rounds of a federation on its server: from the last checkpoint to the end."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.core.client import ClientData
from shoal.core.data import Batching, Block, Data, Shards
from shoal.core.errors import SpecError, StageError
from shoal.core.key import Key
from shoal.engines.local import LocalEngine, RemoteRunner
from shoal.federation.agreement import load_or_negotiate
from shoal.federation.exchange import SiteExchange
from shoal.federation.letters import Post
from shoal.federation.own_files import asks_agreement
from shoal.federation.roster import WAITING, Roster, SiteState
from shoal.federation.site_client import SiteInvitation, invitation_packet, run_name
from shoal.federation.site_data import Expected, expected_of
from shoal.loop import start
from shoal.round_clock import NO_DEADLINE, Deadline
from shoal.run_settings import Checkpoint
from shoal.runs.build import Setup, as_method, build, client_side, load_and_partition, make_task, server_side
from shoal.runs.crowd import fleet_of
from shoal.runs.directory import RunDirectory
from shoal.runs.files import write_atomic
from shoal.runs.runner import environment, one_thread, run_remaining_rounds
from shoal.spec import Spec, dump_spec

AGREEMENT = "agreement"  # in the run's directory: the encoding of samples at all sites
RUN = "federation.json"  # in the run's directory: the name of the run


class ServerPlan(NamedTuple):
    """The task of a server."""

    out: str  # the run's directory
    sites: Sequence[tuple[str, int]]  # name and id of each
    nodes: dict[int, int] | None  # node -> id, from the list of keys
    simulated: bool  # whether the sites hold the shares of the spec's own partition
    wait: float  # seconds to wait for all sites


class NoData(ClientData):
    """The clients' data on a server, which has none."""

    def train(self, client: int, batching: Batching | None, key: Key, *, full: bool) -> Data:
        """See `ClientData`."""
        raise StageError("a server has no data of its clients")

    def block(self, clients: Sequence[int], batching: Batching, words: np.ndarray) -> Block:
        """See `ClientData`."""
        raise StageError("a server has no data of its clients")

    def test(self, client: int) -> Data:
        """See `ClientData`."""
        raise StageError("a server has no data of its clients")

    def common(self, client: int) -> Data:
        """See `ClientData`."""
        raise StageError("a server has no data of its clients")


@dataclass(frozen=True)
class DeclaredShards(Shards):
    """Shards of which only the sizes are known, as declared by the sites."""

    roster: Roster

    def __len__(self) -> int:
        return len(self.roster.sites)

    def indices(self, client: int) -> np.ndarray:
        """See `Shards`."""
        raise StageError("a server has no data of its clients")

    def count(self, client: int) -> int:
        """The declared number of samples."""
        return self.roster.sites[client].samples


def run_rounds(
    post: Post, plan: ServerPlan, status: Path | None, log: Callable[[str], None], *, report: bool = True
) -> None:
    """Run the rounds that are missing in the run's directory."""
    directory, spec = RunDirectory.open(Path(plan.out))
    spec = replace(spec, checkpoint=Checkpoint(1, 0.0))  # sites keep memories back to the last one
    directory.lock()
    with one_thread(), contextlib.closing(directory):
        text = dump_spec(spec)
        sites = {number: SiteState(site, number) for site, number in plan.sites}
        roster = Roster(post, run_name(text, _token(directory)), b"", sites, plan.nodes, status, log=log)
        roster.status = {"phase": WAITING, "round": 0, "rounds": spec.rounds, "last": None}
        saved = directory.load_checkpoint()
        roster.status["round"] = roster.round = len(saved.records)
        key = spec.seeds.key("order", spec.seed)
        roster.profile_key = lambda round: key.fold("round", round).fold("admit")
        agreed = None
        if asks_agreement(spec) and not plan.simulated:
            agreed = load_or_negotiate(roster, spec, text, directory.path / AGREEMENT, plan.wait)
        expected = expected_of(spec, agreed)
        roster.invitation = invitation_packet(text, SiteInvitation(spec, expected, _attackers(spec)))
        roster.wait(plan.wait, spec.faults.min_replies, list(sites))
        setup = _simulated(spec, roster) if plan.simulated else _real(spec, expected, roster)
        progress = saved.progress or start(setup.federation)
        if saved.progress is not None and saved.environment != environment():
            log(f"this run was started on {saved.environment} and continues on {environment()}")
        roster.status["phase"] = "running"

        def watch(record: dict[str, Any]) -> None:
            roster.status |= {"round": record["round"], "last": record}
            roster.write()

        run_remaining_rounds(setup, progress, saved.records, directory, watch, report)
        roster.status["phase"] = "finished"
        roster.write()


def _token(directory: RunDirectory) -> str:
    """A random token that distinguishes this run from others of the same spec."""
    path = directory.path / RUN
    if not path.exists():
        write_atomic(path, json.dumps({"token": secrets.token_hex(8)}).encode())
    token: str = json.loads(path.read_text(encoding="utf-8"))["token"]
    return token


def _attackers(spec: Spec) -> frozenset[int]:
    """The attackers of a simulated federation."""
    if spec.attack is None:
        return frozenset()
    if spec.attack.knows != "own":
        raise SpecError("[attack] colluding attackers must run in one place; run it on engine local")
    key = spec.seeds.key("order", spec.seed).fold("attackers")
    return spec.attack.members(len(load_and_partition(spec)[1]), key)


def _simulated(spec: Spec, roster: Roster) -> Setup:
    """The server of a federation whose sites hold the shares of the spec's partition."""
    runner = SiteExchange(spec.codec, roster)
    return build(spec, RemoteRunner(lambda side, store: runner, keeps_memories=True))


def _real(spec: Spec, expected: Expected, roster: Roster) -> Setup:
    """The server of a federation whose sites hold their own data."""
    faults = spec.faults
    deadline = Deadline(math.inf if faults.deadline is None else faults.deadline, faults.over_select)
    runner = SiteExchange(spec.codec, roster, deadline)
    task, shards = make_task(spec, expected.samples()), DeclaredShards(roster)
    side = client_side(spec, task, NoData())
    asks = as_method(spec.method).asks_report or spec.selector.asks_report
    fleet = fleet_of(spec, task, shards) if asks else None
    remote = RemoteRunner(lambda side, store: runner, keeps_memories=True)
    engine = LocalEngine(side, shards, "serial", 1, _Timetable(roster, faults.min_replies), fleet, remote)
    federation = server_side(spec, task, engine, len(roster.sites))
    spec.selector.check(len(roster.sites))
    return Setup(spec, replace(federation, deadline=NO_DEADLINE), None, shards, side)


class _Timetable:
    """The sites that are connected in each round, fixed for the whole round.

    A round does not start with too few sites for its replies to count: while all sites are away, no rounds
    are used up.
    """

    def __init__(self, roster: Roster, least: int) -> None:
        self._roster, self._least = roster, least
        self._rounds: dict[int, tuple[int, ...]] = {}

    def __call__(self, round: int) -> tuple[int, ...]:
        if round not in self._rounds:
            if self._rounds and round < max(self._rounds):  # before this server was started
                return self._rounds[min(self._rounds)]
            self._roster.round = round
            self._rounds[round] = self._roster.wait(0.0, self._least, ())
        return self._rounds[round]
