"""What travels between a server and its sites: a job or an answer, and a packet, each as bytes.

The packet is Shoal's own format, so that its length is the number of bytes in the record. The job says what
to do with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shoal.core.key import Key
from shoal.core.serialization import from_bytes, to_bytes
from shoal.core.types import Version

SURVEY, DESCRIBE = "survey", "describe"  # what a site holds, and that it takes part


class SiteJob(NamedTuple):
    """What a site is asked to do."""

    verb: str  # of an exchange, or one of the two above
    run: str  # a name that no other run has: memories belong to one run
    round: int = 0
    leg: int = 0
    setting: Mapping[str, Any] = {}
    key: tuple[int, int] = (0, 0)  # the client's random key for this exchange
    accepted: Version | None = None  # the version of the client's memory
    saved: Version | None = None  # the one in the server's checkpoint, to be kept too


class Answer(NamedTuple):
    """What a site says beside its packet."""

    site: int  # the id of its client
    round: int = 0
    leg: int = 0
    reason: str = ""  # why there is no packet
    told: Mapping[str, Any] = {}  # a description of the site, if asked for


def write_job(job: SiteJob) -> bytes:
    """The job as bytes."""
    plain = job._replace(setting={name: _plain(value) for name, value in job.setting.items()})
    return to_bytes({**plain._asdict(), "setting": dict(plain.setting)})


def read_job(data: bytes) -> SiteJob:
    """The inverse of `write_job`."""
    table = from_bytes(data)
    versions = {name: _version(table[name]) for name in ("accepted", "saved")}
    return SiteJob(**{**table, **versions, "key": tuple(table["key"])})


def write_answer(answer: Answer) -> bytes:
    """The answer as bytes."""
    return to_bytes({**answer._asdict(), "told": dict(answer.told)})


def read_answer(data: bytes) -> Answer:
    """The inverse of `write_answer`; raises `ValueError` for anything else."""
    try:
        answer = Answer(**from_bytes(data))
        right = isinstance(answer.reason, str) and isinstance(answer.told, dict)
        if right and all(isinstance(number, int) for number in (answer.site, answer.round, answer.leg)):
            return answer
    except Exception as error:  # the bytes come from outside and may be anything
        raise ValueError(f"its answer cannot be read: {type(error).__name__}: {error}") from None
    raise ValueError("its answer cannot be read: a field is of the wrong type")


def job_key(job: SiteJob) -> Key:
    """The client's random key."""
    return Key((job.key[0], job.key[1]))


def _version(value: Any) -> Version | None:
    return None if value is None else (value[0], value[1])


def _plain(value: Any) -> Any:
    return value.item() if type(value).__module__ == "numpy" else value


class Letter(NamedTuple):
    """A job and its packet, on their way to a node."""

    node: int
    job: bytes
    packet: bytes


class Returned(NamedTuple):
    """What came back for a letter: an answer and its packet, or an error of the network between."""

    number: str  # of the letter
    answer: bytes
    packet: bytes
    error: str = ""


class Post(Protocol):
    """Carries letters between a server and its nodes; see `server_app.py` for Flower's."""

    def nodes(self) -> Sequence[int]:
        """The nodes that are connected."""

    def send(self, letters: Sequence[Letter]) -> Sequence[str | None]:
        """Send letters; returns their numbers, None for those that cannot be sent."""

    def receive(self, numbers: Sequence[str]) -> Sequence[Returned]:
        """What has come back for these letters since the last call."""
