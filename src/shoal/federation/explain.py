"""What leaves a site, with sizes, determined by doing everything except sending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor

from shoal.core.client import ClientSide
from shoal.core.codec import Packet
from shoal.core.engine import Verb
from shoal.core.flat import NAMED
from shoal.core.key import Key
from shoal.core.outbox import Outbox
from shoal.core.types import Cohort, Context, Moment, Tree
from shoal.federation.own_files import asks_agreement, read_agreement
from shoal.federation.site_client import Joined, evaluated, sent_model
from shoal.spec import Spec


class Leaves(NamedTuple):
    """Something that leaves the site."""

    when: str
    what: str
    size: str


def explained(spec: Spec, joined: Joined, client: int) -> Iterator[Leaves]:
    """Everything that leaves the site during a run; sizes and values come from a trial on its own data."""
    yield Leaves("on joining", "number of training samples", str(joined.samples))
    if asks_agreement(spec):
        agreed = read_agreement(joined.expected.agreement)
        for name in agreed.numbers:
            yield Leaves("before joining", f"{name}: number, sum and squares of its values", "3 numbers")
        for name, texts in agreed.categories.items():
            yield Leaves("before joining", f"{name}: its texts", ", ".join(texts))
        yield Leaves("before joining", "classes", ", ".join(agreed.classes) or "none")
    yield Leaves("on joining", "version of torch, type of processor", "text")
    side, key = joined.side, Key.from_seed(0)
    cohort = Cohort((client,), {}, 1)
    if side.method.asks_profile or side.selector.asks_profile:
        visit = side.visit("profile", client, side.fresh, Packet(()), Context(0, 0, {}, key))
        yield from _packet("once, a profile", visit.answer, visit.reason)
    state = side.method.init(side.task, side.key)
    moment = Moment(0, 0, True, key)
    legs = side.method.legs(state, cohort, moment) or (cohort,)
    message = side.method.dispatch(side.task, state, legs[0], moment)
    packet, _, _ = Outbox(side.codec, legs[0], message, key)[0]
    context = Context(0, 0, legs[0].setting(0), key)
    visit = side.visit("update", client, side.fresh, packet, context)
    if joined.evaluates and visit.answer is not None:
        found = evaluated(side, client, sent_model(side, packet))
        content = visit.answer.content
        visit = visit._replace(answer=Packet(content._replace(metrics={**content.metrics, **found})))
    often = f"in each of {spec.rounds} rounds" + (f", {len(legs)} times" if len(legs) > 1 else "")
    yield from _packet(often, visit.answer, visit.reason)
    if spec.evaluate.clients:
        yield from _evaluation(spec, side, client, state, cohort, key)


def _evaluation(
    spec: Spec, side: ClientSide, client: int, state: Tree, cohort: Cohort, key: Key
) -> Iterator[Leaves]:
    message = side.method.serve(state, cohort)
    packet, _, _ = Outbox(side.codec, cohort, message, key)[0]
    verb: Verb = "evaluate"
    visit = side.visit(verb, client, side.fresh, packet, Context(0, 0, {"common": False, "finetune": 0}, key))
    often = f"every {spec.evaluate.every} rounds" if spec.evaluate.every else "at the end"
    yield from _packet(f"{often}, an evaluation", visit.answer, visit.reason)


def _packet(when: str, packet: Packet | None, reason: str) -> Iterator[Leaves]:
    if packet is None:
        yield Leaves(when, f"nothing: {reason}", "")
        return
    reply = packet.content
    yield Leaves(when, "one packet, in total", f"{packet.nbytes:,} bytes")
    yield from (Leaves("", f"  {name}", size) for name, size in _named("", reply.payload))
    if reply.weight is not None:
        yield Leaves("", "  number of samples", f"{float(reply.weight):g}")
    for name, value in reply.metrics.items():
        yield Leaves("", f"  {name}", f"{float(value):.4g}")


def _named(path: str, tree: Any) -> Iterator[tuple[str, str]]:
    """The tensors and numbers of a tree, by name."""
    if isinstance(tree, Tensor):
        numbers = (
            f"{tuple(tree.shape)} {str(tree.dtype).removeprefix('torch.')}" if tree.dim() else f"{tree:.4g}"
        )
        yield path, numbers
    elif isinstance(tree, NAMED):
        for name, part in tree.items():
            yield from _named(f"{path}.{name}" if path else str(name), part)
    elif isinstance(tree, tuple | list):
        names = getattr(tree, "_fields", range(len(tree)))
        for name, part in zip(names, tree, strict=True):
            yield from _named(f"{path}.{name}" if path else str(name), part)
    elif tree is not None:
        yield path, str(tree)
