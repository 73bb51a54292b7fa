"""A long run in which a site is killed every 20 rounds and the server twice; nothing may be lost.

    python examples/federation/soak.py --out runs/soak --rounds 200

Three sites with tables of their own train with SCAFFOLD over Flower on this machine. Memory and open files of
all processes are written to soak.csv after every round; at the end the first and last quarters are compared.
Then the rounds are repeated in this process, without a network, with the same sites missing in the same
rounds. If anything was lost or counted twice, the two models differ.
"""

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

from shoal.engines.os_settings import die_with_parent
from shoal.federation.letters import Returned, read_job
from shoal.federation.rounds import ServerPlan, run_rounds
from shoal.federation.site_client import SiteClient
from shoal.runs.build import load_and_partition
from shoal.runs.directory import RunDirectory
from shoal.spec import from_table, load_spec

SITES = ("north", "east", "south")
PIXELS = [f"p{i}" for i in range(64)]
SHARES = {
    "task": {"dataset": "digits"},
    "partition": {"kind": "dirichlet", "clients": len(SITES), "beta": 1.0},
}
SPEC = f"""
rounds = {{rounds}}
[task]
dataset = "digits"
model = "mlp"
hidden = 16
[method]
name = "scaffold"
[selector]
fraction = 1.0
[faults]
deadline = 120.0
on_error = "refuse"
[evaluate]
every = 0
clients = 0
[sites]
columns = {PIXELS}
label = "digit"
classes = {[str(i) for i in range(10)]}
"""
KINDS = {  # processes, by a part of their command line
    "shoal server": "shoal server",
    "flower-superlink": "SuperLink",
    "federation.gateway": "gateway",
    "flwr-serverapp": "loop",
    "shoal client": "shoal client",
    "flower-supernode": "SuperNode",
    "federation.warm_app": "relays",
    "flower-superexec": "SuperExec",
}


def write_tables(out):
    """One CSV file for each site."""
    dataset, shards = load_and_partition(from_table(SHARES))
    for number, name in enumerate(SITES):
        with (out / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*PIXELS, "digit"])
            for row in shards.indices(number):
                writer.writerow([*dataset.x_train[row].flatten().tolist(), int(dataset.y_train[row])])


