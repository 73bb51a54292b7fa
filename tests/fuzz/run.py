"""Throw mutated inputs at a reader: `python tests/fuzz/run.py --time 600 [--count 1000000] [TARGET ...]`.

Ends with 1 if a reader raises anything but Shoal's own errors, or takes much more memory than its input; the
input is then in the folder `fuzz-findings`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.mutations import mutated
from fuzz.targets import OWN, TARGETS

ROOM = (
    2**26
)  # bytes that a reader may take beside a multiple of its input: libraries load parts of themselves
MULTIPLE = 64
PEAK = Path("/proc/self/clear_refs")  # where Linux forgets the most memory that a process ever took


def memory(field: str) -> int:
    """Bytes of this process: `VmRSS`, or `VmHWM`, the most since the peak was forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


class Finding(Exception):  # noqa: N818
    """An input that a reader did not survive."""

    def __init__(self, target: str, data: bytes) -> None:
        super().__init__(f"{target}: {data[:200]!r}")
        self.data = data


def accepted(target: str, data: bytes) -> bool:
    """Whether the reader takes the input or refuses it; raises `Finding` if it does anything else."""
    if PEAK.exists():
        PEAK.write_text("5")
        before = memory("VmRSS")
    try:
        TARGETS[target].read(data)
        taken = True
    except KeyboardInterrupt:
        raise
    except OWN:
        taken = False
    except BaseException as error:  # a library in Rust that panics has an exception of its own
        raise Finding(target, data) from error
    if PEAK.exists() and memory("VmHWM") - before > ROOM + MULTIPLE * len(data):
        raise Finding(target, data) from MemoryError(f"it took {memory('VmHWM') - before:,} bytes")
    return taken


def fuzz(target: str, seed: int, count: float, seconds: float = float("inf")) -> int:
    """Try mutated inputs until there were so many, or the time is over; returns how many there were."""
    read, seeds = TARGETS[target]
    for data in seeds:
        read(data)
    rng, tried, pool, ends = (
        np.random.Generator(np.random.Philox(seed)),
        0,
        list(seeds),
        time.process_time() + seconds,
    )
    while tried < count and time.process_time() < ends:
        data = mutated(pool[int(rng.integers(len(pool)))], pool, rng)
        tried += 1
        if (
            accepted(target, data) and len(data) < 4096
        ):  # an input that is accepted is a good start for others
            pool.append(data)
            if len(pool) > 200:
                del pool[len(seeds) + int(rng.integers(len(pool) - len(seeds)))]
    return tried


def main() -> None:
    """Fuzz each target."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], default=[])
    parser.add_argument("--time", type=float, default=600, help="seconds of processor time for each target")
    parser.add_argument("--count", type=float, default=float("inf"), help="inputs for each target")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    found = 0
    for target in chosen.targets or TARGETS:
        started = time.process_time()
        try:
            tried = fuzz(target, chosen.seed, chosen.count, chosen.time)
        except Finding as finding:
            found += 1
            traceback.print_exc()
            Path("fuzz-findings").mkdir(exist_ok=True)
            (Path("fuzz-findings") / target).write_bytes(finding.data)
            continue
        print(f"{target}: {tried:,} inputs in {time.process_time() - started:.0f} s", flush=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
