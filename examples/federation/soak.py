"""A long run in which a site is killed every 20 rounds and the server twice; nothing may be lost.

    python examples/federation/soak.py --out runs/soak --rounds 200

Three sites train with SCAFFOLD over Flower on this machine. Memory and open files of all processes are
written to soak.csv after every round; at the end the first and last quarters are compared.
"""

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from shoal.engines.os_settings import die_with_parent

SITES = ("north", "east", "south")
SPEC = """
rounds = {rounds}
[task]
dataset = "digits"
model = "mlp"
hidden = 16
[partition]
kind = "dirichlet"
clients = 3
beta = 1.0
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
"""


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
        where = ("--dir", self.out / "keys" / "sites" / name, "--data", "spec")
        return self.start(name, "client", "--server", f"localhost:{self.port}", *where)

    def serve(self):
        where = ("--dir", self.out / "keys", "--out", self.out / "run", "--port", self.port, "--simulated")
        return self.start("server", "server", self.out / "spec.toml", *where)

    def done(self):
        """The number of finished rounds."""
        path = self.out / "run" / "rounds.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def kill(self, round):
        """Kill whose turn it is after this round."""
        if round and round % 20 == 0:
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
                os.kill(process.pid, signal.SIGINT)
                process.wait()


def usage(folder):
    """Megabytes and open files of all processes that were started with files of the folder."""
    memory = files = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in (path / "cmdline").read_bytes().decode() and int(path.name) != os.getpid():
                memory += int((path / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                files += len(list((path / "fd").iterdir()))
        except OSError:  # it has just ended
            continue
    return memory / 1e6, files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--port", type=int, default=9092)
    given = parser.parse_args()
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "spec.toml").write_text(SPEC.format(rounds=given.rounds))
    keys = [sys.executable, "-m", "shoal", "keys", str(out / "keys"), "--sites", ",".join(SITES)]
    subprocess.run(keys, check=True)
    soak = Soak(out, given.rounds, given.port)
    seen = soak.done()
    try:
        with (out / "soak.csv").open("a", newline="") as file:
            while not (out / "run" / "summary.json").exists():
                if soak.server.poll() not in (None, 0):
                    sys.exit(f"the server ended with {soak.server.returncode}; {out / 'server.log'} says why")
                if soak.done() > seen:
                    seen = soak.done()
                    csv.writer(file).writerow([seen, time.time(), *usage(out)])
                    file.flush()
                    soak.kill(seen)
                time.sleep(0.5)
    finally:
        soak.close()
    report(out, given.rounds)


def report(out, rounds):
    records = [json.loads(line) for line in (out / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == list(range(1, rounds + 1))
    refused = sum(len(record["rejected"]) for record in records)
    rows = [[float(value) for value in row] for row in csv.reader((out / "soak.csv").open())]
    quarter = max(1, len(rows) // 4)
    for name, column in (("memory, MB", 2), ("open files", 3)):
        first, last = (
            sorted(r[column] for r in part)[len(part) // 2] for part in (rows[:quarter], rows[-quarter:])
        )
        print(f"{name}: median {first:.0f} in the first quarter, {last:.0f} in the last")
    print(f"{len(records)} rounds, {refused} replies missing, {(rows[-1][1] - rows[0][1]) / 60:.0f} minutes")


main()
