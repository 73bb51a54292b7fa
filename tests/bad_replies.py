"""Ways to tamper with an honest reply so that no server may take it in, and rounds with such replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from toy import setup

from shoal.core.engine import Delivery
from shoal.core.tree import tensors, tree_map
from shoal.core.types import ModelUpdate, PerClient, Reply
from shoal.loop import advance, start

Tampering = Callable[[Delivery], Delivery]


class Other(NamedTuple):
    something: Any


def reply(**changes: Any) -> Tampering:
    return lambda delivery: delivery._replace(reply=delivery.reply._replace(**changes))


def payload(change: Callable[[Any], Any]) -> Tampering:
    def bad(delivery: Delivery) -> Delivery:
        return delivery._replace(reply=delivery.reply._replace(payload=change(delivery.reply.payload)))

    return bad


def update(change: Callable[[Any], Any]) -> Tampering:
    return payload(lambda given: given._replace(update=change(given.update)))


def params(change: Callable[[dict], Any]) -> Tampering:
    return update(lambda given: given._replace(params=change(dict(given.params))))


def tensor(change: Callable[[torch.Tensor], Any]) -> Tampering:
    """The first tensor, a matrix, changed."""

    def one(given: dict) -> dict:
        name = next(iter(given))
        return {**given, name: change(given[name].clone())}

    return params(one)


def number(value: float) -> Tampering:
    def one(given: torch.Tensor) -> torch.Tensor:
        given.view(-1)[3] = value
        return given

    return tensor(one)


def weight(change: Callable[[torch.Tensor], Any]) -> Tampering:
    return lambda delivery: delivery._replace(
        reply=delivery.reply._replace(weight=change(delivery.reply.weight))
    )


def without_last(given: dict) -> dict:
    return dict(list(given.items())[:-1])


def swapped(given: dict) -> dict:
    return dict(zip(given, reversed(list(given.values())), strict=True))


PAYLOADS: dict[str, Tampering] = {
    "an update by client": payload(lambda p: ModelUpdate(PerClient([p.update]))),
    "an update by no client": payload(lambda p: ModelUpdate(PerClient([]))),
    "payload is nothing": reply(payload=None),
    "payload is a text": reply(payload="update"),
    "payload is a number": reply(payload=1.0),
    "payload is bytes": reply(payload=b"\0\1"),
    "payload is empty": reply(payload=()),
    "payload is a list": payload(lambda given: [given]),
    "payload has other names": payload(lambda given: {"upgrade": given.update}),
    "payload is another tuple": payload(lambda given: Other(given.update)),
    "payload is the update itself": payload(lambda given: given.update),
    "update is nothing": update(lambda given: None),
    "update is a text": update(lambda given: "nan"),
    "update is a plain dict": update(lambda given: dict(given.params)),
    "update is a plain tuple": update(lambda given: tuple(given)),
    "a part too many": update(lambda given: (*given, {})),
    "a buffer too many": update(lambda given: given._replace(buffers={"count": torch.zeros(())})),
    "buffers are missing": update(lambda given: given._replace(buffers=None)),
    "parameters are a list": params(lambda given: list(given.values())),
    "parameters are missing": params(lambda given: {}),
    "a tensor is missing": params(without_last),
    "a tensor too many": params(lambda given: {**given, "extra": torch.zeros(3)}),
    "tensors are swapped": params(swapped),
    "names are numbers": params(lambda given: dict(enumerate(given.values()))),
}
TENSORS: dict[str, Tampering] = {
    "transposed": tensor(lambda given: given.T.contiguous()),
    "flat": tensor(lambda given: given.reshape(-1)),
    "a row too many": tensor(lambda given: torch.cat([given, given[:1]])),
    "a row too few": tensor(lambda given: given[1:]),
    "an axis too many": tensor(lambda given: given[None]),
    "a scalar": tensor(lambda given: given.sum()),
    "no numbers": tensor(lambda given: given[:0]),
    "float64": tensor(lambda given: given.double()),
    "float16": tensor(lambda given: given.half()),
    "bfloat16": tensor(lambda given: given.bfloat16()),
    "int64": tensor(lambda given: torch.full(given.shape, 2**62)),
    "uint8": tensor(lambda given: given.to(torch.uint8)),
    "bool": tensor(lambda given: given > 0),
    "complex": tensor(lambda given: given.to(torch.complex64)),
    "sparse": tensor(lambda given: given.to_sparse()),
    "without storage": tensor(lambda given: given.to("meta")),
    "an array": tensor(lambda given: given.numpy()),
    "a list of numbers": tensor(lambda given: given.tolist()),
    "an array of objects": tensor(lambda given: np.array([object()])),
    "a number": tensor(lambda given: 0.0),
    "nan": number(float("nan")),
    "inf": number(float("inf")),
    "-inf": number(float("-inf")),
    "3e38": number(3e38),
    "-1e20": number(-1e20),
}
ENVELOPES: dict[str, Tampering] = {
    "no weight": reply(weight=None),
    "weight 0": weight(lambda given: given * 0),
    "negative weight": weight(lambda given: -given),
    "weight nan": weight(lambda given: given * float("nan")),
    "weight inf": weight(lambda given: given * float("inf")),
    "weight 1e300": weight(lambda given: given * 0 + 1e300),
    "a sample too many": weight(lambda given: given + 1),
    "a sample too few": weight(lambda given: given - 1),
    "weight is a vector": weight(lambda given: given[None]),
    "weight is a text": reply(weight="100"),
    "weight is a bool": reply(weight=True),
    "weight is complex": weight(lambda given: given.to(torch.complex128)),
    "no metrics": reply(metrics=None),
    "metrics without names": reply(metrics=[torch.tensor(0.5)]),
    "metric names are numbers": reply(metrics={1: torch.tensor(0.5)}),
    "a metric is a text": reply(metrics={"train_loss": "low"}),
    "a metric is a vector": reply(metrics={"train_loss": torch.zeros(2)}),
    "no reply": lambda delivery: delivery._replace(reply=None),
    "a reply that is no reply": lambda delivery: delivery._replace(reply=tuple(delivery.reply)),
    "late": lambda delivery: delivery._replace(reason="it came too late"),
    "an answer to another round": lambda delivery: delivery._replace(version=(7, 0)),
    "an answer to another leg": lambda delivery: delivery._replace(version=(delivery.version[0], 3)),
}
KINDS = PAYLOADS | TENSORS | ENVELOPES


def first_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Tampering:
    """Of a reply of any method."""

    def bad(delivery: Delivery) -> Delivery:
        found = tensors(delivery.reply.payload)
        if not found:
            return delivery._replace(reply=delivery.reply._replace(metrics=None))
        mapped = tree_map(lambda leaf: change(leaf) if leaf is found[0] else leaf, delivery.reply.payload)
        return delivery._replace(reply=Reply(mapped, delivery.reply.weight, delivery.reply.metrics))

    return bad


ANY_METHOD: dict[str, Tampering] = {
    "payload is a text": reply(payload="update"),
    "weight 1e300": reply(weight=torch.tensor(1e300, dtype=torch.float64)),
    "a tensor with an axis too many": first_tensor(lambda given: given[None]),
}


class TamperedReplies:
    """An engine in which the reply of one member of each cohort is replaced by some others."""

    def __init__(self, engine, tamper, place):
        self._engine, self._tamper, self._place = engine, tamper, place

    def exchange(self, work, cohort, message, key):
        for delivery in self._engine.exchange(work, cohort, message, key):
            for single in delivery.singles():
                chosen = work.verb == "update" and single.clients[0] == cohort.ids[self._place]
                yield from self._tamper(single) if chosen else [single]

    def walk(self, walk):
        for _ in walk.legs:
            walk.step()

    def __getattr__(self, name):
        return getattr(self._engine, name)


def round_with(tamper, method="fedavg", place=0, **changes):
    """The progress and the record of a round in which one client's reply is tampered with."""
    federation = setup(method, **changes).federation
    federation = replace(federation, engine=TamperedReplies(federation.engine, tamper, place))
    return advance(federation, start(federation))


def lost(delivery):
    return [delivery._replace(reply=None, reason="lost")]
