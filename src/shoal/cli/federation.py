"""Commands of a real federation: keys, server, client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.options import SetOption, gc_paused_for_imports, interruptible, print_error
from shoal.core.errors import SpecError

INSECURE = "No TLS and no keys: anybody can read, change and forge everything. For trials on one machine."
Insecure = Annotated[bool, typer.Option("--insecure", help=INSECURE)]


def keys(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the keys.")],
    sites: Annotated[str, typer.Option(help="Names of the sites, separated by commas.")],
    hosts: Annotated[
        str, typer.Option(help="Host names and addresses under which sites reach the server.")
    ] = "localhost",
) -> None:
    """Create the certificates and keys of a federation, or add sites to an existing one."""
    from shoal.federation.keys import make_keys
    from shoal.federation.processes import check_flower

    check_flower()
    names = [name.strip() for name in sites.split(",")]
    made = make_keys(directory, names, [host.strip() for host in hosts.split(",")])
    print(f"{directory / 'server'} stays on the server.")
    for site in made:
        place = directory / "sites" / site.name
        print(f"Send {place} to {site.name} over a channel that nobody else can read; then delete it here.")


def server(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Spec of the run.")],
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="Folder created by `shoal keys`; also for state and logs."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="RUN", help="Directory of the run; default DIR/run. An existing run is resumed."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9092,
    wait: Annotated[
        float,
        typer.Option(help="Seconds to wait for all sites; then the run starts with those connected."),
    ] = 3600.0,
    settings: SetOption = None,
    insecure: Insecure = False,
    simulated: Annotated[bool, typer.Option("--simulated", hidden=True)] = False,
) -> None:
    """Serve a federation: wait for its sites, run its rounds, show the progress.

    After a crash, the same command continues from the last checkpoint; the result is the same, bit for bit.
    """
    with gc_paused_for_imports():
        from shoal.federation.keys import read_sites
        from shoal.federation.processes import check_flower
        from shoal.federation.screen import Screen
        from shoal.federation.server_process import Server, federate
        from shoal.overrides import with_settings
        from shoal.runs.directory import RunDirectory
        from shoal.runs.runner import environment
        from shoal.spec import from_table, load_table

    check_flower()
    folder = directory / "server" if (directory / "server").exists() else directory
    sites = read_sites(folder)
    if insecure:
        print_error(f"warning: --insecure. {INSECURE}")
    chosen = from_table(with_settings(load_table(spec), settings or []))
    place = out or directory / "run"
    if place.exists():
        if RunDirectory.reopen(place, chosen).finished:
            raise SpecError(f"{place} is finished; for another run choose another --out")
    else:
        RunDirectory.create(place, chosen, environment()).close()  # the loop is another process
    served = Server(folder / "state", None if insecure else folder, host, port, sites)
    with (
        interruptible(lambda: "the same command continues where it stopped"),
        Screen(f"{chosen.method_name}, {len(sites)} sites, port {port}") as screen,
    ):
        federate(served, place, simulated=simulated, wait=wait, show=screen.show)
    print(f"Report: {place / 'report.html'}")


def client(
    data: Annotated[
        str,
        typer.Option(metavar="SOURCE", help="CSV file, data set, or a part of one: heart_disease/va."),
    ],
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="The site's folder from `shoal keys`; also for memories."),
    ],
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the server.")] = "",
    explain: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC.toml", help="List what would leave the site under this spec; send nothing."
        ),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Take part in a federation with the data of this site, until stopped.

    Data and client memory stay in this folder; a lost connection is restored automatically.
    """
    with gc_paused_for_imports():
        from shoal.federation.processes import check_flower
        from shoal.federation.site_client import SiteClient
        from shoal.federation.site_process import Node, read_membership, take_part
        from shoal.runs.runner import one_thread

    who = read_membership(directory)
    if explain is not None:
        _explain(explain, data, directory, who.id)
        return
    if not server:
        raise SpecError("--server HOST:PORT is missing")
    check_flower()
    if insecure:
        print_error(f"warning: --insecure. {INSECURE}")

    def say(line: str) -> None:
        import time

        print(f"{time.strftime('%H:%M:%S')} {who.name}: {line}", flush=True)

    node = Node(server, who, directory, say, insecure)
    say(f"connecting to {server}")
    with one_thread(), interruptible(lambda: "the same command continues where it stopped"):
        take_part(node, SiteClient(who.id, data, directory, say).answer)


def _explain(spec: Path, source: str, directory: Path, client: int) -> None:
    from shoal.data.sites import agree
    from shoal.federation.explain import explained
    from shoal.federation.own_files import asks_agreement, own_source
    from shoal.federation.site_client import SiteInvitation, join
    from shoal.federation.site_data import expected_of
    from shoal.runs.runner import one_thread
    from shoal.spec import load_spec
    from shoal.terminal import show_table

    chosen = load_spec(spec)
    with one_thread():
        agreed = None
        if asks_agreement(chosen):  # as if there were no other site
            own = own_source(chosen.task, "this site", source)
            agreed = agree([own.summary()], own.options)
        invitation = SiteInvitation(chosen, expected_of(chosen, agreed), frozenset())
        joined = join("", invitation, client, source, directory)
        rows = [list(line) for line in explained(chosen, joined, client)]
    show_table("What leaves this site; nothing has been sent", ["when", "what", "size"], rows)
