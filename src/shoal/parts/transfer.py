"""Models that are sent in the number format in which they are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.core.flat import Flat
from shoal.core.gate import Like
from shoal.core.key import Key
from shoal.core.tree import elementwise
from shoal.core.types import Weights
from shoal.kernels.formats import FORMATS, TRANSFER, round_either

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "e5m2": torch.float8_e5m2,
}


def in_format(model: Weights, name: str, key: Key) -> Weights:
    """The model with its parameters in a number format, rounded stochastically; buffers are unchanged."""
    if name == "float32":
        return model
    place = 0

    def shorten(value: Tensor) -> Tensor:
        nonlocal place
        values = value.detach().cpu().contiguous().reshape(-1).numpy().copy()
        round_either(values, *FORMATS[name], *key.words, 0, TRANSFER, place)  # type: ignore[index]
        place += len(values)
        return torch.from_numpy(values).reshape(value.shape).to(DTYPES[name])

    return model._replace(params=elementwise(shorten, model.params))


def widened(model: Weights) -> Weights:
    """The model with its parameters in float32; the same object if they already are."""
    if all(value.dtype == torch.float32 for value in _some(model.params)):
        return model
    return model._replace(params=elementwise(lambda value: value.float(), model.params))


def template(model: Weights) -> Weights:
    """The template of the update of a model in any format: float32."""
    params = {name: Like(tuple(value.shape), torch.float32) for name, value in model.params.items()}
    return Weights(params, model.buffers)  # type: ignore[arg-type]


def _some(params: Mapping[str, Tensor]) -> list[Tensor]:
    return [params.vector] if type(params) is Flat else list(params.values())


class HandedOn(NamedTuple):
    """The payload of a client: its update, or on the wire the trained model in its number format."""

    update: Weights
    start: Weights | None = None  # the start of training in a short format; stays at the client

    def packed(self, name: str) -> HandedOn:
        """The payload as it is sent: the trained model has numbers of the format, its update does not."""
        if self.start is None or name == "float32":
            return HandedOn(self.update)
        largest = float(FORMATS[name].largest)  # type: ignore[index]

        def trained(start: Tensor, change: Tensor) -> Tensor:
            sums = start + change
            return torch.where(sums.isfinite(), sums.clamp(-largest, largest), sums).to(DTYPES[name])

        params = elementwise(trained, self.start.params, self.update.params)
        return HandedOn(Weights(params, self.update.buffers))

    def unpacked(self, sent: Any) -> HandedOn:
        """The inverse of `packed`, given the model that the client was sent."""
        start = widened(sent)
        if start is sent:
            return self
        params = elementwise(lambda a, b: a.float() - b, self.update.params, start.params)
        return HandedOn(Weights(params, self.update.buffers))
