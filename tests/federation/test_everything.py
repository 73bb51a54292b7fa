"""Real federations and clusters, with everything that can go wrong; run by `make test-federation`."""

import json
import os
import re
import signal
import struct
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from federation.environment import PYTHON, environment, processes_of, shoal_command, there
from federation.test_sites import METHODS, own_table, rounds, summary, table, write_table
from federation.wiretap import recorded
from safetensors.torch import load_file

import shoal
from shoal.engines.flower import free_port
from shoal.spec import dump_spec, from_table

pytestmark = [pytest.mark.federation, there]
PATIENCE = 900.0  # seconds, for a machine with better things to do


def test_a_ray_cluster_of_two_nodes_gives_the_same_bits_though_one_is_killed(tmp_path):
    tables = [{**table(name), "rounds": 3, "kill_at": 3} for name in METHODS]
    (tmp_path / "specs.json").write_text(json.dumps(tables))
    script = Path(__file__).with_name("lose_a_ray_node.py")
    done = subprocess.run(
        [PYTHON, script, tmp_path / "specs.json"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == len(tables), done.stderr[-3000:]
    for plan, seen in zip(tables, found, strict=True):
        local = shoal.run(from_table({k: v for k, v in plan.items() if k != "kill_at"}))
        assert seen["killed"], plan["method"]
        assert seen["sha"] == local.weights_sha256, plan["method"]
        assert seen["memory"] == local.memory_sha256, plan["method"]


# ---- a server and sites that are started by hand


class Hand:
    """Starts a server and sites as people do, and waits for what they say."""

    def __init__(self, folder: Path, stack: ExitStack, **more) -> None:
        self.folder, self._stack = folder, stack
        (folder / "spec.toml").write_text(dump_spec(from_table(own_table(**more))))
        names = "a,b,c,unknown"
        assert shoal_command(folder, "keys", folder / "keys", "--sites", names).returncode == 0
        listed = folder / "keys" / "server" / "sites.toml"
        blocks = listed.read_text().split("[[site]]")
        listed.write_text("[[site]]".join(block for block in blocks if "unknown" not in block))
        self.port = free_port()

    def start(self, log, *arguments, program=(PYTHON, "-m", "shoal")) -> subprocess.Popen:
        with (self.folder / log).open("ab") as file:
            process = subprocess.Popen(
                [*program, *map(str, arguments)],
                env=environment(self.folder),
                cwd=self.folder,
                stdout=file,
                stderr=file,
            )
        self._stack.callback(end, process)
        return process

    def server(self, *more, spec="spec.toml", out="run") -> subprocess.Popen:
        where = ("--dir", self.folder / "keys", "--out", self.folder / out)
        return self.start(
            "server.log", "server", spec, *where, "--host", "127.0.0.1", "--port", self.port, *more
        )

    def client(self, name, *more, place=None, data=None, port=None) -> subprocess.Popen:
        place = place or self.folder / "keys" / "sites" / name
        data = data or write_table(self.folder / f"{name}.csv", 40 + 8 * "abc".find(name[0]))
        address = f"127.0.0.1:{port or self.port}"
        return self.start(f"{name}.log", "client", "--server", address, "--dir", place, "--data", data, *more)

    def said(self, log, text, patience=PATIENCE) -> str:
        """Wait until a log has a line that matches."""
        began = time.monotonic()
        while time.monotonic() - began < patience:
            path = self.folder / log
            found = re.search(text, path.read_text()) if path.exists() else None
            if found:
                return found.group()
            time.sleep(0.2)
        raise AssertionError(f"{log} never said {text!r}:\n{(self.folder / log).read_text()[-2000:]}")


def end(process: subprocess.Popen) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.kill(process.pid, number)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                continue
    process.wait()


@contextmanager
def by_hand(folder, **more):
    with ExitStack() as stack:
        yield Hand(folder, stack, **more)
    assert processes_of(folder) == []


@pytest.fixture(scope="class")
def three_sites(tmp_path_factory):
    """Sites that hold the shares of a spec's partition, and serve one run after another."""
    with by_hand(tmp_path_factory.mktemp("federation")) as hand:
        for name in "abc":
            hand.client(name, data="spec")
        yield hand


class TestThreeSites:
    @pytest.mark.parametrize("name", METHODS)
    def test_they_give_the_bits_of_one_machine(self, name, three_sites):
        spec = from_table(table(name))
        (three_sites.folder / f"{name}.toml").write_text(dump_spec(spec))
        server = three_sites.server("--simulated", spec=f"{name}.toml", out=f"{name}/run")
        assert server.wait(PATIENCE) == 0
        found, local = summary(three_sites.folder / name), shoal.run(spec)
        assert found["weights_sha256"] == local.weights_sha256
        assert (found["bytes_up"], found["bytes_down"]) == (local.bytes_up, local.bytes_down)
        assert found["rejected"] == 0


def test_who_has_no_right_key_is_refused_and_logged(tmp_path):
    with by_hand(tmp_path, rounds=1, evaluate={"every": 0, "clients": 0}) as hand:
        server = hand.server()
        hand.said("server.log", "waiting for sites")
        hand.client("unknown")  # a key that is not on the list
        without = tmp_path / "without"
        without.mkdir()
        for name in ("ca.crt", "site.toml"):
            (without / name).write_bytes((tmp_path / "keys" / "sites" / "a" / name).read_bytes())
        hand.client("nokey", "--insecure", place=without)  # in plaintext
        address, authority = f"127.0.0.1:{hand.port}", without / "ca.crt"  # no key, but TLS
        node = Path(PYTHON).with_name("flower-supernode")
        options = ("--superlink", address, "--root-certificates", authority, "--port", free_port())
        hand.start("bare.log", *options, program=[node])
        other = tmp_path / "keys" / "sites" / "b" / "site.toml"
        right = other.read_text()
        other.write_text((tmp_path / "keys" / "sites" / "a" / "site.toml").read_text())
        liar = hand.client("b")  # says that it is a
        hand.said("server.log", r"b: refused: it says that it is site 0, but its key is that of b")
        hand.said("keys/server/state/gateway.log", "refused /v1/fleet/activate-node .* not on the list")
        hand.said("keys/server/state/gateway.log", "refused /v1/fleet/register-node .* not on the list")
        hand.said("keys/server/state/gateway.log", "refused a connection: no TLS")
        hand.said("unknown.log", "trying again")
        end(liar)
        other.write_text(right)
        hand.client("b")
        hand.said("b.log", "b: joined the run")  # once it was refused, nobody waits for it
        for name in "ac":
            hand.client(name)
        assert server.wait(PATIENCE) == 0
    assert sorted(rounds(tmp_path)[0]["cohort"]) == [0, 1, 2]


@pytest.mark.parametrize("secure", [True, False])
def test_who_listens_on_the_way_can_read_nothing(secure, tmp_path):
    how = () if secure else ("--insecure",)
    with by_hand(tmp_path, name="scaffold", rounds=1, evaluate={"every": 0}) as hand:
        server = hand.server(*how)
        with recorded(hand.port) as (port, heard):
            for name in "abc":
                hand.client(name, *how, port=port)
            assert server.wait(PATIENCE) == 0
    model = load_file(tmp_path / "run" / "model.safetensors")  # it went to the sites to be evaluated
    parameters = [tensor.numpy().tobytes() for tensor in model.values()]
    assert sum(map(len, heard)) > 10_000
    for known in (b"scaffold", b"diagnosis", *parameters):
        assert any(known in stream for stream in heard) != secure


def test_the_server_s_files_hold_no_site_s_data(tmp_path):
    with by_hand(tmp_path, name="scaffold", rounds=1) as hand:
        server = hand.server()
        for name in "abc":
            hand.client(name)
        assert server.wait(PATIENCE) == 0
    lines = {line for name in "abc" for line in (tmp_path / f"{name}.csv").read_text().split()[1:]}
    values = [[float(text) for text in line.split(",")[:-1]] for line in lines]
    rows = [struct.pack(f"<{len(row)}f", *row) for row in values] + [line.encode() for line in lines]
    files = [path for place in ("keys/server", "run") for path in (tmp_path / place).rglob("*")]
    assert {"superlink.db", "summary.json"} <= {path.name for path in files}
    for path in files:
        if path.is_file():
            data = path.read_bytes()
            assert not any(row in data for row in rows), path


def test_strangers_reach_only_what_sites_need(tmp_path):
    with by_hand(tmp_path, rounds=1) as hand:
        hand.server()
        hand.said("server.log", "waiting for sites")
        script = (
            "import httpx, sys\n"
            "for path in ('control/list-runs', 'control/register-node', 'runtime/acquire-task'):\n"
            f"    print(httpx.post('https://127.0.0.1:{hand.port}/v1/' + path, verify=False).status_code)\n"
        )
        done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["403"] * 3


def test_a_site_that_is_killed_and_a_server_that_is_killed_lose_nothing(tmp_path):
    more = {"name": "scaffold", "rounds": 60, "evaluate": {"every": 0, "clients": 0}}
    with by_hand(tmp_path, **more, faults={"deadline": 90.0}) as hand:
        server = hand.server()
        sites = {name: hand.client(name) for name in "abc"}
        hand.said("server.log", "round: 2 of 60")
        os.kill(server.pid, signal.SIGKILL)  # in the third round
        server.wait()
        server = hand.server()
        hand.said("server.log", "round: 3 of 60")
        os.kill(sites["b"].pid, signal.SIGKILL)  # in the fourth round
        sites["b"].wait()
        hand.said("server.log", "round: 4 of 60.*1 refused")
        hand.client("b")
        hand.said("server.log", r"(?s)b: not here.*round: \d+ of 60, [\d.]+ s, 3 sites\n")
        end(server)
    found = rounds(tmp_path)
    assert [r["round"] for r in found] == list(range(1, len(found) + 1))
    assert [[e["client"] for e in r["rejected"]] for r in found[:4]] == [[], [], [], [1]]
    assert sorted(found[-1]["cohort"]) == [0, 1, 2]
    assert not found[-1]["rejected"]  # so it still had its memory


def test_a_server_that_is_killed_ends_with_the_bits_of_an_undisturbed_one(tmp_path):
    more = {"name": "scaffold", "rounds": 3, "evaluate": {"every": 0, "clients": 0}}
    shas = []
    for folder, disturbed in ((tmp_path / "whole", False), (tmp_path / "parts", True)):
        folder.mkdir()
        with by_hand(folder, **more) as hand:
            server = hand.server()
            for name in "abc":
                hand.client(name)
            if disturbed:
                hand.said("server.log", "round: 1 of 3")
                os.kill(server.pid, signal.SIGKILL)
                server.wait()
                server = hand.server()
            assert server.wait(PATIENCE) == 0
        shas.append(summary(folder)["weights_sha256"])
    assert shas[0] == shas[1]
