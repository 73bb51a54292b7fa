"""Floats: floating-point tensors in a number format with fewer bits.

| format | bits | after the point | largest | smallest |
|---|---|---|---|---|
| `float16` | 16 | 10 | 65,504 | 2^-24 |
| `bfloat16` | 16 | 7 | 3.4e38 | 9e-41 |
| `e5m2` | 8 | 2 | 57,344 | 2^-16 |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shoal.codecs.leaves import bits_of, dtype_name, map_tensors, numbers, reshaped, unmap_tensors, words_of
from shoal.core.codec import Codec, Packet
from shoal.core.errors import SpecError
from shoal.core.key import Key
from shoal.core.types import Setting, Tree
from shoal.kernels.formats import FORMATS, TRANSFER, FormatName, round_either

_DTYPES = {"e5m2": torch.float8_e5m2, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BY_BITS: dict[int, FormatName] = {8: "e5m2", 16: "float16", 32: "float32"}


class Short(NamedTuple):
    """A tensor in fewer bits, and its original dtype."""

    values: Tensor
    dtype: str

    def whole(self) -> Tensor:
        """The tensor in its own dtype."""
        return reshaped(self.values, tuple(self.values.shape), self.dtype)


@dataclass(frozen=True)
class FloatFormat(Codec):
    """A shorter number format: "e5m2" (8 bits), "float16" or "bfloat16"; "float32" changes nothing.

    A client's setting `format`, or `bits` (8: e5m2, 16: float16, 32: float32), takes precedence. Finite
    values beyond the largest of the format are clamped to it; inf and nan stay.
    """

    format: FormatName = "float16"
    rounding: Literal["nearest", "stochastic"] = "nearest"

    def encode(
        self,
        tree: Tree,
        *,
        setting: Setting | None = None,
        key: Key | None = None,
        reference: Tree = None,
        memory: Any = None,
    ) -> tuple[Packet, Any]:
        """See `Codec`."""
        name = _name(self.format, setting or {})
        if name == "float32":
            return Packet(tree), memory
        size, random = _DTYPES[name].itemsize, self.rounding == "stochastic"

        def shorten(path: str, leaf: Tensor) -> Tensor | Short:
            if leaf.element_size() <= size:
                return leaf
            words = words_of(key, path, "stochastic rounding") if random else None
            short = _cut(leaf, name) if words is None else _drawn(leaf, name, words)
            return Short(short, dtype_name(leaf))

        return Packet(map_tensors(shorten, tree)), memory

    def decode(self, packet: Packet, reference: Tree = None) -> Tree:
        """See `Codec`."""
        return unmap_tensors(Short, Short.whole, packet.content)


def float16() -> FloatFormat:
    """Floating-point tensors in half precision: relative error up to 2^-11, near zero 2^-25 absolute."""
    return FloatFormat("float16")


def _name(own: FormatName, setting: Setting) -> FormatName:
    if "format" not in setting:
        return _BY_BITS[bits_of(0, setting, tuple(_BY_BITS))] if "bits" in setting else own
    if setting["format"] not in FORMATS:
        raise SpecError(f"format must be one of {', '.join(FORMATS)}; got {setting['format']!r}")
    found: FormatName = setting["format"]
    return found


def _cut(leaf: Tensor, name: FormatName) -> Tensor:
    """Round to the nearest numbers of the format."""
    most = float(FORMATS[name].largest)
    if leaf.numel():
        low, high = map(float, torch.aminmax(leaf))
        if not (-most <= low and high <= most):  # some are too large, or not finite
            leaf = torch.where(leaf.isfinite(), leaf.clamp(-most, most), leaf)
    return leaf.to(_DTYPES[name])


def _drawn(leaf: Tensor, name: FormatName, words: tuple[int, int]) -> Tensor:
    """Round each number randomly to one of its two neighbours in the format."""
    values = numbers(leaf).copy()
    round_either(values, *FORMATS[name], *words, 0, TRANSFER, 0)
    return torch.from_numpy(values).reshape(leaf.shape).to(_DTYPES[name])
