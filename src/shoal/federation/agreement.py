"""The agreement of a federation's sites on the encoding of their samples, before the first round."""

from __future__ import annotations

import time
from pathlib import Path

from shoal.core.errors import SpecError
from shoal.core.serialization import from_bytes, to_bytes
from shoal.data.sites import Agreement, SiteSummary, agree
from shoal.federation.letters import SURVEY, Letter, SiteJob, write_job
from shoal.federation.own_files import agreement_tree, own_source, read_agreement, read_summary
from shoal.federation.roster import DESCRIPTION, SLOW_POLL, Roster, SiteState, collect
from shoal.runs.files import write_atomic
from shoal.spec import Spec


def load_or_negotiate(roster: Roster, spec: Spec, text: str, file: Path, seconds: float) -> Agreement:
    """The agreement of this run: from the file, or a new one, which is written to it."""
    if not file.exists():
        summaries = _surveyed(roster, text, seconds, spec.faults.min_replies)
        write_atomic(file, to_bytes(agreement_tree(_agreed(roster, spec, summaries))))
    return read_agreement(from_bytes(file.read_bytes()))


Told = tuple[int, SiteSummary]  # a node, and the summary of its columns


def _surveyed(roster: Roster, text: str, seconds: float, least: int) -> dict[int, Told]:
    """The summaries of all sites; after `seconds`, of those that are connected, if they are enough."""
    began, asked = time.monotonic(), set[int]()
    found: dict[int, Told] = {}
    job, packet = write_job(SiteJob(SURVEY, roster.run)), to_bytes({"spec": text})
    while True:
        new = [n for n in sorted(roster.post.nodes()) if n not in asked and roster.knows(n)]
        asked.update(new)
        letters = [Letter(node, job, packet) for node in new]
        for node, (answer, told, error) in zip(
            new, collect(roster.post, letters, DESCRIPTION) if new else (), strict=True
        ):
            site = roster.site_of(node, answer)
            if site is None:
                continue
            reason = error or ("" if answer is None else answer.reason)
            try:
                if not reason:
                    found[site.id] = (node, read_summary(from_bytes(told), site.name))
            except Exception as problem:  # the bytes come from outside and may be anything
                reason = f"its summary cannot be read: {type(problem).__name__}: {problem}"
            if reason:
                _refuse(roster, site, node, reason)
        roster.write()
        late = time.monotonic() - began > seconds
        if len(asked) >= len(roster.sites) or (late and len(found) >= least):
            return found
        time.sleep(SLOW_POLL)


def _agreed(roster: Roster, spec: Spec, told: dict[int, Told]) -> Agreement:
    """The agreement of the compatible sites, in the order of their ids."""
    options = own_source(spec.task, "", "").options
    fit: list[SiteSummary] = []
    for number in sorted(told):
        node, summary = told[number]
        try:
            agree([*fit, summary], options)
        except SpecError as error:
            _refuse(roster, roster.sites[number], node, str(error))
        else:
            fit.append(summary)
    if not fit:
        raise SpecError("no site has data that the spec can be trained on")
    return agree(fit, options)


def _refuse(roster: Roster, site: SiteState, node: int | None, reason: str) -> None:
    site.node, site.state, site.reason = node, "refused", reason
    roster.log(f"{site.name} is refused: {reason}")
