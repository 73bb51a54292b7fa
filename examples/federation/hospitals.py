"""Four hospitals, each with its own CSV file, train together; three methods are compared.

    python examples/federation/hospitals.py --out runs/federation

Everything runs on this machine, with the commands that would run on five: `shoal keys`, one `shoal server`,
four `shoal client`. At the end, each result is compared with that of one machine that has all data.
"""

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import shoal
from shoal.data.hospitals import HEART_FEATURES, HEART_HOSPITALS
from shoal.engines.os_settings import die_with_parent
from shoal.overrides import with_method
from shoal.runs.build import load_and_partition
from shoal.spec import from_table, load_table

SPEC = Path(__file__).with_name("hospitals.toml")
METHODS = ("fedavg", "scaffold", "dsvd")


def write_tables(folder):
    """One CSV file for each hospital, as its own people would write it."""
    dataset, shards = load_and_partition(from_table(load_table(SPEC)))
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(HEART_HOSPITALS):
        test = (dataset.groups_test == number).nonzero()[0]
        parts = (
            ("train", dataset.x_train, dataset.y_train, shards.indices(number)),
            ("test", dataset.x_test, dataset.y_test, test),
        )
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*HEART_FEATURES, "disease", "split"])
            for split, x, y, rows in parts:
                for row in rows:
                    label = ("no", "yes")[int(y[row])]
                    writer.writerow([*map(repr, x[row].tolist()), label, split])


def shoal_process(*arguments, **options):
    command = [sys.executable, "-m", "shoal", *map(str, arguments)]
    return subprocess.Popen(command, preexec_fn=die_with_parent, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/federation"))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--port", default="9092")
    given = parser.parse_args()
    out = given.out.resolve()
    write_tables(out / "data")
    shoal_process("keys", out / "keys", "--sites", ",".join(HEART_HOSPITALS)).wait()
    hospitals = []
    for name in HEART_HOSPITALS:
        place = out / "keys" / "sites" / name
        options = ("--dir", place, "--data", out / "data" / f"{name}.csv")
        with (out / f"{name}.log").open("a") as log:
            hospitals.append(
                shoal_process(
                    "client", "--server", f"localhost:{given.port}", *options, stdout=log, stderr=log
                )
            )
    rows = []
    try:
        for method in given.methods.split(","):
            options = ("--dir", out / "keys", "--out", out / method, "--port", given.port)
            if not (out / method / "summary.json").exists():
                server = shoal_process("server", SPEC, "--set", f"method.name={method}", *options)
                if server.wait():
                    sys.exit(
                        f"the server of {method} failed; its logs are in {out / 'keys' / 'server' / 'state'}"
                    )
            rows.append((method, json.loads((out / method / "summary.json").read_text())))
    finally:
        for hospital in hospitals:
            os.kill(hospital.pid, signal.SIGTERM)
        for hospital in hospitals:
            hospital.wait()
    print(f"\n{'method':10} {'mean %':>7} {'worst %':>8} {'sent up':>9} {'seconds':>8}   as one machine")
    for method, found in rows:
        local = shoal.run(from_table(with_method(load_table(SPEC), method)))
        same = "same bits" if local.weights_sha256 == found["weights_sha256"] else "OTHER BITS"
        mean, worst = (100 * found[f"{name}_client_accuracy"] for name in ("mean", "worst"))
        up, seconds = found["bytes_up"] / 1e3, found["seconds"]
        print(f"{method:10} {mean:7.1f} {worst:8.1f} {up:6.0f} kB {seconds:8.0f}   {same}")


try:
    main()
except shoal.SpecError as error:
    print(f"shoal: {error}", file=sys.stderr)
    sys.exit(2)
