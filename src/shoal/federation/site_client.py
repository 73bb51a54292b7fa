"""The site's half of a federation: data, model and memories in a long-running process."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from shoal.core.client import ClientSide
from shoal.core.codec import Packet
from shoal.core.engine import TRAINING, Memory
from shoal.core.errors import DeclinedError, SpecError
from shoal.core.key import Key
from shoal.core.privacy import Privacy
from shoal.core.serialization import from_bytes, to_bytes
from shoal.core.training import solver_of
from shoal.core.types import Context, Reply, Version, Weights
from shoal.federation.letters import DESCRIBE, SURVEY, Answer, SiteJob, job_key, read_job, write_answer
from shoal.federation.own_files import asks_agreement, own_source, summary_tree
from shoal.federation.site_data import Expected, open_source
from shoal.runs.build import client_side, make_task
from shoal.runs.files import write_atomic
from shoal.runs.runner import environment
from shoal.spec import Spec, from_table

SECRET = "secret"  # the name of the file with the seed of a site's own noise


class SiteInvitation(NamedTuple):
    """The information about a run that the server sends to a site."""

    spec: Spec
    expected: Expected
    attackers: frozenset[int]  # in a simulated federation


def read_invitation(packet: bytes) -> SiteInvitation:
    """The invitation in the packet of a `describe` job."""
    table = from_bytes(packet)
    expected = Expected(**{**table["expected"], "shape": tuple(table["expected"]["shape"])})
    spec = from_table(tomllib.loads(table["spec"]))
    return SiteInvitation(spec, expected, frozenset(table["attackers"]))


@dataclass
class Joined:
    """The run in which a site takes part."""

    run: str
    side: ClientSide
    expected: Expected
    samples: int
    evaluates: bool  # whether updates include an evaluation of the model that was sent


class SiteClient:
    """Answers the jobs of a server."""

    def __init__(
        self, number: int, source: str, folder: Path, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._number, self._source, self._folder, self._say = number, source, folder, say
        self._joined: Joined | None = None

    def answer(self, job_bytes: bytes, packet: bytes) -> tuple[bytes, bytes]:
        """The answer to a job, and its packet."""
        job = read_job(job_bytes)
        try:
            if job.verb == SURVEY:
                return self._surveyed(job, packet)
            return self._described(job, packet) if job.verb == DESCRIBE else self._visited(job, packet)
        except (SpecError, DeclinedError) as error:
            self._say(f"cannot serve the server's spec: {error}")
            return self._written(job, reason=str(error)), b""
        except Exception as error:
            self._say("".join(traceback.format_exception(error)))  # stays here: it may show data
            kind = type(error.__cause__ or error).__name__
            return self._written(job, reason=f"{kind} at the site; its log says more"), b""

    def _written(self, job: SiteJob, **fields: Any) -> bytes:
        return write_answer(Answer(self._number, job.round, job.leg, **fields))

    def _surveyed(self, job: SiteJob, packet: bytes) -> tuple[bytes, bytes]:
        """Answer a survey: the summary of this site's columns."""
        spec = from_table(tomllib.loads(from_bytes(packet)["spec"]))
        if not asks_agreement(spec):
            raise SpecError("the server asks for a summary of files, but its spec names a data set")
        summary = own_source(spec.task, f"site {self._number}", self._source).summary()
        self._say(f"sent a summary of {len(summary.columns)} columns and {summary.train} training samples")
        return self._written(job), to_bytes(summary_tree(summary))

    def _described(self, job: SiteJob, packet: bytes) -> tuple[bytes, bytes]:
        """Join a run: the site's description of itself, and its profile as the packet if requested."""
        self._joined = self._join(job.run, read_invitation(packet), packet)
        told = {"samples": self._joined.samples, "environment": environment()}
        side = self._joined.side
        if not (side.method.asks_profile or side.selector.asks_profile):
            return self._written(job, told=told), b""
        context = Context(job.round, 0, {}, job_key(job).fold("client", self._number))
        visit = side.visit("profile", self._number, side.fresh, Packet(()), context)
        profile = b"" if visit.answer is None else bytes(visit.answer)
        return self._written(job, told={**told, "declined": visit.reason}), profile

    def _join(self, run: str, invitation: SiteInvitation, packet: bytes) -> Joined:
        joined = join(run, invitation, self._number, self._source, self._folder)
        for other in (self._folder / "memory").glob("*"):  # from earlier runs
            if other.name != run:
                shutil.rmtree(other, ignore_errors=True)
        (self._folder / "memory" / run).mkdir(parents=True, exist_ok=True)
        write_atomic(self._folder / "memory" / run / "invitation", packet)
        self._say(f"joined the run of {invitation.spec.method_name} with {joined.samples} samples")
        return joined

    def _current(self, run: str) -> Joined:
        """The run of a job; after a restart, from the stored invitation."""
        if self._joined is None or self._joined.run != run:
            kept = self._folder / "memory" / run / "invitation"
            if not kept.exists():
                raise DeclinedError("it has not been invited to this run")
            self._joined = join(
                run, read_invitation(kept.read_bytes()), self._number, self._source, self._folder
            )
        return self._joined

    def _visited(self, job: SiteJob, packet: bytes) -> tuple[bytes, bytes]:
        joined = self._current(job.run)
        memory = self._memory(job) or joined.side.fresh
        context = Context(job.round, job.leg, job.setting, job_key(job))
        visit = joined.side.visit(job.verb, self._number, memory, Packet.from_bytes(packet), context)  # type: ignore[arg-type]
        if visit.answer is None:
            self._say(f"round {job.round + 1}: {visit.reason}")
            return self._written(job, reason=visit.reason), b""
        if job.verb in TRAINING and joined.side.remembers:
            self._keep(job, visit.memory)
        if job.verb not in TRAINING:
            return self._written(job), bytes(visit.answer)
        content: Reply = visit.answer.content
        if joined.evaluates:
            model = sent_model(joined.side, Packet.from_bytes(packet))
            content = content._replace(
                metrics={**content.metrics, **evaluated(joined.side, self._number, model)}
            )
        sent = bytes(Packet(content))
        losses = [f", loss {float(v):.3g}" for n, v in content.metrics.items() if n == "train_loss"]
        self._say(f"round {job.round + 1}: sent {len(sent):,} bytes{''.join(losses)}")
        return self._written(job), sent

    # ---- memories, in the site's own files

    def _path(self, run: str, version: Version) -> Path:
        return self._folder / "memory" / run / f"{version[0]}-{version[1]}"

    def _memory(self, job: SiteJob) -> Memory | None:
        if job.accepted is None:
            return None
        path = self._path(job.run, job.accepted)
        if not path.exists():
            raise DeclinedError(f"its memory of round {job.accepted[0] + 1} is lost")
        memory: Memory = from_bytes(path.read_bytes())
        return memory

    def _keep(self, job: SiteJob, memory: Memory) -> None:
        wanted = {(job.round, job.leg), job.accepted, job.saved} - {None}
        write_atomic(self._path(job.run, (job.round, job.leg)), to_bytes(memory))
        names = {self._path(job.run, version).name for version in wanted if version} | {"invitation"}
        for file in (self._folder / "memory" / job.run).iterdir():
            if file.name not in names and not file.name.startswith("."):
                file.unlink()


