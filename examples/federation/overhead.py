"""What an exchange costs beyond the work: 4 clients and a model of 62,006 parameters.

    python examples/federation/overhead.py --out runs/overhead --engines local,ray,flower

Each client has four images, so that a round is next to no training. The table shows the seconds of a round,
without the first three, in which everything is started and loaded.
"""

import argparse
import json
from pathlib import Path
from statistics import median

import numpy as np

import shoal
from shoal.spec import from_table

FIRST = 3
ROUNDS = {"local": 33, "ray": 33, "flower": 13}


def spec(images, engine):
    return from_table(
        {
            "rounds": ROUNDS[engine],
            "task": {"dataset": "npz", "path": str(images), "model": "lenet"},
            "partition": {"kind": "iid", "clients": 4},
            "local": {"batch": 4, "epochs": 1},
            "selector": {"fraction": 1.0},
            "evaluate": {"every": 0, "clients": 0},
            "engine": {"name": engine, **({"workers": 2} if engine == "ray" else {})},
        }
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/overhead"))
    parser.add_argument("--engines", default="local,ray,flower")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    images = (given.out / "images.npz").resolve()
    x = (np.arange(20 * 3 * 32 * 32) % 97 / 97).astype(np.float32).reshape(20, 3, 32, 32)
    np.savez(images, x=x, y=np.arange(20) % 10)
    print(f"{'engine':8} {'least':>8} {'median':>8} {'most':>8}   ms a round")
    for engine in given.engines.split(","):
        place = given.out / engine
        shoal.run(spec(images, engine), place)
        records = [json.loads(line) for line in (place / "rounds.jsonl").read_text().splitlines()]
        assert not any(record["rejected"] for record in records)
        times = [1e3 * record["seconds"] for record in records[FIRST:]]
        print(f"{engine:8} {min(times):8.1f} {median(times):8.1f} {max(times):8.1f}", flush=True)


if __name__ == "__main__":
    main()