class Soak:
    def __init__(self, out, rounds, port):
        self.out, self.rounds, self.port = out, rounds, port
        self.sites = {name: self.site(name) for name in SITES}
        self.server = self.serve()

    def start(self, log, *arguments):
        with (self.out / f"{log}.log").open("a") as file:
            command = [sys.executable, "-m", "shoal", *map(str, arguments)]
            return subprocess.Popen(command, preexec_fn=die_with_parent, stdout=file, stderr=file)

    def site(self, name):
        where = ("--dir", self.out / "keys" / "sites" / name, "--data", self.out / f"{name}.csv")
        return self.start(name, "client", "--server", f"localhost:{self.port}", *where)

    def serve(self):
        where = ("--dir", self.out / "keys", "--out", self.out / "run", "--port", self.port)
        return self.start("server", "server", self.out / "spec.toml", *where)

    def kill(self, round):
        """Kill whose turn it is after this round."""
        if round and round % 20 == 0 and round < self.rounds:
            name = SITES[round // 20 % len(SITES)]
            os.kill(self.sites[name].pid, signal.SIGKILL)
            self.sites[name].wait()
            self.sites[name] = self.site(name)
        if round in (self.rounds // 3, 2 * self.rounds // 3):
            os.kill(self.server.pid, signal.SIGKILL)
            self.server.wait()
            self.server = self.serve()

    def close(self):
        for process in (self.server, *self.sites.values()):
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)  # heeded in the background too
                process.wait()


def records(run):
    path = run / "rounds.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # the last one may not be whole
    return [json.loads(line) for line in lines]


def usage(folder):
    """Megabytes and open files of all processes that have to do with the folder, by their kind."""
    found = {kind: [0.0, 0] for kind in KINDS.values()}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(folder) in line or str(folder).encode() in (path / "environ").read_bytes():
                kind = next((kind for part, kind in KINDS.items() if part in line), None)
                if kind is not None:
                    pages = int((path / "statm").read_text().split()[1])
                    found[kind][0] += pages * os.sysconf("SC_PAGE_SIZE") / 1e6
                    found[kind][1] += len(list((path / "fd").iterdir()))
        except OSError:  # it has just ended
            continue
    return found


class Replay:
    """Carries letters to sites in this process, and loses those whose replies were missing."""

    def __init__(self, out, place, found):
        self.sites = {
            i: SiteClient(i, str(out / f"{name}.csv"), place / name) for i, name in enumerate(SITES)
        }
        self.run, self.found, self.answers = place / "run", found, {}

    def nodes(self):
        at = len(records(self.run))
        return self.found[min(at, len(self.found) - 1)]["cohort"] if at else list(self.sites)

    def send(self, letters):
        numbers = []
        for letter in letters:
            job, number = read_job(letter.job), str(len(self.answers))
            missing = [refused["client"] for refused in self.found[job.round]["rejected"]]
            if job.verb == "update" and letter.node in missing:
                self.answers[number] = Returned(number, b"", b"", "missing")
            else:
                answer = self.sites[letter.node].answer(letter.job, letter.packet)
                self.answers[number] = Returned(number, *answer)
            numbers.append(number)
        return numbers

    def receive(self, numbers):
        return [self.answers[number] for number in numbers]


def replayed(out, found):
    """The fingerprint of the model that the same rounds give without a network."""
    place = out / "replay"
    RunDirectory.create(place / "run", load_spec(out / "spec.toml")).close()
    names = [(name, i) for i, name in enumerate(SITES)]
    nodes = {i: i for i in range(len(SITES))}
    plan = ServerPlan(str(place / "run"), names, nodes, simulated=False, wait=0.0)
    run_rounds(Replay(out, place, found), plan, None, lambda line: None, report=False)
    return json.loads((place / "run" / "summary.json").read_text())["weights_sha256"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--port", type=int, default=9092)
    given = parser.parse_args()
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "spec.toml").write_text(SPEC.format(rounds=given.rounds))
    write_tables(out)
    keys = [sys.executable, "-m", "shoal", "keys", str(out / "keys"), "--sites", ",".join(SITES)]
    subprocess.run(keys, check=True)
    soak = Soak(out, given.rounds, given.port)
    seen = len(records(out / "run"))
    try:
        with (out / "soak.csv").open("a", newline="") as file:
            while not (out / "run" / "summary.json").exists():
                if soak.server.poll() not in (None, 0):
                    sys.exit(f"the server ended with {soak.server.returncode}; {out / 'server.log'} says why")
                if len(records(out / "run")) > seen:
                    seen = len(records(out / "run"))
                    for kind, (memory, files) in usage(out).items():
                        csv.writer(file).writerow([seen, time.time(), kind, memory, files])
                    file.flush()
                    soak.kill(seen)
                time.sleep(0.5)
    finally:
        soak.close()
    report(out, given.rounds)


def report(out, rounds):
    found = records(out / "run")
    assert [record["round"] for record in found] == list(range(1, rounds + 1))
    rows = list(csv.reader((out / "soak.csv").open()))
    print(f"{'':14} {'MB':>8} {'':8} {'files':>8}")
    print(f"{'process':14} {'first':>8} {'last':>8} {'first':>8} {'last':>8}   quarter, median")
    for kind in KINDS.values():
        of = [row for row in rows if row[2] == kind]
        first, last = of[: rounds // 4], of[-rounds // 4 :]
        values = [median(float(row[i]) for row in part) for i in (3, 4) for part in (first, last)]
        print(f"{kind:14} {values[0]:8.0f} {values[1]:8.0f} {values[2]:8.0f} {values[3]:8.0f}")
    reasons = Counter(refused["reason"] for record in found for refused in record["rejected"])
    absent = sum(len(SITES) - len(record["cohort"]) for record in found)
    minutes = (float(rows[-1][1]) - float(rows[0][1])) / 60
    print(f"{rounds} rounds in {minutes:.0f} minutes; sites were away {absent} times; replies missing:")
    for reason, count in reasons.items():
        print(f"  {count} x {reason}")
    sha = json.loads((out / "run" / "summary.json").read_text())["weights_sha256"]
    print(
        "without a network, the same bits" if replayed(out, found) == sha else "WITHOUT A NETWORK, OTHER BITS"
    )


main()
