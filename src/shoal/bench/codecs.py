"""The throughput of codecs, compared with a copy of the same memory, on one core."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from shoal.bench.rounds import Row
from shoal.codecs.combined import Chain
from shoal.codecs.float_format import FloatFormat
from shoal.codecs.qsgd import Qsgd
from shoal.codecs.sign import Sign
from shoal.codecs.sparse import RandomK, TopK
from shoal.codecs.uniform import BITS, UniformAffine
from shoal.core.codec import Codec
from shoal.core.key import Key
from shoal.runs.runner import one_thread

SIZE = 10**7  # float32 numbers
TURNS = 5
_KEY = Key.from_seed(0)

CODECS: Mapping[str, Codec] = {
    **{f"uniform, {bits} bit": UniformAffine(bits) for bits in BITS[:-1]},
    **{f"uniform, {bits} bit, stochastic": UniformAffine(bits, "stochastic") for bits in (1, 4, 8, 16)},
    **{f"qsgd, {bits} bit": Qsgd(bits) for bits in (2, 4, 8)},
    **{f"float, {name}": FloatFormat(name) for name in ("e5m2", "float16", "bfloat16")},
    "float, e5m2, stochastic": FloatFormat("e5m2", "stochastic"),
    "top_k, 1 %": TopK(0.01, feedback=False),
    "top_k, 1 %, feedback": TopK(0.01),
    "random_k, 1 %": RandomK(0.01, feedback=False),
    "sign": Sign(feedback=False),
    "sign, feedback": Sign(),
    "top_k, 1 %, then uniform, 4 bit": Chain((TopK(0.01, feedback=False), UniformAffine(4))),
}


def measure(
    size: int = SIZE, turns: int = TURNS, watcher: Callable[[str, str], None] | None = None
) -> Iterator[Row]:
    """One row per codec: gigabytes of float32 per second, and their ratio to those of a copy.

    A turn copies, encodes and decodes, so that load on the machine affects all three alike.
    """
    draw = _KEY.fold("numbers").torch()
    values = {"x": torch.randn(size, generator=draw)}
    with one_thread():
        for name, codec in CODECS.items():
            if watcher is not None:
                watcher("codecs", name)
            yield _measured(name, codec, values, turns)


def _measured(name: str, codec: Codec, values: dict[str, torch.Tensor], turns: int) -> Row:
    size = values["x"].numel()
    space = torch.empty_like(values["x"])
    packet, memory = codec.encode(values, key=_KEY)
    codec.decode(packet)
    times: dict[str, list[float]] = {"copy": [], "encode": [], "decode": []}
    for _ in range(turns):
        times["copy"].append(_seconds(lambda: space.copy_(values["x"])))
        times["encode"].append(_seconds(lambda: codec.encode(values, key=_KEY, memory=memory)))
        times["decode"].append(_seconds(lambda: codec.decode(packet)))
    speed = {part: 4e-9 * size / statistics.median(found) for part, found in times.items()}
    return {
        "codec": name,
        "bits_per_number": 8 * packet.nbytes / size,
        **{f"{part}_gb_per_second": found for part, found in speed.items()},
        "encode_to_copy": speed["encode"] / speed["copy"],
        "decode_to_copy": speed["decode"] / speed["copy"],
    }


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
