"""Messages between a server and its sites: a job or an answer, and a packet, each as bytes.

The packet is in Shoal's own format, so that its length is the number of bytes in the record. The job says
what to do with the packet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shoal.core.key import Key
from shoal.core.serialization import from_bytes, to_bytes
from shoal.core.types import Version

SURVEY, DESCRIBE = "survey", "describe"  # requests for a summary of a site's data, and to join a run


class SiteJob(NamedTuple):
    """A request to a site."""

    verb: str  # of an exchange, or one of the two above
    run: str  # a unique name of the run, to which memories belong
    round: int = 0
    leg: int = 0
    setting: Mapping[str, Any] = {}
    key: tuple[int, int] = (0, 0)  # the client's random key for this exchange
    accepted: Version | None = None  # the accepted version of the client's memory
    saved: Version | None = None  # the version in the server's checkpoint, which the site must keep too


class Answer(NamedTuple):
    """The answer of a site, which accompanies its packet."""

    site: int  # its client id
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
    """A job and its packet, addressed to a node."""

    node: int
    job: bytes
    packet: bytes


class Returned(NamedTuple):
    """The response to a letter: an answer and its packet, or a network error."""

    number: str  # of the letter
    answer: bytes
    packet: bytes
    error: str = ""


class Post(Protocol):
    """Carries letters between a server and its nodes; see `server_app.py` for Flower's."""

    def nodes(self) -> Sequence[int]:
        """The connected nodes."""

    def send(self, letters: Sequence[Letter]) -> Sequence[str | None]:
        """Send letters; returns their numbers, None for those that cannot be sent."""

    def receive(self, numbers: Sequence[str]) -> Sequence[Returned]:
        """The responses to these letters since the last call."""
