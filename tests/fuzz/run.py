"""Throw mutated inputs at a reader: `python tests/fuzz/run.py --time 600 [--count 1000000] [TARGET ...]`.

Ends with 1 if a reader raises anything but Shoal's own errors, or takes much more memory than its input; the
input is then in the folder `fuzz-findings`.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.mutations import mutated
from fuzz.targets import OWN, TARGETS

MEMORY = 2**29  # bytes that a process may grow by; inputs have some thousand


class Finding(Exception):  # noqa: N818
    """An input that a reader did not survive."""

    def __init__(self, target: str, data: bytes) -> None:
        super().__init__(f"{target}: {data[:200]!r}")
        self.data = data


def fuzz(target: str, seed: int, count: float, seconds: float = float("inf")) -> int:
    """Try mutated inputs until there were so many, or the time is over; returns how many there were."""
    read, seeds = TARGETS[target]
    for data in seeds:
        read(data)
    rng, tried, pool, ends = (
        np.random.Generator(np.random.Philox(seed)),
        0,
        list(seeds),
        time.monotonic() + seconds,
    )
    while tried < count and time.monotonic() < ends:
        data = mutated(pool[int(rng.integers(len(pool)))], pool, rng)
        tried += 1
        try:
            read(data)
        except OWN:
            continue
        except Exception as error:
            raise Finding(target, data) from error
        if len(data) < 4096:  # an input that is accepted is a good start for others
            pool.append(data)
            if len(pool) > 200:
                del pool[len(seeds) + int(rng.integers(len(pool) - len(seeds)))]
    return tried


def main() -> None:
    """Fuzz each target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], default=[])
    parser.add_argument("--time", type=float, default=600, help="seconds for each target")
    parser.add_argument("--count", type=float, default=float("inf"), help="inputs for each target")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = 0
    for target in chosen.targets or TARGETS:
        started = time.monotonic()
        try:
            tried = fuzz(target, chosen.seed, chosen.count, chosen.time)
        except Finding as finding:
            found += 1
            traceback.print_exc()
            Path("fuzz-findings").mkdir(exist_ok=True)
            (Path("fuzz-findings") / target).write_bytes(finding.data)
            continue
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - used
        found += grown > MEMORY
        seconds = time.monotonic() - started
        print(
            f"{target}: {tried:,} inputs in {seconds:.0f} s, {grown / 2**20:.0f} MB more memory", flush=True
        )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
