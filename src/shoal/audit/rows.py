"""The results of an audit as rows of text, for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.report.table import NOTHING

HEAD = ("Upload", "Sent", "kB", "Attack", "Labels %", "Knows all", "Lacks rest", "s/image")
Answers = Mapping[str, Mapping[str, Any]]  # by the label of the upload


class AuditRow(NamedTuple):
    """One upload or signature, and how well the attacks on it work."""

    upload: str
    sent: str  # the share of the weights that is sent, or what is sent instead
    size: str  # kB
    attack: str
    labels: str  # %
    knows: str  # dB, for the attacker with all weights
    lacks: str  # dB, for the attacker with only the uploaded tensors
    seconds: str


def rows(answers: Answers) -> list[AuditRow]:
    """A row for each upload, and one for the signature of its clients if there is one."""
    found = []
    for label, answer in answers.items():
        found.append(_row(label, answer))
        told = answer["signature"]
        if told is not None:
            found.append(
                AuditRow(
                    "  its signature",
                    "a profile",
                    NOTHING,
                    "read off",
                    NOTHING,
                    _decibels(told),
                    NOTHING,
                    _seconds(told),
                )
            )
    return found


def _row(label: str, answer: Mapping[str, Any]) -> AuditRow:
    knows, lacks, learned = answer["knows"], answer["lacks"], answer["statistics"]
    if learned is not None:
        exact = f"X'X {learned['gram_error']:.0e}"  # the relative error; that of X'y is in the JSON
        return AuditRow(label, _sent(answer), _size(answer), "losses", NOTHING, exact, NOTHING, NOTHING)
    return AuditRow(
        label,
        _sent(answer),
        _size(answer),
        answer["attack"] or NOTHING,
        _labels(answer),
        _decibels(knows),
        _decibels(lacks),
        _seconds(knows),
    )


def _sent(answer: Mapping[str, Any]) -> str:
    if answer["reason"]:
        return f"nothing: {answer['reason']}"
    share = [f"{100 * answer['numbers'] / answer['total']:.0f} %"] if answer["travelled"] else []
    return " + ".join([*share, *answer["beside"]]) or "nothing"


def _size(answer: Mapping[str, Any]) -> str:
    return f"{answer['bytes_up'] / 1000:,.1f}"


def _labels(answer: Mapping[str, Any]) -> str:
    """The share found by the bias rule, else by the row rule, else by the attack itself."""
    found = [*answer["rules"].values(), (answer["knows"] or {}).get("labels")]
    known = [share for share in found if share is not None]
    return f"{100 * known[0]:.0f}" if known else NOTHING


def _decibels(found: Mapping[str, Any] | None) -> str:
    return NOTHING if found is None else f"{found['psnr']:.1f}"


def _seconds(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NOTHING
    return "< 0.1" if found["seconds"] < 0.1 else f"{found['seconds']:.1f}"