def join(run: str, invitation: SiteInvitation, number: int, source: str, folder: Path) -> Joined:
    """Build the client of a site; raises `SpecError` if the site cannot serve the spec."""
    spec, expected, attackers = invitation
    data, samples = open_source(source, spec, expected, number)
    if spec.attack is not None and source != "spec":
        raise SpecError("this spec has an [attack]; a site with data of its own does not take part in it")
    if spec.privacy is not None and samples < spec.privacy.min_samples:
        raise SpecError(f"it holds {samples} samples, fewer than privacy.min_samples")
    task = make_task(spec, expected.samples())
    side = client_side(spec, task, data, attackers)
    if spec.privacy is not None and source != "spec":
        side = replace(side, privacy=OwnNoise(spec.privacy, _secret(folder)))
    solver = solver_of(side.method)
    if solver is not None:
        solver.prepare(task)  # before the site is ready: rounds have deadlines
    evaluates = source != "spec" and spec.evaluate.clients > 0
    side = replace(
        side, tolerates_errors=source == "spec"
    )  # at a real site, an error message could reveal data
    return Joined(run, side, expected, samples, evaluates)


def sent_model(side: ClientSide, packet: Packet) -> Weights | None:
    """The model in a message; None if there is no complete one."""
    model = getattr(side.codec.for_direction("down").decode(packet), "model", None)
    whole = isinstance(model, Weights) and set(model.params) == set(side.task.shapes)
    return model if whole else None


def evaluated(side: ClientSide, client: int, model: Weights | None) -> dict[str, Tensor]:
    """The metrics of a model on the site's own test samples; empty without a model or samples."""
    data = side.data.test(client)
    if model is None or not data.count:
        return {}
    return {f"sent_{name}": value for name, value in side.evaluator(side.task, model, data).items()}


def invitation_packet(text: str, invitation: SiteInvitation) -> bytes:
    """The packet of a `describe` job; `text` is the spec in TOML."""
    expected = {**invitation.expected._asdict(), "shape": list(invitation.expected.shape)}
    return to_bytes({"spec": text, "expected": expected, "attackers": sorted(invitation.attackers)})


@dataclass(frozen=True)
class OwnNoise(Privacy):
    """Draws noise from a secret that only the site knows, so that the server cannot subtract it."""

    inner: Privacy
    secret: int

    def protect(self, reply: Reply, key: Key) -> Reply:
        """See `Privacy`."""
        return self.inner.protect(reply, Key.from_seed(self.secret).fold(*key.words))


def _secret(folder: Path) -> int:
    """A number that only this site knows, drawn once."""
    import secrets

    path = folder / SECRET
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(str(secrets.randbits(128)), encoding="ascii")
    return int(path.read_text(encoding="ascii"))


def run_name(spec_text: str, token: str) -> str:
    """A name for a run, from its spec and a token that differs between runs."""
    return hashlib.sha256(f"{token}\0{spec_text}".encode()).hexdigest()[:16]
