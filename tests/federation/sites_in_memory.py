"""A federation without a network: letters go straight to the sites' clients, in this process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shoal.federation.letters import Letter, Returned
from shoal.federation.rounds import ServerPlan, run_rounds
from shoal.federation.site_client import SiteClient
from shoal.runs.directory import RunDirectory


@dataclass
class MemoryPost:
    """Nodes 100, 101, ... are the sites' clients; `lost` decides which letters vanish."""

    clients: dict[int, SiteClient]
    lost: Callable[[int, int], bool] = lambda node, count: False
    gone: set[int] = field(default_factory=set)
    count: int = 0
    letters: list[Letter] = field(default_factory=list)
    answers: dict[str, Returned] = field(default_factory=dict)

    def nodes(self):
        return [node for node in self.clients if node not in self.gone]

    def send(self, letters):
        numbers = []
        for letter in letters:
            self.count += 1
            self.letters.append(letter)
            numbers.append(str(self.count))
            if not self.lost(letter.node, self.count):
                found = self.clients[letter.node].answer(letter.job, letter.packet)
                self.answers[str(self.count)] = Returned(str(self.count), *found)
        return numbers

    def receive(self, numbers):
        return [self.answers.pop(number) for number in numbers if number in self.answers][::-1]


def sites(folder: Path, sources: list[str]) -> dict[int, SiteClient]:
    return {100 + i: SiteClient(i, source, folder / f"site{i}") for i, source in enumerate(sources)}


def plan(out: Path, count: int, *, simulated: bool) -> ServerPlan:
    nodes = {100 + i: i for i in range(count)}
    return ServerPlan(str(out), [(f"site{i}", i) for i in range(count)], nodes, simulated, 0.0)


def federated(spec, folder: Path, sources: list[str], post=None, lines=None) -> MemoryPost:
    """Run a spec on sites in memory; its directory is `folder / "run"`."""
    post = post or MemoryPost(sites(folder, sources))
    out = folder / "run"
    if not out.exists():
        RunDirectory.create(out, spec).close()
    say = (lambda line: None) if lines is None else lines.append
    planned = plan(out, len(sources), simulated=set(sources) == {"spec"})
    run_rounds(post, planned, folder / "status.json", say, report=False)
    return post
