"""The server of a federation: Flower's SuperLink, a gateway in front of it, and the loop."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.core.errors import SpecError, StageError
from shoal.engines.flower import free_port
from shoal.federation.keys import Site
from shoal.federation.processes import ask, end, environment_of, launch, wait_for_port

APP = Path(__file__).parent / "app"
PLAN, STATUS, FAILED, NODES = "plan.json", "status.json", "failed.txt", "nodes.json"
LAST_RUN, BELL = "last_run.json", "bell"
TRIES = 3  # starts of the loop without a finished round in between


@dataclass
class Server:
    """The processes of a server. All their files are in `folder`, except for the run directory."""

    folder: Path  # for state and logs
    keys: Path | None  # the folder with certificates; None: no protection at all
    host: str
    port: int
    sites: Sequence[Site]
    _link: subprocess.Popen[bytes] | None = None
    _gateway: subprocess.Popen[bytes] | None = None
    _inner: int = 0  # the SuperLink's own port, reachable from this machine only
    _environment: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start the SuperLink and the gateway, to which sites connect."""
        self._inner = self._inner or free_port()
        self._environment = environment_of(self.folder / "flower")
        trust = "insecure = true" if self.keys is None else f'root-certificates = "{self._key("ca.crt")}"'
        address = f'[superlink.here]\naddress = "127.0.0.1:{self._inner}"'
        text = f'[superlink]\ndefault = "here"\n\n{address}\n{trust}\n'
        (self.folder / "flower" / "config.toml").write_text(text, encoding="utf-8")
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self._inner)]
        command += [
            "--database",
            str(self.folder / "superlink.db"),
            "--disable-runtime-dependency-installation",
        ]
        if self.keys is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-certfile", self._key("server.crt"), "--ssl-keyfile", self._key("server.key")]
            command += ["--ssl-ca-certfile", self._key("ca.crt"), "--enable-supernode-auth"]
        log = self.folder / "superlink.log"
        self._link = launch(command, self._environment, log)
        wait_for_port(self._inner, self._link, log)
        if self._gateway is None:
            self._start_gateway()

    def _start_gateway(self) -> None:
        secure = [] if self.keys is None else [self._key(n) for n in ("ca.crt", "server.crt", "server.key")]
        bell = str(self.folder / BELL)
        arguments = [
            "-m",
            "shoal.federation.gateway",
            self.host,
            str(self.port),
            str(self._inner),
            bell,
            *secure,
        ]
        log = self.folder / "gateway.log"
        self._gateway = launch([Path(sys.executable).name, *arguments], self._environment, log)
        wait_for_port(self.port, self._gateway, log)

    def _key(self, name: str) -> str:
        assert self.keys is not None
        return str((self.keys / name).resolve())

    def register(self) -> dict[int, int] | None:
        """Register the sites' keys with Flower: node -> client; None if sites have no keys."""
        if self.keys is None:
            return None
        path = self.folder / NODES
        known: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for site in self.sites:
            if site.public_key not in known:
                file = self.folder / f"{site.name}.pub"
                file.write_text(site.public_key, encoding="ascii")
                found = ask(["supernode", "register", str(file), "here"], self._environment)
                if not found.get("success"):
                    raise StageError(f"the key of {site.name} cannot be registered: {found}")
                known[site.public_key] = int(found["node-id"])
                path.write_text(json.dumps(known), encoding="utf-8")
        return {known[site.public_key]: site.id for site in self.sites}

    def submit(self, out: Path, nodes: dict[int, int] | None, *, simulated: bool, wait: float) -> None:
        """Start the loop, after stopping a run that may be left over."""
        last = self.folder / LAST_RUN
        if last.exists():
            ask(["stop", json.loads(last.read_text(encoding="utf-8")), "here"], self._environment)
        plan = {
            "out": str(out.resolve()),
            "sites": [(site.name, site.id) for site in self.sites],
            "nodes": nodes,
            "simulated": simulated,
            "wait": wait,
        }
        (self.folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")
        for name in (FAILED, STATUS):
            (self.folder / name).unlink(missing_ok=True)
        app = self.folder / "app"
        shutil.rmtree(app, ignore_errors=True)
        shutil.copytree(APP, app, ignore=shutil.ignore_patterns("__pycache__"))
        place = json.dumps(str(self.folder.resolve()))
        found = ask(["run", str(app), "here", "--run-config", f"folder={place}"], self._environment)
        if not found.get("success"):
            raise StageError(f"Flower does not take the app: {found.get('error-message', found)}")
        last.write_text(json.dumps(str(found["run-id"])), encoding="utf-8")

    def status(self) -> dict[str, Any]:
        """The status of the loop and its sites; raises an error if the loop has failed."""
        if (self.folder / FAILED).exists():
            kind, _, text = (self.folder / FAILED).read_text(encoding="utf-8").partition(": ")
            raise SpecError(text) if kind == "SpecError" else StageError(text)
        try:
            found: dict[str, Any] = json.loads((self.folder / STATUS).read_text(encoding="utf-8"))
            return found
        except (FileNotFoundError, ValueError):
            return {"phase": "starting", "round": 0, "rounds": 0, "last": None, "sites": []}

    @property
    def alive(self) -> bool:
        """Whether the processes are running."""
        return all(p is not None and p.poll() is None for p in (self._link, self._gateway))

    def close(self) -> None:
        """End all processes."""
        for process in (self._gateway, self._link):
            if process is not None:
                end(process)
        self._gateway = self._link = None


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server, and end it at the end of the block, however that ends."""
    try:
        server.start()
        yield server
    finally:
        server.close()


def federate(server: Server, out: Path, *, simulated: bool, wait: float, show: Any) -> None:
    """Run the federation to its end; if processes fail, restart them from the last checkpoint."""
    with running(server):
        nodes = server.register()
        tries, reached = 0, -1
        while True:
            server.submit(out, nodes, simulated=simulated, wait=wait)
            try:
                while True:
                    status = server.status()
                    show(status)
                    if status["phase"] == "finished":
                        return
                    if not server.alive:
                        raise StageError("a process of the server has ended")
                    time.sleep(0.2)
            except StageError as error:
                round = server_round(server)
                tries = tries + 1 if round == reached else 1
                reached = round
                if tries >= TRIES:
                    raise
                show({"phase": f"restarting: {error}", "round": max(round, 0), "rounds": 0, "sites": []})
                server.close()
                server.start()


def server_round(server: Server) -> int:
    """The last round in the status that the loop has written; -1 if there is none."""
    try:
        round: int = json.loads((server.folder / STATUS).read_text(encoding="utf-8"))["round"]
        return round
    except (FileNotFoundError, ValueError, KeyError):
        return -1
